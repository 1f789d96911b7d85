"""The control plane for a device with credentials of its own, which may ask for no more than belongs to it.

It may make no consumer (a consumer delivers wherever its maker says, with the server's rights), name no key in a
request's body, and not look at a bucket as a whole. So a value is read by a subject that names it; the names are listed
by a consumer that the control plane made (`scores.keys.reader_config`); and a message on a key's subject means no more
than "look there". Where that consumer is missing, as in a bucket made anew by hand, what is known by name is still
read, and what is written from then on is heard of.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import anyio
from nats.aio.msg import Msg

from harmony_agent.adapters.nats_answers import ApiError, Silent, stored
from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.topology.control import BucketMissing, Entry, Unreachable
from scores.keys import DESIRED, DEVICE_API, DEVICE_TAG, device_reader, kv_stream, kv_subject

if TYPE_CHECKING:
    from harmony_agent.adapters.nats import NatsLink

log = logging.getLogger(__name__)

_NO_CONSUMER: Final = 10014
_NO_MESSAGE: Final = 10037
_BATCH: Final = 500
_LIST_SECONDS: Final = 3.0
"""What another listing took, or an earlier one of ours, comes again after the reader's second; then it is given up."""
_PULL_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = (0.0, 0.1, 0.3)
"""A read may be answered by a server that is a little behind."""
_READS: Final = 16


def is_device(credentials: str) -> bool:
    """Whether a .creds file is a device's own. Only a hint for which way to ask; the server judges."""
    try:
        with open(credentials, encoding="ascii") as file:
            token = file.read().partition("-----BEGIN NATS USER JWT-----")[2].strip().partition("\n")[0]
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return DEVICE_TAG in claims["nats"]["tags"]
    except (OSError, ValueError, LookupError, TypeError):
        return False


class Gate:
    """What the device may read, over `link`, and whether a bucket is still the one that it was."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._seen: dict[str, dict[str, int]] = {}
        self._turns: dict[str, int] = {}

    # -- values

    async def get(self, bucket: str, key: str) -> Entry | None:
        """The newest value, by the subject that names it. Raises Unreachable, BucketMissing."""
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
        """The last entry that was written to any of `keys`."""
        return await self._direct(bucket, keys)

    async def _direct(self, bucket: str, key: str) -> Entry | None:
        try:
            message = await self._link.ask(f"{DEVICE_API}.DIRECT.GET.{kv_stream(bucket)}.{kv_subject(bucket, key)}")
        except Silent:
            await self.exists(bucket)
            raise
        headers = {str(name): value for name, value in (message.headers or {}).items()}
        if "Nats-Sequence" not in headers:
            if headers.get("Status") == "404":
                return None
            raise Unreachable(f"NATS refused to read {bucket}")
        name = headers["Nats-Subject"].removeprefix(kv_subject(bucket, ""))
        data = None if "KV-Operation" in headers else bytes(message.data)
        return Entry(name, data, int(headers["Nats-Sequence"]))

    async def exists(self, bucket: str) -> None:
        """Raises BucketMissing, Unreachable."""
        try:
            await self._link.api(f"CONSUMER.INFO.{kv_stream(bucket)}.{device_reader(self._link.device)}", None)
        except ApiError as error:
            if error.code != _NO_CONSUMER:
                raise Unreachable(f"NATS refused to look at {bucket}: {error}") from error

    # -- another bucket of the same name

    def written(self, bucket: str, key: str, revision: int) -> None:
        """A write was acknowledged. Revisions of one bucket only grow."""
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
        """Another answer where what stood in the bucket stands there no more."""
        await self.exists(bucket)
        seen = self._seen.get(bucket)
        if seen:
            await self.get(bucket, min(seen, key=lambda key: seen[key]))
        return str(self._turns.get(bucket, 0))

    # -- objects

    async def fetch(self, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Stream an object, chunk by chunk. Raises Transient; Terminal where it is larger than `limit`."""
        try:
            meta = await self._object(bucket, {"last_by_subj": f"$O.{bucket}.M.{_encoded(name)}"})
            info = json.loads(meta.data or b"{}") if meta else {}
            if not info or info.get("deleted"):
                raise Transient(
                    "ObjectMissing", f"object {name} of {bucket} isn't there: put it there", delay=10, phase="Blocked"
                )
            left, sequence = int(info.get("size") or 0), 1
            if left > limit:
                text = f"cannot use object {name} of {bucket}: it has {left} bytes, at most {limit}; name a smaller one"
                raise Terminal("ObjectTooLarge", text)
            while left > 0:
                data, sequence = await self._chunk(bucket, info["nuid"], sequence)
                left -= len(data)
                await write(data)
        except BucketMissing:
            raise Transient(
                "ObjectMissing", f"there is no object store {bucket}: make it", delay=10, phase="Blocked"
            ) from None
        except (Unreachable, ApiError) as error:
            if self._link.was_denied(f"OBJ_{bucket}"):
                raise Transient(
                    "ObjectDenied",
                    f"cannot read object {name}: this fleet's devices may not read {bucket}; "
                    f"harmony server objects {bucket}",
                    delay=30,
                    phase="Blocked",
                ) from None
            raise Transient("Unreachable", f"cannot read object {name} of {bucket}: {error}") from error

    async def _chunk(self, bucket: str, nuid: str, first: int) -> tuple[bytes, int]:
        """The first one from sequence `first` on, and the sequence behind it."""
        chunk = await self._object(bucket, {"seq": first, "next_by_subj": f"$O.{bucket}.C.{nuid}"})
        if chunk is None or not chunk.data:
            raise Unreachable("a part of it is missing: somebody writes it anew")
        return chunk.data, chunk.revision + 1

    async def _object(self, bucket: str, request: dict[str, Any]) -> Entry | None:
        try:
            answer = await self._link.api(f"STREAM.MSG.GET.OBJ_{bucket}", request)
        except ApiError as error:
            if error.code == _NO_MESSAGE:
                return None
            raise
        return stored("", answer["message"])


def _encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


class Reader:
    """The names of this device's deployments, and the newest entry of each."""

    def __init__(self, link: NatsLink, gate: Gate) -> None:
        self._link = link
        self._gate = gate
        self._name = device_reader(link.device)
        self._made = ""
        self._held = 0
        self._seen: dict[int, str] = {}
        self._without = False

    async def snapshot(self, known: Collection[str]) -> dict[str, Entry]:
        """Every key that is there, by the deployment's name. Raises Unreachable, BucketMissing."""
        info = await self._info()
        self._made = str(info["created"]) if info else ""
        names = set(known)
        if info:
            self._seen.clear()
            await self._list()
            names |= set(self._seen.values())
        else:
            names |= await self._newest()
        self._tell(without=not info)
        return {name: entry for name, entry in (await self.read(names)).items() if entry is not None}

    async def read(self, names: Collection[str]) -> dict[str, Entry | None]:
        """The newest entry of each; None where there is none."""
        found: dict[str, Entry | None] = {}
        bound = anyio.CapacityLimiter(_READS)

        async def one(name: str) -> None:
            async with bound:
                found[name] = await self._gate.get(DESIRED, f"{self._link.device}.{name}")

        for error in await asyncio.gather(*map(one, sorted(names)), return_exceptions=True):
            if error is not None:
                raise error
        return found

    async def look(self, have: Collection[str]) -> set[str] | None:
        """The names that may have changed; None where all has to be read anew. Raises Unreachable, BucketMissing."""
        info = await self._info()
        if (str(info["created"]) if info else "") != self._made:
            return None
        if info is None:
            return set(have) | await self._newest()
        purged = int(info["num_ack_pending"]) < self._held
        found = set(have) if purged else set[str]()
        if int(info["num_pending"]) or purged:
            before = set(self._seen)
            await self._list()
            found |= {name for sequence, name in self._seen.items() if sequence not in before}
        return found

    async def _info(self) -> dict[str, Any] | None:
        try:
            return await self._link.api(f"CONSUMER.INFO.{kv_stream(DESIRED)}.{self._name}", None)
        except ApiError as error:
            if error.code == _NO_CONSUMER:
                return None
            raise Unreachable(f"NATS refused to tell of {self._name}: {error}") from error

    def _tell(self, *, without: bool) -> None:
        if without and not self._without:
            log.warning(
                "the control plane's consumer %s is missing: only deployments that are known here, or written from now "
                "on, are heard of; any harmony apply to this device makes it again",
                self._name,
                extra={"reason": "ReaderMissing"},
            )
        self._without = without

    async def _newest(self) -> set[str]:
        """The name that was written last, by the one question that needs no name."""
        entry = await self._gate.newest(DESIRED, f"{self._link.device}.*")
        return {entry.key.partition(".")[2]} if entry else set()

    async def _list(self) -> None:
        """Pull until as many were seen as the reader has."""
        until = time.monotonic() + _LIST_SECONDS
        inbox = self._link.inbox()
        queue: asyncio.Queue[Msg] = asyncio.Queue()
        subscription = await self._link.subscribe(inbox, queue.put)
        try:
            while True:
                await self._pull(inbox, queue)
                info = await self._info() or {}
                self._held = int(info.get("num_ack_pending", 0))
                if not int(info.get("num_pending", 0)) and self._held <= len(self._seen):
                    return
                if time.monotonic() > until:
                    log.debug("%s lists %d of %d", self._name, len(self._seen), self._held)
                    return
                await anyio.sleep(0.2)
        finally:
            with contextlib.suppress(Exception):  # the connection may be gone, and the subscription with it
                await subscription.unsubscribe()

    async def _pull(self, inbox: str, queue: asyncio.Queue[Msg]) -> None:
        subject = f"{DEVICE_API}.CONSUMER.MSG.NEXT.{kv_stream(DESIRED)}.{self._name}"
        await self._link.publish(subject, json.dumps({"batch": _BATCH, "no_wait": True}).encode(), inbox)
        with anyio.move_on_after(_PULL_SECONDS) as patience:
            for _ in range(_BATCH):
                message = await queue.get()
                patience.deadline = anyio.current_time() + _PULL_SECONDS
                if not message.reply.startswith("$JS.ACK."):
                    return
                name = message.subject.removeprefix(kv_subject(DESIRED, f"{self._link.device}."))
                self._seen[message.metadata.sequence.stream] = name
