"""The third loop: from what the device does to the control plane, the service manager and whoever
asks.
"""
