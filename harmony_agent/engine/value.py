"""One key of a bucket that this device alone writes: by CAS, and only when it differs."""

from __future__ import annotations

from typing import Final

from harmony_agent.topology.control import Conflict, ControlPlane

MAX_CONFLICTS: Final = 3


class Value:
    """The key, what stands there as far as is known, and who else was seen to write it."""

    def __init__(self, control: ControlPlane, bucket: str, key: str) -> None:
        self._control = control
        self._bucket = bucket
        self._key = key
        self._data: bytes | None = None
        self._revision: int | None = None
        self.foreign = 0
        """how often somebody else's value was found in the way of a write"""

    def doubt(self) -> None:
        """What stands there has to be read anew: the bucket may be another one."""
        self._revision = None

    async def read(self) -> bytes | None:
        """What stands there now. Raises Unreachable, BucketMissing."""
        self._revision = None
        entry = await self._control.get(self._bucket, self._key)
        self._revision = entry.revision if entry else 0
        self._data = entry.data if entry else None
        return self._data

    async def write(self, data: bytes) -> bool:
        """Make `data` stand there; whether a write was needed. Raises Unreachable, BucketMissing, Conflict."""
        for _ in range(MAX_CONFLICTS):
            if self._revision is None:
                await self.read()
            if self._data == data:
                return False
            try:
                await self._put(data)
            except Conflict:
                await self._note_foreign(data)
            else:
                return True
        raise Conflict(f"{self._bucket} {self._key}: somebody else keeps writing it")

    async def _put(self, data: bytes) -> None:
        revision, self._revision = self._revision, None  # a write whose answer is lost may have been done all the same
        self._revision = await self._control.put(self._bucket, self._key, data, revision)
        self._data = data

    async def _note_foreign(self, data: bytes) -> None:
        before = self._data
        found = await self.read()
        if found is not None and found not in (before, data):
            self.foreign += 1
