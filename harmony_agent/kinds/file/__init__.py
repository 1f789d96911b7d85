"""File: what stands at a path is as its Score says, and what stood there before comes back where it
was kept.

`plan` and `removal` choose `actions` from the observed state and from the ledger's `facts`. These
four modules are pure. `observe` says where to look and remembers what was seen, `exchange` passes places
on, `apply` acts, `reconciler` is what the engine sees.
"""

from harmony_agent.kinds.file.reconciler import FileReconciler

__all__ = ["FileReconciler"]
