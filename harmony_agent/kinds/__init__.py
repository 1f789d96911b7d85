"""One module a kind: its actions, its pure plan, its Reconciler. Sees core, topology, scores; no kind sees another."""
