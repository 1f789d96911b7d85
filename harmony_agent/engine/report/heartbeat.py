"""Signs of life: the heartbeat each period, DeviceInfo on change; both at once with a new
connection.

On the way they notice what concerns the other writers: a bucket that is another one than before,
and a second agent with this device's id.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from harmony_agent.core.resources import Key
from harmony_agent.engine.loops import Signal, every
from harmony_agent.engine.report.owned_key import OwnedKey
from harmony_agent.topology import Clock
from harmony_agent.topology.control_plane import BucketMissing, Conflict, ControlPlane, Unreachable
from scores.keys import ACTUAL, HEARTBEAT, INFO, heartbeat_key, info_key
from scores.names import parse_time
from scores.status import SETTLED, DeviceInfo, Heartbeat, ResourceStatus

log = logging.getLogger(__name__)

INFO_SECONDS: Final = 60.0
"""Seconds between checks of DeviceInfo."""


class DuplicateAgentDetector:
    """Another agent with this device's id: it shows in the heartbeat's key, which only one agent
    has cause to write.

    Once may be a restored bucket; `ENOUGH` times within `WINDOW` beats is somebody who goes on.
    """

    WINDOW: Final = 10
    ENOUGH: Final = 2

    def __init__(self) -> None:
        self._foreign: deque[bool] = deque(maxlen=self.WINDOW)
        self.seen = False

    def beat(self, *, foreign: bool) -> bool:
        """Note one beat; whether the verdict changed."""
        self._foreign.append(foreign)
        count = sum(self._foreign)
        seen = count >= self.ENOUGH or (self.seen and count > 0)
        changed, self.seen = seen != self.seen, seen
        return changed


class OldestUnsettled:
    """Age of the longest unsettled resource, in seconds.

    Counts by the monotonic clock, because the wall clock may be set meanwhile. For the time before
    the agent's start it takes `since` of the status, if the clock can be trusted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def oldest(self, statuses: Mapping[Key, ResourceStatus]) -> int:
        """Whole seconds; 0 where all is settled."""
        now = self._clock.monotonic()
        self._since = {
            key: self._since[key] if key in self._since else now - self._age(status)
            for key, status in statuses.items()
            if status.phase not in SETTLED
        }
        return int(now - min(self._since.values(), default=now))

    def _age(self, status: ResourceStatus) -> float:
        if not self._clock.synchronized():
            return 0.0
        return max(0.0, self._clock.now() - parse_time(status.since).timestamp())


class HeartbeatLoop:
    """The two loops, and what they noticed."""

    def __init__(
        self,
        device: str,
        control: ControlPlane,
        clock: Clock,
        *,
        beat: Callable[[int], Heartbeat],
        describe: Callable[[], Awaitable[DeviceInfo]],
        statuses_lost: Callable[[], None],
        statuses_look: Callable[[], Awaitable[None]],
        twin: Callable[[bool], None],
    ) -> None:
        """`beat` makes the heartbeat of a number; `statuses_lost` is for another actual-state,
        `twin` for `DuplicateAgentDetector`.

        `statuses_look` looks if others changed what stands there.
        """
        self._device = device
        self._control = control
        self._clock = clock
        self._make_beat = beat
        self._describe = describe
        self._statuses_lost = statuses_lost
        self._statuses_look = statuses_look
        self._twin = twin
        self._seq = 0
        self._duplicates = DuplicateAgentDetector()
        self._births: dict[str, str] = {}
        self._missing: set[str] = set()
        self._beat = OwnedKey(control, HEARTBEAT, heartbeat_key(device), insist=True)
        self._info = OwnedKey(control, INFO, info_key(device))
        self._signals = (Signal(), Signal())
        control.on_connect(self._notify)

    def invalidate(self) -> None:
        """The control plane may be another one."""
        self._info.invalidate()
        self._signals[1].notify()

    def described(self) -> None:
        """DeviceInfo may differ now."""
        self._signals[1].notify()

    async def run(self, heartbeat: float) -> None:
        """Beat each `heartbeat` seconds until cancelled."""
        beat_alarm, info_alarm = self._signals
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                every, self._clock, heartbeat, self._heartbeat, "the heartbeat", beat_alarm
            )
            tasks.start_soon(
                every, self._clock, INFO_SECONDS, self._device_info, "DeviceInfo", info_alarm
            )

    def _notify(self) -> None:
        for signal in self._signals:
            signal.notify()

    async def _heartbeat(self) -> bool:
        written = await self._write(
            HEARTBEAT, self._beat, lambda: self._make_beat(self._seq + 1).canonical()
        )
        if written:
            self._seq += 1
        if await self._same_bucket(ACTUAL, self._statuses_lost):
            await self._still(self._statuses_look)
        return written

    async def _still(self, look: Callable[[], Awaitable[object]]) -> None:
        """Look if what was written still stands; the next period looks again where that can't be
        told.
        """
        try:
            await look()
        except (Unreachable, BucketMissing) as error:
            log.debug("cannot look at what was written: %s", error)

    async def _device_info(self) -> bool:
        if not await self._same_bucket(INFO, self._info.invalidate):
            return False  # and the capabilities aren't asked for what nobody could read
        await self._still(self._info.stands)
        info = (await self._describe()).canonical()
        return await self._write(INFO, self._info, lambda: info)

    async def _write(self, bucket: str, value: OwnedKey, make: Callable[[], bytes]) -> bool:
        before = value.foreign
        try:
            await value.write(make())
        except (Unreachable, BucketMissing) as error:
            self._say_missing(bucket, error)
            return False
        except Conflict as error:
            log.debug("%s", error)
        self._missing.discard(bucket)
        if bucket == HEARTBEAT:
            self._look_for_twin(foreign=value.foreign > before)
        return True

    def _look_for_twin(self, *, foreign: bool) -> None:
        if not self._duplicates.beat(foreign=foreign):
            return
        if self._duplicates.seen:
            log.error(
                "another agent writes as device %s: both go on with their work, and their statuses overwrite one "
                "another; give one of them another device_id",
                self._device,
                extra={"reason": "DuplicateAgent"},
            )
        else:
            log.info("no other agent writes as device %s any more", self._device)
        self._twin(self._duplicates.seen)

    async def _same_bucket(self, bucket: str, lost: Callable[[], None]) -> bool:
        """Return whether the bucket can be had; calls `lost` where it is another than at the last
        look.
        """
        try:
            born = await self._control.bucket_created_at(bucket)
        except (Unreachable, BucketMissing) as error:
            self._say_missing(bucket, error)
            return False
        self._missing.discard(bucket)
        if self._births.setdefault(bucket, born) != born:
            self._births[bucket] = born
            log.warning("the bucket %s is another one than before: writing into it anew", bucket)
            lost()
        return True

    def _say_missing(self, bucket: str, error: Exception) -> None:
        """A bucket that isn't made is said once; that there is no connection is said elsewhere."""
        if isinstance(error, BucketMissing) and bucket not in self._missing:
            self._missing.add(bucket)
            log.warning("cannot write to %s: %s; the control plane makes it", bucket, error)
        else:
            log.debug("cannot write to %s: %s", bucket, error)
