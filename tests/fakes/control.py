"""The buckets of a control plane in memory, with compare-and-set as JetStream does it, and faults
on demand.
"""

from __future__ import annotations

from collections.abc import Callable

from harmony_agent.topology.control_plane import BucketMissing, Conflict, Entry, Unreachable
from scores.keys import ACTUAL


class FakeBuckets:
    """What `engine.report.owned_key` needs of `topology.control_plane.ControlPlane`.

    `fail` is called ahead of each call with its name, and may raise; `lost_answers` makes so many
    next writes succeed and then say that nobody answered.
    """

    def __init__(self, *buckets: str) -> None:
        self.entries: dict[str, dict[str, Entry]] = {bucket: {} for bucket in buckets}
        self.calls: list[str] = []
        self.fail: Callable[[str], None] = lambda _call: None
        self.lost_answers = 0
        self._revision = 0

    async def get(self, bucket: str, key: str) -> Entry | None:
        self._called("get", bucket)
        return self.entries[bucket].get(key)

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        self._called("newest", bucket)
        found = [
            entry
            for key, entry in self.entries[bucket].items()
            if key.startswith(keys.removesuffix("*"))
        ]
        return max(found, key=lambda entry: entry.revision, default=None)

    async def told(self) -> set[str]:
        self._called("told", ACTUAL)
        return {key.partition(".")[2] for key in self.entries[ACTUAL]}

    async def put(self, bucket: str, key: str, data: bytes, revision: int | None) -> int:
        self._called("put", bucket)
        there = self.entries[bucket].get(key)
        if revision is not None and revision != (there.revision if there else 0):
            raise Conflict(key)
        written = self.set(bucket, key, data)
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unreachable("no answer in time")
        return written

    def set(self, bucket: str, key: str, data: bytes | None) -> int:
        """Write as somebody else; None deletes."""
        self._revision += 1
        self.entries[bucket][key] = Entry(key, data, self._revision)
        return self._revision

    def recreate(self, bucket: str) -> None:
        """The bucket is deleted and made again; its revisions begin anew."""
        self.entries[bucket] = {}
        self._revision = 0

    def _called(self, name: str, bucket: str) -> None:
        self.calls.append(name)
        self.fail(name)
        if bucket not in self.entries:
            raise BucketMissing(bucket)
