"""Desired state from JetStream: a push consumer for speed, a cheap poll for truth.

The consumer is made by hand, without nats-py's timers, so that idle is idle. CONSUMER.INFO, a little more often than
`poll` says, tells whether it still exists (a re-created bucket has none), whether it is ours, and how much it has
delivered. Any doubt, and any new connection, ends in a new consumer and so in a new, complete Snapshot; there is never
more than one consumer an agent.

A device with credentials of its own may make none: then a core subscription brings speed, and the truth is read by way
of `nats_gate`, at the same times.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any, Final

import anyio
from nats.aio.msg import Msg

from harmony_agent.adapters.nats import NatsLink
from harmony_agent.adapters.nats_answers import ApiError
from harmony_agent.adapters.nats_gate import Reader
from harmony_agent.topology.control import BucketMissing, Entry, Event, Lost, Snapshot, Unreachable, Update
from scores.keys import DESIRED, kv_stream, kv_subject

log = logging.getLogger(__name__)

_STREAM: Final = kv_stream(DESIRED)
_PART: Final = 0.75
"""Of `poll` between two looks: a look over a dead link takes its time, and all of it has to fit in poll + 1 s."""
_LOOK_SECONDS: Final = 1.0
_IN_FLIGHT_SECONDS: Final = 0.5
_INACTIVE_NS: Final = 60 * 1_000_000_000
_CONSUMER_NOT_FOUND: Final = 10014
_AGAIN_SECONDS: Final = (0.005, 0.02, 0.1, 0.5)


class _Doubt(Exception):
    """What was delivered may not be all."""


class NatsControl(NatsLink):
    """`topology.control.ControlPlane` and `topology.Objects`, whole."""

    def __init__(
        self,
        *args: Any,
        poll: float = 5.0,
        known: Callable[[], Collection[str]] = tuple,
        **options: Any,
    ) -> None:
        """As `NatsLink`; `poll` in seconds bounds how stale desired state can be unnoticed.

        `known` names the deployments that the device has anyway.
        """
        super().__init__(*args, **options)
        self._poll = poll * _PART
        self._queue: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._filter = kv_subject(DESIRED, f"{self.device}.*")
        self._process = f"{random.getrandbits(64):016x}"  # a name, no secret
        self._consumer = self.name
        self._stale = False
        self._heard: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
        self._names: set[str] = set()
        self._known = known
        self.on_connect(self.refresh)

    def refresh(self) -> None:
        """Read all of desired state anew, now."""
        self._stale = True
        self._queue.put_nowait(None)
        self._heard.put_nowait(None)

    async def desired(self) -> AsyncIterator[Event]:
        """Snapshots and updates, as `ControlPlane.desired` says."""
        while True:
            try:
                follow = self._follow_names() if self.gate else self._follow()
                async with contextlib.aclosing(follow) as events:
                    async for event in events:
                        yield event
            except _Doubt:
                continue
            except (Unreachable, ApiError) as error:
                yield Lost("Unreachable", str(error))
            except BucketMissing as error:
                yield Lost("BucketMissing", str(error))
            await (self._next_name() if self.gate else self._next())

    async def _next(self) -> Msg | None:
        """The next message, or None when it is time to look."""
        with anyio.move_on_after(self._poll):
            return await self._queue.get()
        return None

    async def _follow(self) -> AsyncGenerator[Event, None]:
        """A snapshot, then updates, until there is a doubt or an error."""
        self._queue, self._stale = asyncio.Queue(), False
        inbox = f"_INBOX.{self._process}.{random.getrandbits(64):016x}"
        subscription = await self.subscribe(inbox, self._queue.put)
        try:
            total = await self._create_consumer(inbox)
            received = 0
            entries: dict[str, Entry] = {}
            while received < total:
                message = await self._next()
                if message is not None:
                    received += 1
                    entry = _entry(message, received)
                    entries[entry.key] = entry
                elif await self._complete(inbox, received):
                    break
            yield Snapshot(tuple(entries.values()))
            while True:
                message = await self._next()
                if message is None:
                    await self._complete(inbox, received)
                else:
                    received += 1
                    yield Update(_entry(message, received))
        finally:
            with contextlib.suppress(Exception):  # the connection may be gone, and the subscription with it
                await subscription.unsubscribe()

    # -- with a device's own credentials

    async def _next_name(self) -> tuple[str, int] | None:
        """A deployment to look at and how often that was done already; None when it is time to look at all."""
        with anyio.move_on_after(self._poll):
            return await self._heard.get()
        return None

    async def _follow_names(self) -> AsyncGenerator[Event, None]:
        """As `_follow`: what is heard of is looked at, what may have been missed is looked for each `poll`."""
        assert self.gate is not None  # noqa: S101  # asked by `desired`
        heard: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
        self._heard, self._stale = heard, False

        async def arrived(message: Msg) -> None:
            heard.put_nowait((message.subject.rpartition(".")[2], 0))

        subscription = await self.subscribe(self._filter, arrived)
        reader = Reader(self, self.gate)
        try:
            have = await reader.snapshot({*self._known(), *self._names})
            self._names |= set(have)
            yield Snapshot(tuple(have.values()))
            while True:
                item = await self._next_name()
                if self._stale:
                    raise _Doubt
                for name in {item[0]} if item else await self._changed(reader, have):
                    entry = (await reader.read({name}))[name]
                    if entry == have.get(name):
                        self._again(heard, item)
                        continue
                    self._names.add(name)
                    if entry is None:
                        yield Update(Entry(f"{self.device}.{name}", None, have.pop(name).revision))
                    else:
                        have[name] = entry
                        yield Update(entry)
        finally:
            with contextlib.suppress(Exception):  # the connection may be gone, and the subscription with it
                await subscription.unsubscribe()

    async def _changed(self, reader: Reader, have: Collection[str]) -> set[str]:
        names = await reader.look(have)
        if names is None:
            raise _Doubt
        return names

    def _again(self, heard: asyncio.Queue[tuple[str, int] | None], item: tuple[str, int] | None) -> None:
        """It may have been heard of before it was stored: look again soon, a few times."""
        if item is not None and item[1] < len(_AGAIN_SECONDS):
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS[item[1]], heard.put_nowait, (item[0], item[1] + 1))

    # -- with an account's full rights

    async def _create_consumer(self, inbox: str) -> int:
        """Make the consumer anew; returns how many entries there are to come."""
        try:
            await self.api(f"CONSUMER.DELETE.{_STREAM}.{self._consumer}", None)
        except ApiError as error:
            if error.code != _CONSUMER_NOT_FOUND:
                raise
        config = {
            "name": self._consumer,
            "deliver_subject": inbox,
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": self._filter,
            "inactive_threshold": _INACTIVE_NS,
            "mem_storage": True,
            "num_replicas": 1,
        }
        call = f"CONSUMER.CREATE.{_STREAM}.{self._consumer}.{self._filter}"
        info = await self.api(call, {"stream_name": _STREAM, "config": config})
        return int(info["num_pending"]) + int(info["delivered"]["consumer_seq"])

    async def _complete(self, inbox: str, received: int) -> bool:
        """Whether all came that is to come; False: more is on its way. Raises _Doubt where something is missing."""
        for last in (False, True):
            if self._stale:
                raise _Doubt
            try:
                info = await self.api(f"CONSUMER.INFO.{_STREAM}.{self._consumer}", None, _LOOK_SECONDS)
            except ApiError as error:
                raise (_Doubt if error.code == _CONSUMER_NOT_FOUND else error) from error
            self._must_be_ours(str(info["config"].get("deliver_subject", "")), inbox)
            if not self._queue.empty():  # it is counted when it is read
                return False
            if int(info["delivered"]["consumer_seq"]) == received and not int(info["num_pending"]):
                return True
            if not last:
                await anyio.sleep(_IN_FLIGHT_SECONDS)
        raise _Doubt

    def _must_be_ours(self, found: str, inbox: str) -> None:
        """A clone of this installation makes its consumer under the same name: leave that name to it."""
        if found == inbox:
            return
        if not found.startswith(f"_INBOX.{self._process}."):
            log.warning(
                "another agent with this device's id and a copy of its state reads desired state: give one another id",
                extra={"reason": "DuplicateAgent"},
            )
            self._consumer = f"{self.name}-{self._process[:8]}"
        raise _Doubt


def _entry(message: Msg, expected: int) -> Entry:
    """A delivered message; _Doubt where one before it is missing."""
    metadata = message.metadata
    if metadata.sequence.consumer != expected:
        raise _Doubt
    gone = bool(message.headers and "KV-Operation" in message.headers)
    key = message.subject.removeprefix(kv_subject(DESIRED, ""))
    return Entry(key, None if gone else bytes(message.data), metadata.sequence.stream)
