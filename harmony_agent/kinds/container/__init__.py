"""Container: keeps containers as their Scores say, through a `Containers` capability.

A container is ours by its recorded id; by its labels only while none is recorded, which is between
the moment when that is written down (facts: ``id`` "") and the one in which it was created. The
agent restarts what ends, so podman's own restart policy is off. Must not show podman's words before
`payload.safe` has seen them.

Facts in the ledger: ``id``; ``label``, what it was made from; ``made``, its changeable fields right
after that; ``boot``, in which boot it was last started; ``restarts``, ``exit_code`` and ``ended``,
the run that was counted last; ``concluded``, the run that was its last; ``token`` and ``from``, see
`core.reconciler`; ``inits``, progress of init containers; ``grace``, seconds, for removal;
``former``, the container that was adopted (``back`` once it was put back); ``pulled``, the images
that ``pull: always`` has fetched for a spec.

`payload` makes podman's input of a Score, `plan` chooses `actions`, `observe` observes, `apply` and
`create` act, `reconciler` is what the engine sees.
"""

from harmony_agent.kinds.container.reconciler import ContainerReconciler

__all__ = ["ContainerReconciler"]
