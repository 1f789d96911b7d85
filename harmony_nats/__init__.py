"""The client library for NATS, held to the channel that was asked for. The agent and the operator's
side both stand on it, and it imports neither.
"""
