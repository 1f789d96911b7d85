"""The third loop: from what the device does to the control plane and the service manager."""
