"""What the loops share: the state, in memory and durably, and the kinds."""
