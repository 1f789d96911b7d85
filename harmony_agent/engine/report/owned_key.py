"""One key of a bucket that this device alone writes: by CAS, and only when it differs."""

from __future__ import annotations

from collections import deque
from typing import Final

from harmony_agent.topology.control_plane import Conflict, ControlPlane, Unreachable
from scores.canonical import digest

MAX_CONFLICTS: Final = 3


class OwnedKey:
    """The key, what stands there as far as is known, and who else was seen to write it."""

    def __init__(
        self, control: ControlPlane, bucket: str, key: str, *, insist: bool = False
    ) -> None:
        """`insist`: write also what somebody else wrote already, so that they notice us, too."""
        self._control = control
        self._bucket = bucket
        self._key = key
        self._insist = insist
        self._data: bytes | None = None
        self._revision: int | None = None
        self._unsure: deque[str] = deque(maxlen=16)
        self.foreign = 0
        """how often somebody else's value was found in the way of a write"""

    def invalidate(self) -> None:
        """Forget the value, because the bucket may be another one."""
        self._revision = None

    @property
    def revision(self) -> int:
        """Of what was written last, as far as is known; 0 otherwise."""
        return self._revision or 0

    async def stands(self) -> bool:
        """Tell if what is known to stand there still does; where it doesn't, the next write looks
        first.

        Raises Unreachable, BucketMissing.
        """
        known = self._revision
        if not known:  # nothing is known to stand there, or a write is under way
            return True
        entry = await self._control.get(self._bucket, self._key)
        if self._revision != known or (entry is not None and entry.revision == known):
            return True
        self.invalidate()
        return False

    async def read(self) -> bytes | None:
        """Read the value. Raises Unreachable, BucketMissing."""
        self._revision = None
        entry = await self._control.get(self._bucket, self._key)
        self._revision = entry.revision if entry else 0
        self._data = entry.data if entry else None
        return self._data

    async def write(self, data: bytes) -> bool:
        """Make `data` stand there; whether a write was needed. Raises Unreachable, BucketMissing,
        Conflict.
        """
        before = self.foreign
        for _ in range(MAX_CONFLICTS):
            if self._revision is None:
                await self.read()
            if self._data == data and not (self._insist and self.foreign > before):
                return False
            known = self._revision
            try:
                await self._put(data)
            except Conflict:
                await self._look_who(known)
            else:
                return True
        raise Conflict(f"{self._bucket} {self._key}: somebody else keeps writing it")

    async def _put(self, data: bytes) -> None:
        revision, self._revision = self._revision, None
        try:
            self._revision = await self._control.put(self._bucket, self._key, data, revision)
        except Unreachable:
            self._unsure.append(digest(data))  # it may have been written all the same, or still be
            raise
        self._data = data

    async def _look_who(self, known: int | None) -> None:
        """After a conflict: what stands there since is somebody else's, unless it is a write whose
        answer was lost.

        Also where it is just what we wrote or were about to: another agent counts its beats as we
        do. That nothing stands there since is a write of ours under way, between two leaders.
        """
        found = await self.read()
        if found is not None and self._revision != known and digest(found) not in self._unsure:
            self.foreign += 1
