"""The control plane over NATS JetStream."""
