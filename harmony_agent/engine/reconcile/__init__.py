"""The second loop: from what is enforced to what the device does."""
