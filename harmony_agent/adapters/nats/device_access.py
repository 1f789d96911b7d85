"""Reads with a device's own credentials. The server allows them only subjects that name the device.

Such a device may make no consumer: one delivers where its maker says, with the server's rights. It
may name no key in a request's body, and may not list a bucket. It may only ask for the newest below
a subject. So it reads a value by a subject that names it. It finds the names in the index that the
stream of ``desired-state`` writes: there a subject can leave out the names that were found already.
A value that isn't in the index, as in a bucket made by other hands, is heard of when it is written,
and found while it is the newest.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Final

import anyio

from harmony_agent.adapters.nats.api import Api, Denied
from harmony_agent.adapters.nats.connection import NatsConnection, NoResponders
from harmony_agent.topology.control_plane import BucketMissing, Entry, Unreachable
from scores.jetstream import (
    NO_CONSUMER,
    ApiError,
    direct,
    kv_stream,
    kv_subject,
)
from scores.keys import (
    ACTUAL,
    DESIRED,
    DEVICE_API,
    DEVICE_TAG,
    INDEX,
    INDEX_LEVELS,
    device_reader,
    name_hash,
    news_branch,
    news_subject,
)

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = (0.0, 0.1, 0.3)
"""Waits between reads: a server that is a little behind may have answered."""
_READS: Final = 16


def is_device(credentials: str) -> bool:
    """Return whether a .creds file is a device's own.

    Only a hint for which way to ask; the server judges.
    """
    try:
        with open(credentials, encoding="ascii") as file:
            token = (
                file.read().partition("-----BEGIN NATS USER JWT-----")[2].strip().partition("\n")[0]
            )
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return DEVICE_TAG in claims["nats"]["tags"]
    except (OSError, ValueError, LookupError, TypeError):
        return False


class DeviceAccess:
    """`link.Access` with a device's rights. Notices that a bucket was replaced by its revisions."""

    def __init__(self, connection: NatsConnection, device: str) -> None:
        self._connection = connection
        self._device = device
        self.api = Api(connection, DEVICE_API)
        self._last = self._missing = ""
        self._seen: dict[str, dict[str, int]] = {}
        self._turns: dict[str, int] = {}

    # -- values

    async def get(self, bucket: str, key: str) -> Entry | None:
        """Read the newest value of a key. Raises Unreachable, BucketMissing."""
        known = self._seen.get(bucket, {}).get(key, 0)
        entry: Entry | None = None
        for pause in _AGAIN_SECONDS:
            await anyio.sleep(pause)
            entry = await self._direct(bucket, key)
            if (entry.revision if entry else 0) >= known:
                break
        self._note(bucket, key, entry.revision if entry else 0)
        return entry

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        """Read the last entry that was written to any of `keys`."""
        entry = await self._direct(bucket, keys)
        if entry is not None and bucket == DESIRED:
            self._last = entry.key.rpartition(".")[2]
        return entry

    async def names(self) -> set[str]:
        """Find all names in the index: ask for the newest below each branch without a known one."""
        found = set[str]()
        bound = anyio.CapacityLimiter(_READS)

        async def below(subject: str, level: int) -> None:
            async with bound:
                entry = await self._read(kv_stream(INDEX), subject)
            if entry is None:
                return
            name = entry.key.rpartition(".")[2]
            found.add(name)
            here, depths = name_hash(name), range(level, INDEX_LEVELS + 1)
            others = ((depth, here % 2**depth ^ 2 ** (depth - 1)) for depth in depths)
            await _all(
                below(news_branch(self._device, depth, rest), depth + 1) for depth, rest in others
            )

        try:
            await below(news_subject(self._device), 1)
        except (BucketMissing, Denied):  # `harmony server push` makes it and opens it to devices
            found.clear()
        self._tell(self._last if self._last not in {*found, ""} else "")
        return found

    async def told(self) -> set[str]:
        """Find the names in the index: it keeps those whose key was purged since without a trace.
        Besides the one that was told last.
        """
        newest = await self.newest(ACTUAL, f"{self._device}.*")
        found = await self.names()
        return found if newest is None else found | {newest.key.rpartition(".")[2]}

    def _tell(self, missing: str) -> None:
        if missing and missing != self._missing:
            log.warning(
                "%s isn't in the index of desired-state: what else was written while this device was away isn't heard "
                "of; harmony server push makes the index whole",
                missing,
                extra={"reason": "IndexIncomplete"},
            )
        self._missing = missing

    async def _direct(self, bucket: str, key: str) -> Entry | None:
        entry = await self._read(kv_stream(bucket), kv_subject(bucket, key))
        return replace(entry, key=entry.key.removeprefix(kv_subject(bucket, ""))) if entry else None

    async def _read(self, stream: str, subject: str) -> Entry | None:
        """Read the newest below `subject`. Its key is the whole subject."""
        try:
            message = await self.api.ask(f"DIRECT.GET.{stream}.{subject}")
        except NoResponders:
            await self._exists(stream)
            raise
        try:
            found = direct(message.headers or {}, message.data)
        except ApiError:
            raise Unreachable(f"NATS refused to read {stream}") from None
        return Entry(found.subject, found.value, found.sequence) if found else None

    async def _exists(self, stream: str) -> None:
        """Raise BucketMissing or Unreachable if the stream can't be read.

        Asks for a consumer that doesn't exist: the refusal tells whether the stream does.
        """
        try:
            await self.api.call(f"CONSUMER.INFO.{stream}.{device_reader(self._device)}", None)
        except ApiError as error:
            if error.code != NO_CONSUMER:
                raise Unreachable(f"NATS refused to look at {stream}: {error}") from error

    # -- another bucket of the same name

    def written(self, bucket: str, key: str, revision: int) -> None:
        """Note an acknowledged write. Revisions of one bucket only grow."""
        if revision < max(self._seen.get(bucket, {}).values(), default=0):
            self._turn(bucket)
        self._note(bucket, key, revision)

    def _note(self, bucket: str, key: str, revision: int) -> None:
        seen = self._seen.setdefault(bucket, {})
        if revision < seen.get(key, 0):
            self._turn(bucket)
        if revision:
            seen[key] = revision

    def _turn(self, bucket: str) -> None:
        self._turns[bucket] = self._turns.get(bucket, 0) + 1
        self._seen[bucket].clear()

    async def birth(self, bucket: str) -> str:
        """Return another answer if the known entries are gone from the bucket."""
        await self._exists(kv_stream(bucket))
        seen = self._seen.get(bucket)
        if seen:
            await self.get(bucket, min(seen, key=lambda key: seen[key]))
        return str(self._turns.get(bucket, 0))


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it side by side. Raise the first error once all have ended."""
    for error in await asyncio.gather(*work, return_exceptions=True):
        if error is not None:
            raise error
