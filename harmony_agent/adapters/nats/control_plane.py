"""Desired state from JetStream. News make it fast, and a look each `poll` makes it sure.

A device listens to two subjects that cost the server nothing at rest; it makes no consumer. On the
bucket's subject it hears of a write before that is stored, or though it is refused. In
`desired-index` the stream itself tells what it stored. Both are only a reason to look.

A little more often than `poll` says, and after each new connection, the device reads the newest of
all its keys. After any difference it reads every key by its name, and gives a new, complete
Snapshot. After a new connection without a difference it reads every key too, some seconds later: a
server that comes back meets all its devices at once. A read that fails is tried again soon, before
the next `poll`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from typing import Any, Final

import anyio
from nats.aio.msg import Msg

from harmony_agent.adapters.nats.api import Denied
from harmony_agent.adapters.nats.link import NatsLink
from harmony_agent.topology.control_plane import (
    BucketMissing,
    Entry,
    Event,
    Lost,
    Snapshot,
    Unreachable,
    Update,
)
from scores.jetstream import ApiError, is_stored, kv_subject
from scores.keys import DESIRED, news_subject

log = logging.getLogger(__name__)

_PART: Final = 0.75
"""Part of `poll` between two looks: a look over a dead link must end within poll + 1 s."""
_AGAIN_SECONDS: Final = (0.005, 0.02, 0.1, 0.5)
"""Waits before further looks at a key: its write may have been heard before it was stored."""
_READS: Final = 16
_EACH: Final = 4
"""Each look of so many reads one more key: a purged key leaves no trace in the newest."""
_RETRY_SECONDS: Final = 0.5
"""Wait after a read that failed. Each next one in a row is twice as long, up to `poll`."""
SPREAD_SECONDS: Final = 30.0
"""Time within which every key is read after a new connection without a difference."""


class _Doubt(Exception):
    """The known keys may not be all."""


class _Heard:
    """News since the last look: a name with the count of looks at it, or None for the newest."""

    def __init__(self, device: str) -> None:
        self._prefix = kv_subject(DESIRED, f"{device}.")
        self.queue: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
        self.stale = False
        self.whole = False
        """Every key must be read and compared with the known ones."""
        self.told = False
        """The stream tells what it stored."""

    async def on_write(self, message: Msg) -> None:
        """Note that somebody writes, unless the stream will tell when it is stored."""
        if not self.told:
            self.queue.put_nowait((message.subject.removeprefix(self._prefix), 0))

    async def on_news(self, message: Msg) -> None:
        """Note what the stream has stored. No second look is needed."""
        if is_stored(message.headers):
            self.told = True
            self.queue.put_nowait((message.subject.rpartition(".")[2], len(_AGAIN_SECONDS)))

    def read_whole(self) -> None:
        """Read every key, now."""
        self.whole = True
        self.queue.put_nowait(None)

    def again(self, name: str, times: int) -> None:
        """Look at `name` once more, a little later, up to a count."""
        if times < len(_AGAIN_SECONDS):
            asyncio.get_running_loop().call_later(
                _AGAIN_SECONDS[times], self.queue.put_nowait, (name, times + 1)
            )


class NatsControl(NatsLink):
    """`topology.control_plane.ControlPlane` and `topology.ObjectStore`, whole."""

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
        self._heard = _Heard(self.device)
        self._names: set[str] = set()
        self._known = known
        self._looks = 0
        self._last: Entry | None = None
        self._have: dict[str, Entry] | None = None
        """The known keys, by the deployment's name. None if they are in doubt."""
        self.on_connect(self._follow_anew)

    def refresh(self) -> None:
        """Read all of desired state anew, now."""
        self._have = None
        self._follow_anew()

    def _follow_anew(self) -> None:
        """Listen on the present connection, and look."""
        self._heard.stale = True
        self._heard.queue.put_nowait(None)

    async def desired(self) -> AsyncIterator[Event]:
        """Snapshots and updates, as `ControlPlane.desired` says."""
        failed = 0
        while True:
            try:
                async with contextlib.aclosing(self._follow()) as events:
                    async for event in events:
                        failed = 0
                        yield event
            except _Doubt:
                continue
            except Denied as error:
                yield Lost("Denied", str(error))
            except (Unreachable, ApiError) as error:
                yield Lost("Unreachable", str(error))
            except BucketMissing as error:
                yield Lost("BucketMissing", str(error))
            failed += 1
            await self._next(self._pause(failed))

    async def look(self) -> None:
        """Return whether desired state can be read.

        Raises Unreachable (of it Denied), BucketMissing.
        """
        await self.access.newest(DESIRED, f"{self.device}.*")

    def _pause(self, failed: int) -> float:
        """Seconds until the next try, after `failed` in a row. A new connection ends the wait."""
        if not self.connected():
            return self._poll
        pause = _RETRY_SECONDS * 2.0 ** min(failed - 1, 16) * random.uniform(0.5, 1.5)  # noqa: S311  # jitter, no secret
        return min(pause, self._poll)

    async def _next(self, seconds: float) -> tuple[str, int] | None:
        """Return the next news. None when it is time to look at the newest."""
        with anyio.move_on_after(seconds):
            return await self._heard.queue.get()
        return None

    async def _follow(self) -> AsyncGenerator[Event, None]:
        """A snapshot, then updates, until there is a doubt or an error."""
        heard = self._heard = _Heard(self.device)
        writes, news = kv_subject(DESIRED, f"{self.device}.*"), news_subject(self.device)
        async with contextlib.AsyncExitStack() as listening:
            for subject, take in ((writes, heard.on_write), (news, heard.on_news)):
                subscription = await self.subscribe(subject, take)
                listening.push_async_callback(_quietly, subscription)
            have = await self._known_or_read(heard)
            yield Snapshot(tuple(have.values()))
            self._tell_denied(writes)
            while True:
                item = await self._next(self._poll)
                if heard.stale:
                    raise _Doubt
                if heard.whole:
                    await self._compare(heard, have)
                for entry in await self._found(item, have):
                    self._names.add(self._name(entry))
                    have[self._name(entry)] = entry
                    yield Update(entry)

    def _tell_denied(self, subject: str) -> None:
        if self.was_denied(f'subscription to "{subject}"'):
            log.warning(
                "the server lets nobody listen to %s with these credentials: changes are found by looking, each %g s",
                subject,
                self._poll,
                extra={"reason": "ListeningDenied"},
            )

    async def _found(self, item: tuple[str, int] | None, have: Mapping[str, Entry]) -> list[Entry]:
        """Return the entries that differ from the known ones."""
        names = {item[0]} if item else await self._looked(have)
        found: list[Entry] = []
        for name, entry in (await self._read(names)).items():
            if entry is None and name in have and have[name].data is not None:
                found.append(Entry(have[name].key, None, 0))
            elif entry is not None and entry != have.get(name):
                found.append(entry)
            elif item:
                self._heard.again(*item)
        return found

    async def _looked(self, have: Mapping[str, Entry]) -> set[str]:
        """Compare the newest with the known one. Return now and then a name to read.

        Raises _Doubt.
        """
        if await self._newest() != _newest_of(have):
            raise self._doubt()
        self._looks += 1
        turn, rest = divmod(self._looks, _EACH)
        return {sorted(have)[turn % len(have)]} if have and not rest else set()

    def _doubt(self) -> _Doubt:
        self._have = None
        return _Doubt()

    async def _known_or_read(self, heard: _Heard) -> dict[str, Entry]:
        """Return every key: the known ones if the newest is the same, else read ones."""
        newest = await self._newest()
        if self._have is None or newest != _newest_of(self._have):
            self._have = None
            self._have = await self._read_all(newest)
        else:
            later = random.uniform(0, SPREAD_SECONDS)  # noqa: S311  # jitter, no secret
            asyncio.get_running_loop().call_later(later, heard.read_whole)
        return self._have

    async def _compare(self, heard: _Heard, have: Mapping[str, Entry]) -> None:
        """Read every key once. Raises _Doubt if they differ from the known ones."""
        heard.whole = False
        if _there(await self._read_all(await self._newest())) != _there(have):
            raise self._doubt()

    async def _read_all(self, newest: Entry | None) -> dict[str, Entry]:
        """Read every key, by the deployment's name."""
        names = {*self._known(), *self._names, *await self.access.names(), *self._names_of(newest)}
        have = {
            name: entry for name, entry in (await self._read(names)).items() if entry is not None
        }
        self._names |= set(have)
        return have

    async def _newest(self) -> Entry | None:
        self._last = await self.access.newest(DESIRED, f"{self.device}.*")
        return self._last

    def _name(self, entry: Entry) -> str:
        return entry.key.removeprefix(f"{self.device}.")

    def _names_of(self, entry: Entry | None) -> set[str]:
        return {self._name(entry)} if entry else set()

    async def _read(self, names: Collection[str]) -> dict[str, Entry | None]:
        """Read the newest entry of each key. None if there is none."""
        found: dict[str, Entry | None] = {}
        bound = anyio.CapacityLimiter(_READS)

        async def one(name: str) -> None:
            key = f"{self.device}.{name}"
            if "*" in name or ">" in name:  # it can't be asked for; the intake refuses it
                found[name] = (
                    self._last if self._last and self._last.key == key else Entry(key, b"", 0)
                )
                return
            async with bound:
                found[name] = await self.access.get(DESIRED, key)

        for error in await asyncio.gather(*map(one, sorted(names)), return_exceptions=True):
            if error is not None:
                raise error
        return found


def _there(have: Mapping[str, Entry]) -> dict[str, Entry]:
    return {name: entry for name, entry in have.items() if entry.revision}


def _newest_of(have: Mapping[str, Entry]) -> Entry | None:
    return max(_there(have).values(), key=lambda entry: entry.revision, default=None)


async def _quietly(subscription: Any) -> None:
    with contextlib.suppress(Exception):  # the connection may be gone, and the subscription with it
        await subscription.unsubscribe()
