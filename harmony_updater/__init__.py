"""The root updater."""
