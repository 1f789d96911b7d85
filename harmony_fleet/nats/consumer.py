"""A pull consumer of a bucket's newest entries, batch by batch; and an entry, as JetStream tells of
it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from harmony_fleet.nats.connection import Connection, Inbox
from scores.jetstream import API, delivered, kv_stream, kv_subject

_BATCH: Final = 1000
_BATCH_BYTES: Final = 8 * 1024 * 1024
PULL_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's newest entry. `value` is None where the key is absent; `revision` 0 where it never
    was.

    `created` is JetStream's own timestamp. `note` is what a roster noted when it wrote the value.
    """

    bucket: str
    key: str
    value: bytes | None
    revision: int
    created: datetime | None
    note: str = ""


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
        self._next = f"{API}.CONSUMER.MSG.NEXT.{kv_stream(bucket)}.{info['name']}"
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
            found = delivered(message.subject, message.reply, headers, message.data)
            if found is None:
                self.ended = headers.get("Status", "")
                return
            one, pending = found
            key = one.subject.removeprefix(prefix)
            made = Entry(self._bucket, key, one.value, one.sequence, one.created, one.note)
            yield made, pending
        self.ended = "408"
