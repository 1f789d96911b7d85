"""A pull consumer of a bucket's newest entries, batch by batch; and an entry, as JetStream tells of
it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from harmony_fleet.nats.connection import Connection, Inbox
from scores.keys import kv_stream, kv_subject

_BATCH: Final = 1000
_BATCH_BYTES: Final = 8 * 1024 * 1024
PULL_SECONDS: Final = 2.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's newest entry. `value` is None where the key is absent; `revision` 0 where it never
    was.

    `created` is JetStream's own timestamp.
    """

    bucket: str
    key: str
    value: bytes | None
    revision: int
    created: datetime | None


class Consumer:
    """One pull consumer: `pull` asks for a batch, `batch` gives it, `ended` is the status that
    closed it.

    `ended` is "" before the first batch and None after silence.
    """

    def __init__(
        self, connection: Connection, inbox: Inbox, bucket: str, info: dict[str, Any]
    ) -> None:
        self._nats = connection
        self._inbox = inbox
        self._bucket = bucket
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{kv_stream(bucket)}.{info['name']}"
        self.pending = int(info["num_pending"])
        self.ended: str | None = ""

    async def pull(self, *, no_wait: bool) -> None:
        """Ask for what is there, or wait for `PULL_SECONDS` for what comes."""
        until = {"no_wait": True} if no_wait else {"expires": int(PULL_SECONDS * 1e9)}
        request = {"batch": _BATCH, "max_bytes": _BATCH_BYTES} | until
        await self._nats.publish(
            self._next, json.dumps(request).encode(), reply=self._inbox.subject
        )

    async def batch(self, silence: float) -> AsyncIterator[tuple[Entry, int]]:
        """The batch's entries, each with the count of those behind it, until a status or seconds of
        `silence`.
        """
        prefix = kv_subject(self._bucket, "")
        for _ in range(_BATCH):
            message = await self._inbox.next(silence)
            if message is None:
                self.ended = None
                return
            headers = message.headers or {}
            if not message.reply.startswith("$JS.ACK."):
                self.ended = headers.get("Status", "")
                return
            revision, created, pending = _place(message.reply)
            absent = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
            value = None if absent else bytes(message.data)
            yield (
                Entry(self._bucket, message.subject.removeprefix(prefix), value, revision, created),
                pending,
            )
        self.ended = "408"


def _place(reply: str) -> tuple[int, datetime, int]:
    """Revision, time and the count of entries behind it, from a reply subject of either form.

    ``$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<tries>.<revision>.<n>.<nanoseconds>.<pending>…``
    """
    tokens = reply.split(".")
    fields = tokens[5:] if len(tokens) == 9 else tokens[7:]
    return int(fields[0]), _EPOCH + timedelta(microseconds=int(fields[2]) // 1000), int(fields[3])
