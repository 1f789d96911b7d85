"""How a device reads: one form, with full rights (`full`) or with a device's own
(`device_access`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from harmony_agent.adapters.nats.api import Api
from harmony_agent.topology.control_plane import Entry


class Access(Protocol):
    """Reads, each of the stream as it is now. All raise Unreachable, BucketMissing."""

    api: Api

    async def get(self, bucket: str, key: str) -> Entry | None:
        """The newest value; a delete or purge marker is an entry without data."""
        ...

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        """What was written last of all that match: the one look that needs no name."""
        ...

    async def names(self) -> set[str]:
        """The names of this device's deployments, as far as they are told."""
        ...

    def written(self, bucket: str, key: str, revision: int) -> None:
        """Note a write that was acknowledged."""
        ...

    async def birth(self, bucket: str) -> str:
        """Another answer for another bucket of the same name."""
        ...

    async def fetch(
        self, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Stream an object, chunk by chunk. Raises Transient; Terminal where it is larger than
        `limit`.
        """
        ...
