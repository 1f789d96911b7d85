"""JetStream's key-value buckets for the operator's side: CAS, complete lists, watches, the server's
clock.

It speaks JetStream's JSON API itself, because the client library's own bucket isn't enough. There
the first ``None`` of a watch can come before entries, a purge has no fence, and some keys aren't
checked. Reads go to the stream's leader, which also judges each CAS. This module knows nothing of
manifests or statuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final

from harmony_fleet.context import Context
from harmony_fleet.errors import Conflict, InvalidInput, Unreachable
from harmony_fleet.nats import buckets
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.connection import (
    CONNECT_SECONDS,
    REQUEST_SECONDS,
    Connection,
    NoResponders,
)
from harmony_fleet.nats.consumer import PULL_SECONDS, Consumer, Entry
from harmony_fleet.nats.objects import Objects
from scores.jetstream import (
    API,
    NO_MESSAGE,
    NO_STREAM,
    NO_SUCH_STREAM,
    WRONG_SEQUENCE,
    ApiError,
    answered,
    deleting,
    expecting,
    kv_stream,
    kv_subject,
    meant_for,
    noting,
    purging,
    stored,
)
from scores.keys import BUCKETS
from scores.names import parse_time

_HEADROOM: Final = 512
"""Bytes of a message that its headers and subject may need."""
_KEY: Final = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")
_MAX_FILTERS: Final = 64


class Store:
    """The buckets behind one connection. Use as ``async with Store(context) as store``."""

    def __init__(self, context: Context, seconds: float = CONNECT_SECONDS) -> None:
        self._nats = Connection(context, seconds)
        self._clock: tuple[datetime, float] | None = None

    async def __aenter__(self) -> Store:
        await self._nats.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._nats.__aexit__(kind, error, trace)

    @property
    def connected(self) -> bool:
        """Return whether the connection stands at the moment."""
        return self._nats.connected

    async def ensure_buckets(self, replicas: int = 1) -> None:
        """Make the buckets that are missing; one that exists stays as it is."""
        await buckets.ensure(self._nats, replicas)

    async def get(self, bucket: str, key: str) -> Entry:
        """The newest entry of `key`, from the stream's leader; absent where the key or the bucket
        is missing.
        """
        request = {"last_by_subj": kv_subject(bucket, _checked(key))}
        try:
            answer = await self._nats.api(f"STREAM.MSG.GET.{kv_stream(bucket)}", request)
        except ApiError as error:
            if error.code in (NO_MESSAGE, NO_STREAM):
                return Entry(bucket, key, None, 0, None)
            raise _cannot_read(bucket, error) from None
        found = stored(answer["message"])
        return Entry(bucket, key, found.value, found.sequence, found.created, found.note)

    async def put(self, bucket: str, key: str, value: bytes, revision: int, note: str = "") -> int:
        """Write where `revision` is still the newest (0: the key must not exist); the new revision.
        `note` stands beside the value.

        Raises Conflict where somebody else wrote.
        """
        try:
            return await self._write(bucket, key, value, expecting(revision) | noting(note))
        except Conflict:
            purged = await self.get(bucket, key) if not revision else None
            if purged is None or purged.value is not None:
                raise
        # A key that was purged doesn't exist, and the mark of its purge has a revision.
        return await self._write(bucket, key, value, expecting(purged.revision) | noting(note))

    async def create(self, bucket: str, key: str, value: bytes) -> int:
        """Write a key that was never there; its revision. Raises Conflict, also where it was purged."""
        return await self._write(bucket, key, value, expecting(0))

    async def purge(self, bucket: str, key: str, revision: int) -> int:
        """Remove the key with its history, where `revision` is still the newest."""
        return await self._write(bucket, key, b"", purging(revision))

    async def delete_any(self, bucket: str, key: str, revision: int) -> None:
        """Remove a key of any form, where `revision` is still its newest. Raises Conflict.

        A purge of ``pi-01.*`` would remove all keys of pi-01, and its compare-and-set would look
        at theirs. So this one holds the whole stream's last sequence, and rolls nothing up.
        """
        last = await self._last_sequence(bucket)
        there = (await self.entries(bucket)).get(key)
        if there is None or there.revision != revision:
            raise _overtaken(key)
        await self._send(bucket, key, b"", deleting(last))

    async def _last_sequence(self, bucket: str) -> int:
        try:
            info = await self._nats.api(f"STREAM.INFO.{kv_stream(bucket)}")
        except ApiError as error:
            raise _cannot_read(bucket, error) from None
        return int(info["state"]["last_seq"])

    def check_size(self, key: str, value: bytes) -> None:
        """Raise InvalidInput where the server doesn't take so much at once."""
        limit = self._nats.max_payload - _HEADROOM
        if len(value) > limit:
            raise InvalidInput(
                "TooLarge",
                f"cannot send {key}: {len(value)} bytes, and the NATS server takes {limit}",
                "move large content to an object store (File.object), or raise max_payload in the server",
            )

    async def check_buckets(self) -> None:
        """Raise Unreachable (NotAllowed) where these credentials may not make the buckets, as each
        apply does. Makes none: what is asked for names no stream.
        """
        await gather_bounded(self._check_bucket, BUCKETS)

    async def _check_bucket(self, bucket: str) -> None:
        with contextlib.suppress(ApiError):
            await self._nats.api(f"STREAM.CREATE.{kv_stream(bucket)}", {})

    async def check_write(self, bucket: str, key: str) -> None:
        """Raise Unreachable (NotAllowed) where these credentials may not write the key. Writes
        nothing: the stream refuses what is meant for another one.
        """
        subject = kv_subject(bucket, _checked(key))
        with contextlib.suppress(ApiError, NoResponders):  # without a bucket: an apply makes it
            answered(await self._nats.request(subject, b"", meant_for(NO_SUCH_STREAM)))

    async def _write(self, bucket: str, key: str, value: bytes, headers: dict[str, str]) -> int:
        self.check_size(key, value)
        return await self._send(bucket, _checked(key), value, headers)

    async def _send(self, bucket: str, key: str, value: bytes, headers: dict[str, str]) -> int:
        try:
            subject = kv_subject(bucket, key)
            return int(answered(await self._nats.request(subject, value, headers))["seq"])
        except NoResponders:
            raise Unreachable(
                "BucketMissing",
                f"cannot write {key}: the bucket {bucket} is missing",
                "apply makes the buckets",
            ) from None
        except ApiError as error:
            if error.code in WRONG_SEQUENCE:
                raise _overtaken(key) from None
            raise Unreachable(
                "WriteFailed", f"cannot write {key} of {bucket}: {error}", "see the server's log"
            ) from None

    async def entries(self, bucket: str, filters: Sequence[str] = (">",)) -> dict[str, Entry]:
        """Return every key that is there, complete and sorted; empty if the bucket is missing.

        It reads until the server counts 0 entries behind. Silence is never taken for the end.
        """
        found: dict[str, Entry] = {}
        async with self._consumer(bucket, filters) as consumer:
            if consumer is None or consumer.pending == 0:
                return found
            while consumer.ended != "404":
                await consumer.pull(no_wait=True)
                async for entry, pending in consumer.batch(REQUEST_SECONDS):
                    found[entry.key] = entry
                    if pending == 0:
                        return _present(found)
                if consumer.ended is None:
                    raise _cannot_read(bucket, "no answer in time")
        return _present(found)

    async def history(self, bucket: str, key: str) -> list[Entry]:
        """Every entry of a key that the bucket still holds, the oldest first."""
        found: list[Entry] = []
        async with self._consumer(bucket, [_checked(key)], "all") as consumer:
            if consumer is None or consumer.pending == 0:
                return found
            while consumer.ended != "404":
                await consumer.pull(no_wait=True)
                async for entry, pending in consumer.batch(REQUEST_SECONDS):
                    found.append(entry)
                    if pending == 0:
                        return found
                if consumer.ended is None:
                    raise _cannot_read(bucket, "no answer in time")
        return found

    async def watch(self, bucket: str, keys: Sequence[str] | None) -> AsyncGenerator[Entry, None]:
        """The newest entry of each key (None: of all; ``pi-01.*`` for several), then each change,
        without end, through lost connections and buckets.

        After a gap the newest is looked at again; one revision is given once.
        """
        filters = [">"] if keys is None or len(keys) > _MAX_FILTERS else list(keys)
        wanted = None if keys is None or len(keys) <= _MAX_FILTERS else frozenset(keys)
        seen: dict[str, tuple[int, datetime | None]] = {}
        while True:
            with contextlib.suppress(Unreachable):
                async with self._consumer(bucket, filters) as consumer:
                    while consumer is not None and consumer.ended in ("", "408", "409"):
                        await consumer.pull(no_wait=False)
                        async for entry, _pending in consumer.batch(PULL_SECONDS + 1):
                            mark = (entry.revision, entry.created)
                            if (wanted is None or entry.key in wanted) and seen.get(
                                entry.key
                            ) != mark:
                                seen[entry.key] = mark
                                yield entry
            await asyncio.sleep(0.25)

    @contextlib.asynccontextmanager
    async def _consumer(
        self, bucket: str, filters: Sequence[str], policy: str = "last_per_subject"
    ) -> AsyncIterator[Consumer | None]:
        """A pull consumer of the newest entries; None where the bucket is missing. Removed at the
        end.
        """
        stream = kv_stream(bucket)
        config = {
            "deliver_policy": policy,
            "ack_policy": "none",
            "filter_subjects": [kv_subject(bucket, name) for name in filters],
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 30_000_000_000,
        }
        try:
            info = await self._nats.api(
                f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}
            )
        except ApiError as error:
            if error.code != NO_STREAM:
                raise _cannot_read(bucket, error) from None
            yield None
            return
        inbox = await self._nats.inbox()
        try:
            yield Consumer(self._nats, inbox, bucket, info)
        finally:
            await inbox.close()
            with contextlib.suppress(Unreachable):
                await self._nats.publish(f"{API}.CONSUMER.DELETE.{stream}.{info['name']}", b"")

    async def now(self) -> datetime:
        """The server's time, asked once and then carried on by this process's monotonic clock."""
        if self._clock is None:
            self._clock = (parse_time(await self._server_time()), time.monotonic())
        then, at = self._clock
        return then + timedelta(seconds=time.monotonic() - at)

    async def _server_time(self) -> str:
        for bucket in BUCKETS:
            with contextlib.suppress(ApiError):
                return str((await self._nats.api(f"STREAM.INFO.{kv_stream(bucket)}"))["ts"])
        raise InvalidInput(
            "NoBuckets",
            "cannot tell the server's time: there are no buckets yet",
            "apply makes them",
        )

    def objects(self, bucket: str) -> Objects:
        """The object store `bucket`, whether it is made or not."""
        return Objects(self._nats, bucket)

    async def ask(self, subject: str, payload: bytes, seconds: float) -> bytes | None:
        """Send a request to a device. None if nobody listens or answers in time."""
        try:
            return await self._nats.request(subject, payload, seconds=seconds)
        except NoResponders:
            return None
        except Unreachable:
            if not self.connected:
                raise
            return None


def _overtaken(key: str) -> Conflict:
    return Conflict(
        "Conflict",
        f"cannot write {key}: somebody else wrote it meanwhile",
        "look at it with get, then try again",
    )


def _cannot_read(bucket: str, why: object) -> Unreachable:
    return Unreachable(
        "ReadFailed", f"cannot read the bucket {bucket}: {why}", "try again; see the server's log"
    )


def _present(found: dict[str, Entry]) -> dict[str, Entry]:
    return {key: entry for key, entry in sorted(found.items()) if entry.value is not None}


def _checked(key: str) -> str:
    """The client library lets ``a..b`` through and fails late."""
    if not _KEY.fullmatch(key):
        raise InvalidInput(
            "InvalidKey", "cannot use this as a key", "use the names of devices and deployments"
        )
    return key
