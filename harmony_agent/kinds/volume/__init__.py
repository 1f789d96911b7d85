"""Volume: keeps named volumes as their Scores say, through a `Volumes` capability.

A volume's data is the author's: it is removed only where the Score says so, and only of a volume
that was made for it.
"""

from harmony_agent.kinds.volume.reconciler import VolumeReconciler

__all__ = ["VolumeReconciler"]
