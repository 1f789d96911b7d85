"""Resources as the agent knows them: their keys, what is wanted of them, and the ledger's records.

Pure types; no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from harmony_agent.core.frozen import frozen
from scores.base import Score
from scores.names import Digest

Facts = Mapping[str, Any]
"""Facts of a kind about a resource, in the ledger.

A small JSON object of names, ids and digests; never content.
"""


_UNDOING: Final = "-"
"""Behind `OwnershipRecord.applied`: taking it off has begun."""


class Key(NamedTuple):
    """One resource on this device."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Key:
        """``File/motd`` in its parts; the wire's models have checked its form."""
        kind, _, name = text.partition("/")
        return cls(kind, name)


S_co = TypeVar("S_co", bound=Score, covariant=True)


@frozen()
class SecretState:
    """A secret as the device has it: its version, 0 without one; `why` it has none, and whether
    that was `asked` yet.
    """

    name: str
    version: int = 0
    why: str = ""
    asked: bool = False


@frozen()
class Desired(Generic[S_co]):
    """A spec with its context from the manifest.

    `generation` is the one in which this spec last changed. `restart_token` and `reload_token` name
    the last change of what it restarts and reloads on ("": none is known); see `core.changes`. `uses`
    are the keys of its manifest that it needs though it names them nowhere in `after`. `secrets` are
    those that its spec names, as the device has them.
    """

    spec: S_co
    digest: Digest
    generation: int
    deployment: str
    restart_token: str = ""
    reload_token: str = ""
    uses: tuple[str, ...] = ()
    secrets: tuple[SecretState, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Every key that must be settled before this one."""
        return tuple(dict.fromkeys((*self.spec.needs(), *self.uses)))

    @property
    def version(self) -> str:
        """Value of `applied` after all of this has converged."""
        secrets = ",".join(f"{one.name}={one.version}" for one in self.secrets)
        return "+".join((self.digest, self.restart_token, self.reload_token, secrets)).rstrip("+")


@frozen()
class OwnershipRecord:
    """Entry of the ledger for a resource that this agent owns.

    It is durable before anything is done to the resource.

    `claims` are the device's objects that the resource occupies (``path:/srv/a``,
    ``unit:web.service``, ``container:web``, ``port:tcp:8080``); two records never share one.

    `applied` is the `Desired.version` that last converged, "" before the first time. A later
    difference under the same spec is drift. `facts` belong to the kind. `needs` are the keys of
    resources that must outlive this one. `ready` is the last instance known to be ready.

    `changed` is the moment of its last change (`core.changes`). `changing`: a change was begun, so
    those that restart on it are restarted once it converges, whatever happens in between.
    """

    kind: str
    name: str
    deployment: str
    spec_digest: str
    generation: int
    on_remove: str
    claims: frozenset[str]
    applied: str = ""
    facts: Facts = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    ready: str = ""
    changed: str = ""
    changing: bool = False

    @property
    def key(self) -> Key:
        """Key of the resource."""
        return Key(self.kind, self.name)

    @property
    def reached(self) -> str:
        """Version that last converged, also after removal has begun: it may still be there in
        part.
        """
        return self.applied.removesuffix(_UNDOING)

    @property
    def converged(self) -> bool:
        """Return whether the recorded spec has converged once, whatever else it hung on."""
        return self.reached.partition("+")[0] == self.spec_digest

    def undoing(self) -> OwnershipRecord:
        """The same from when taking it off begins: what is missing is no drift then, if it is
        wanted again.
        """
        return (
            replace(self, applied=self.applied + _UNDOING)
            if self.applied == self.reached != ""
            else self
        )
