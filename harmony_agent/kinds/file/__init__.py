"""File: what stands at a path is as its Score says, and what stood there before comes back where it was kept.

`plan` decides from what was seen and what is ours, which `places` reads from the ledger; both are pure. `reconciler`
is what the engine sees; it looks and acts through the capability Files alone.
"""

from harmony_agent.kinds.file.reconciler import FileReconciler

__all__ = ["FileReconciler"]
