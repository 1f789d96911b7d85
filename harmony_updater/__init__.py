"""The root updater."""

__version__ = "0.1.0"
