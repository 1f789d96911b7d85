"""From what ``desired-state`` shows to what is enforced: decode, judge, persist, then queue what changed.

Whatever isn't an accepted manifest leaves the last accepted one enforced: a lost, emptied or re-created bucket says
nothing about what should be taken away.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from harmony_agent.core.admission import Accept, Device, Keep, Kind, Last, judge, rejected
from harmony_agent.core.reconcile import Key
from harmony_agent.engine.book import Book, generations_of
from harmony_agent.topology import Clock
from harmony_agent.topology.control import (
    BucketMissing,
    ControlPlane,
    Entry,
    Event,
    Lost,
    Snapshot,
    Stored,
    Unreachable,
    Update,
)
from scores.canonical import digest
from scores.keys import ACTUAL, DeploymentKey, parse_deployment_key
from scores.manifest import InvalidManifest, WireManifest, decode
from scores.names import MAX_GENERATION

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 2.0
_MISSING: Final = Keep(
    "Held",
    "DesiredStateMissing",
    "the key is gone from desired-state: the last accepted manifest stays enforced; write it again, or delete the "
    "deployment with removed: true",
)


class Intake:
    """Follows this device's desired state."""

    def __init__(
        self,
        *,
        device: str,
        book: Book,
        control: ControlPlane,
        clock: Clock,
        kinds: Mapping[str, Kind],
        queue: Callable[[Collection[Key]], None],
    ) -> None:
        """`queue` takes the keys that a newly accepted manifest changes."""
        self._device = device
        self._book = book
        self._control = control
        self._clock = clock
        self._kinds = kinds
        self._queue = queue
        self._fresh = not book.ledger.manifests()
        self.revision = 0
        """the highest revision of desired-state that was seen"""
        self.lost: Lost | None = Lost("Unreachable", "not connected yet")
        """why desired state can't be read now; None while it can"""
        self.on_snapshot: Callable[[], None] = lambda: None

    def restore(self) -> None:
        """Enforce what was accepted before this start; NATS isn't needed."""
        for stored in self._book.ledger.manifests():
            try:
                manifest = decode(stored.data, device=self._device, deployment=stored.deployment)
            except InvalidManifest as error:
                message = f"the accepted manifest can't be read ({error.code}): nothing of it is touched"
                log.error("%s: %s", stored.deployment, message)  # noqa: TRY400  # what is wrong stands in the code
                self._book.keep(stored.deployment, Keep("Held", "ManifestUnreadable", message))
                continue
            self._queue(self._book.enforce(stored, manifest))

    async def run(self) -> None:
        """Follow until cancelled."""
        async for event in self._control.desired():
            await self.handle(event)

    async def handle(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, Lost):
            if self.lost is None or self.lost.reason != event.reason:
                log.warning("cannot read desired state (%s): working from what was accepted", event.message)
            self.lost = event
            return
        self.lost = None
        if isinstance(event, Update):
            await self._entry(event.entry)
            return
        await self._snapshot(event)

    async def _snapshot(self, event: Snapshot) -> None:
        self.on_snapshot()
        present = set()
        for entry in event.entries:
            await self._entry(entry)
            present.add(entry.key)
        for name in list(self._book.deployments):
            if str(DeploymentKey(self._device, name)) not in present:
                self._missing(name)

    async def _entry(self, entry: Entry) -> None:
        self.revision = max(self.revision, entry.revision)
        key = parse_deployment_key(entry.key)
        if key is None or key.device != self._device:
            return
        if entry.data is None:
            self._missing(key.deployment)
        else:
            await self._judge(key.deployment, entry.data)

    def _missing(self, name: str) -> None:
        """The key isn't there. What was never accepted is forgotten; what was removed stays removed."""
        deployment = self._book.deployments.get(name)
        if deployment is None:
            return
        if deployment.stored is None:
            self._book.keep(name, None)
        elif not deployment.removed:
            self._book.keep(name, _MISSING)
        else:
            self._book.keep(name, None)

    async def _judge(self, name: str, data: bytes) -> None:
        try:
            manifest = decode(data, device=self._device, deployment=name)
        except InvalidManifest as error:
            self._keep(name, rejected(error, _generation(data)))
            return
        stored = self._book.deployment(name).stored
        last = Last(stored.lineage, stored.generation, stored.digest) if stored else await self._floor(name)
        found = digest(data)
        verdict = judge(last, manifest, found, self._view(name))
        if isinstance(verdict, Keep):
            self._keep(name, verdict)
        elif isinstance(verdict, Accept) or stored is None:
            await self._accept(name, manifest, data, found)
        else:
            self._book.keep(name, None)

    def _keep(self, name: str, kept: Keep) -> None:
        if self._book.deployment(name).kept != kept:
            log.warning(
                "%s: keeps what is enforced: %s/%s: %s",
                name,
                kept.phase,
                kept.reason,
                kept.message,
                extra={"deployment": name, "reason": kept.reason, "generation": kept.generation},
            )
        self._book.keep(name, kept)

    async def _accept(self, name: str, manifest: WireManifest, data: bytes, found: str) -> None:
        """Persist first, then enforce."""
        generations = generations_of(manifest.scores, manifest.generation, self._book.desired)
        stored = Stored(name, manifest.lineage, manifest.generation, found, data, generations)
        await self._book.flush()
        await self._book.ledger.accept(stored)
        log.info(
            "%s: accepted generation %d",
            name,
            stored.generation,
            extra={"deployment": name, "generation": stored.generation},
        )
        self._queue(self._book.enforce(stored, manifest))

    async def _floor(self, name: str) -> Last | None:
        """After a loss of this device's own state, what ``actual-state`` shows may not be gone back behind."""
        while self._fresh:
            try:
                entry = await self._control.get(ACTUAL, str(DeploymentKey(self._device, name)))
            except BucketMissing:
                return None
            except Unreachable:
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            return _last(entry.data) if entry is not None and entry.data is not None else None
        return None

    def _view(self, name: str) -> Device:
        taken: dict[str, str] = {}
        for key, record in self._book.records.items():
            if record.deployment != name:
                taken |= dict.fromkeys((str(key), *record.claims), record.deployment)
        for key, desired in self._book.desired.items():
            if desired.deployment != name:
                claims = self._kinds[key.kind].claims(desired.spec) if key.kind in self._kinds else ()
                taken |= dict.fromkeys((str(key), *claims), desired.deployment)
        return Device(self._kinds, self._book.records, taken)


def _last(data: bytes) -> Last | None:
    """Lineage, generation and digest out of a status that an earlier life of this device wrote."""
    try:
        status = json.loads(data)
        return Last(str(status["lineage"]), int(status["generation"]), str(status["digest"]))
    except (ValueError, KeyError, TypeError):
        return None


def _generation(data: bytes) -> int | None:
    """The generation that bytes which are no manifest claim, if they claim one."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    generation = value.get("generation") if isinstance(value, dict) else None
    if not isinstance(generation, int) or isinstance(generation, bool):
        return None
    return generation if 1 <= generation <= MAX_GENERATION else None
