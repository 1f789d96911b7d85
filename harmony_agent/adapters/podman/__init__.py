"""Containers by podman's API."""
