"""The control plane and the device's own memory, as the engine sees them. No library here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from harmony_agent.core.frozen import frozen
from harmony_agent.core.manifests import (
    StoredManifest as StoredManifest,  # noqa: PLC0414  # what a Ledger holds
)
from harmony_agent.core.pauses import Pause
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.core.reverts import Fallback


class Unreachable(Exception):
    """The control plane didn't answer in time; said with what was asked of it."""


class Conflict(Exception):
    """Somebody else wrote the key since it was read."""


class BucketMissing(Exception):
    """The control plane answers, but hasn't made the bucket."""


@frozen()
class Entry:
    """A value of a bucket at a revision; `data` None is a deleted or purged key."""

    key: str
    data: bytes | None
    revision: int


@frozen()
class Snapshot:
    """All of this device's entries at one moment, complete: what isn't in it isn't there."""

    entries: tuple[Entry, ...]


@frozen()
class Update:
    """One entry that changed after the last snapshot."""

    entry: Entry


@frozen()
class Lost:
    """Desired state can't be read now; `reason` is Unreachable or BucketMissing."""

    reason: str
    message: str


Event = Snapshot | Update | Lost


class ControlPlane(Protocol):
    """NATS JetStream, as far as a device may use it."""

    def desired(self) -> AsyncIterator[Event]:
        """This device's desired state for as long as it is iterated: a Snapshot first and after
        each doubt.
        """
        ...

    async def get(self, bucket: str, key: str) -> Entry | None:
        """The newest value; None if there never was one. Raises Unreachable, BucketMissing."""
        ...

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        """The entry that was written last to any of `keys` (``pi-01.*``). Raises Unreachable,
        BucketMissing.
        """
        ...

    async def told(self) -> set[str]:
        """Names of deployments of this device that ``actual-state`` may show: all of them, and maybe
        more. Raises Unreachable, BucketMissing.
        """
        ...

    async def put(self, bucket: str, key: str, data: bytes, revision: int | None) -> int:
        """Write by CAS at `revision` (0: must not exist; None: whatever is there). Returns the new
        revision.

        Raises Conflict, Unreachable, BucketMissing.
        """
        ...

    async def bucket_created_at(self, bucket: str) -> str:
        """Read the time of creation of the bucket.

        A different one means another bucket. Raises Unreachable, BucketMissing.
        """
        ...

    def on_connect(self, came: Callable[[], None]) -> None:
        """Call `came` with every connection that there will be."""
        ...

    async def serve(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """Answer this device's commands (verb, request) until cancelled."""
        ...

    async def follow(self, bucket: str, heard: Callable[[str], None]) -> None:
        """Call `heard` with the rest of each key ``<device>.<rest>`` of a bucket that somebody writes
        to, and with "" on each new connection, until cancelled.

        A write may be heard before it is stored, and some aren't heard.
        """
        ...

    def connected(self) -> bool:
        """Return whether there is a connection now."""
        ...


class Ledger(Protocol):
    """The device's memory: durable when a call returns. Opening it fails closed, naming the file,
    on any doubt.
    """

    def manifests(self) -> Sequence[StoredManifest]:
        """Every accepted manifest, those of removed deployments too."""
        ...

    def records(self) -> Sequence[OwnershipRecord]:
        """Every resource that is ours."""
        ...

    def pauses(self) -> Sequence[Pause]:
        """Every pause, as it was kept last."""
        ...

    async def keep_pauses(self, pauses: Sequence[Pause]) -> None:
        """Keep these, and no others."""
        ...

    def fallbacks(self) -> Sequence[Fallback]:
        """What each deployment may go back to, as it was kept last."""
        ...

    async def keep_fallbacks(self, fallbacks: Sequence[Fallback]) -> None:
        """Keep these, and no others."""
        ...

    async def accept(self, manifest: StoredManifest) -> None:
        """Persist a manifest before anything is done for it."""
        ...

    async def put(self, records: Sequence[OwnershipRecord]) -> None:
        """Write records, all or none."""
        ...

    async def forget(self, *keys: Key) -> None:
        """Drop records, all or none: the resources are gone, or let go."""
        ...

    def intact(self) -> bool:
        """Return whether the files are still where they were opened; cheap."""
        ...

    async def rebuild(
        self, manifests: Sequence[StoredManifest], records: Sequence[OwnershipRecord]
    ) -> None:
        """Write everything anew after the files were taken away."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...
