"""State of deployments and devices, read from the buckets."""
