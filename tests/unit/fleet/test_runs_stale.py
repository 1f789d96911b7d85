"""A watcher that was held up between its look and its writes: what a run took back meanwhile stays
taken back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from harmony_fleet.manifests.signing import Signing
from harmony_fleet.rollout.runs.follow import step
from harmony_fleet.rollout.runs.plan import Request, freeze
from harmony_fleet.rollout.runs.store import cancel_run, create
from scores.keys import DESIRED
from tests.unit.fleet.build import OURS
from tests.unit.fleet.upgrading import Buckets, Upgrading, minutes

UID = "3f2a0000-0000-4000-8000-000000000001"


class HeldUp(Buckets):
    """Buckets before whose next write of what is desired something else happens."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    def _take(self, bucket: str) -> Callable[[], Awaitable[None]] | None:
        if bucket != DESIRED:
            return None
        found, self.meanwhile = self.meanwhile, None
        return found

    async def put(self, bucket: str, key: str, value: bytes, revision: int, note: str = "") -> int:
        meanwhile = self._take(bucket)
        if meanwhile is not None:
            await meanwhile()
        return await super().put(bucket, key, value, revision, note)

    async def create(self, bucket: str, key: str, value: bytes) -> int:
        meanwhile = self._take(bucket)
        if meanwhile is not None:
            await meanwhile()
        return await super().create(bucket, key, value)


async def test_a_request_is_not_written_again_once_it_was_taken_back() -> None:
    buckets: Any = HeldUp()
    device = Upgrading("a", buckets)
    device.beat()
    made = freeze(Request(UID, OURS, minutes(60), 1, None), [device.as_told()], [], buckets.time)
    await create(buckets, made)
    ended = []

    async def asked_cancelled_and_taken_back() -> None:
        await step(buckets, UID, Signing())
        await cancel_run(buckets, UID)
        await step(buckets, UID, Signing())
        for _ in range(3):
            await device.turn()
            ended.append(await step(buckets, UID, Signing()))

    buckets.meanwhile = asked_cancelled_and_taken_back
    await step(buckets, UID, Signing())
    run, tidy = ended[-1]
    assert (run.phase, tidy) == ("Cancelled", True)
    assert await buckets.entries(DESIRED) == {}
    await device.turn()
    assert device.updater.attempts == {}
