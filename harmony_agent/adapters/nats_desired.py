"""Desired state from JetStream: a push consumer for speed, a cheap poll for truth.

The consumer is made by hand, without nats-py's timers, so that idle is idle. CONSUMER.INFO, once a poll and after each
reconnect, says whether it still exists (a re-created bucket has none) and how much it has delivered. Any doubt ends in
a new consumer and so in a new, complete Snapshot; there is never more than one consumer an agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import anyio
from nats.aio.msg import Msg

from harmony_agent.adapters.nats import ApiError, NatsLink
from harmony_agent.topology.control import BucketMissing, Entry, Event, Lost, Snapshot, Unreachable, Update
from scores.keys import DESIRED, kv_stream, kv_subject

_STREAM: Final = kv_stream(DESIRED)
_SNAPSHOT_SECONDS: Final = 10.0
_IN_FLIGHT_SECONDS: Final = 0.5
_INACTIVE_NS: Final = 60 * 1_000_000_000
_CONSUMER_NOT_FOUND: Final = 10014


class _Doubt(Exception):
    """What was delivered may not be all."""


class NatsControl(NatsLink):
    """`topology.control.ControlPlane` and `topology.Objects`, whole."""

    def __init__(self, *args: Any, poll: float = 5.0, **options: Any) -> None:
        """As `NatsLink`; `poll` in seconds bounds how stale desired state can be unnoticed."""
        super().__init__(*args, **options)
        self._poll = poll
        self._queue: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._filter = kv_subject(DESIRED, f"{self.device}.*")
        self.on_connect = self._look

    def _look(self) -> None:
        """After a reconnect, look at once."""
        self._queue.put_nowait(None)

    async def desired(self) -> AsyncIterator[Event]:
        """Snapshots and updates, as `ControlPlane.desired` says."""
        while True:
            try:
                async with contextlib.aclosing(self._follow()) as events:
                    async for event in events:
                        yield event
            except _Doubt:
                continue
            except (Unreachable, ApiError) as error:
                yield Lost("Unreachable", str(error))
            except BucketMissing as error:
                yield Lost("BucketMissing", str(error))
            await self._next()

    async def _next(self) -> Msg | None:
        """The next message, or None when it is time to look."""
        with anyio.move_on_after(self._poll):
            return await self._queue.get()
        return None

    async def _follow(self) -> AsyncGenerator[Event, None]:
        """A snapshot, then updates, until there is a doubt or an error."""
        self._queue = asyncio.Queue()
        inbox = f"_INBOX.{self.name}.{random.getrandbits(64):016x}"  # a name, no secret
        subscription = await self.subscribe(inbox, self._queue.put)
        try:
            total = await self._create_consumer(inbox)
            received = 0
            entries: dict[str, Entry] = {}
            while received < total:
                with anyio.move_on_after(_SNAPSHOT_SECONDS) as waited:
                    message = await self._queue.get()
                if waited.cancelled_caught:
                    raise Unreachable(f"the entries of {DESIRED} did not arrive within {_SNAPSHOT_SECONDS} s")
                if message is not None:
                    received += 1
                    entry = _entry(message, received)
                    entries[entry.key] = entry
            yield Snapshot(tuple(entries.values()))
            while True:
                message = await self._next()
                if message is None:
                    await self._check(received)
                else:
                    received += 1
                    yield Update(_entry(message, received))
        finally:
            with contextlib.suppress(Exception):  # the connection may be gone, and the subscription with it
                await subscription.unsubscribe()

    async def _create_consumer(self, inbox: str) -> int:
        """Make the consumer anew; returns how many entries there are to come."""
        try:
            await self.api(f"CONSUMER.DELETE.{_STREAM}.{self.name}", None)
        except ApiError as error:
            if error.code != _CONSUMER_NOT_FOUND:
                raise
        config = {
            "name": self.name,
            "deliver_subject": inbox,
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": self._filter,
            "inactive_threshold": _INACTIVE_NS,
            "mem_storage": True,
            "num_replicas": 1,
        }
        call = f"CONSUMER.CREATE.{_STREAM}.{self.name}.{self._filter}"
        info = await self.api(call, {"stream_name": _STREAM, "config": config})
        return int(info["num_pending"]) + int(info["delivered"]["consumer_seq"])

    async def _check(self, received: int) -> None:
        """Raise _Doubt unless the consumer is there and all that it delivered came."""
        for last in (False, True):
            try:
                info = await self.api(f"CONSUMER.INFO.{_STREAM}.{self.name}", None)
            except ApiError as error:
                raise (_Doubt if error.code == _CONSUMER_NOT_FOUND else error) from error
            if int(info["delivered"]["consumer_seq"]) == received and not int(info["num_pending"]):
                return
            if not self._queue.empty():  # on its way: it is counted when it is read
                return
            if not last:
                await anyio.sleep(_IN_FLIGHT_SECONDS)
        raise _Doubt


def _entry(message: Msg, expected: int) -> Entry:
    """A delivered message; _Doubt where one before it is missing."""
    metadata = message.metadata
    if metadata.sequence.consumer != expected:
        raise _Doubt
    gone = bool(message.headers and "KV-Operation" in message.headers)
    key = message.subject.removeprefix(kv_subject(DESIRED, ""))
    return Entry(key, None if gone else bytes(message.data), metadata.sequence.stream)
