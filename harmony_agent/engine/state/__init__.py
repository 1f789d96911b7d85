"""The part that all loops share: the state, in memory and durably, and the kinds."""
