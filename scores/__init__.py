"""Harmony's typed desired and actual state."""
