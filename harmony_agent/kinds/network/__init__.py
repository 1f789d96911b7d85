"""Network: keeps networks of containers as their Scores say, through a `Networks` capability."""

from harmony_agent.kinds.network.reconciler import NetworkReconciler

__all__ = ["NetworkReconciler"]
