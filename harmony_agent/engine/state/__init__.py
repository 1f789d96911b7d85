"""The engine's state, in memory and durably."""
