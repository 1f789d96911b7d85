"""One module a kind: its actions, its pure plan, its Reconciler. Sees core, topology and scores; no kind sees another."""
