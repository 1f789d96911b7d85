"""Container: keeps containers as their Scores say, through a `Containers` capability.

A container is ours by its recorded id; by its labels only while none is recorded, which is between
the moment when that is written down (`facts`: id "") and the one in which it was created. The agent
restarts what ends, so podman's own restart policy is off. Must not show podman's words before
`payload.safe` has seen them.

`payload` makes podman's input of a Score, `plan`, `running` and `removal` choose `actions`,
`observe` observes, `apply`, `create` and `pull` act, `image_book` remembers what was pulled,
`reconciler` is what the engine sees.
"""

from harmony_agent.kinds.container.image_book import ImageBounds
from harmony_agent.kinds.container.pull import ImagePuller
from harmony_agent.kinds.container.reconciler import ContainerReconciler

__all__ = ["ContainerReconciler", "ImageBounds", "ImagePuller"]
