"""File: what stands at a path is as its Score says, and what stood there before comes back where it was kept.

`plan` decides on `actions` from what was seen and what is ours, which `places` reads from the ledger; all three are
pure. `surveys` says where to look and remembers what was seen, `act` does, `reconciler` is what the engine sees.
"""

from harmony_agent.kinds.file.reconciler import FileReconciler

__all__ = ["FileReconciler"]
