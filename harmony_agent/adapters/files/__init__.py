"""The kind File on the device's file system."""
