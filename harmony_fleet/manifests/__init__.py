"""Manifests: read, compared, signed. No network."""
