"""Devices that upgrade as the agent and the updater decide it, and the buckets between them and an
operator; all in memory, at a time that a test moves.

The agent's part is its own: the kind's reconciler, `core.decide`, the folds of statuses. The
updater's part is its table of transitions, with the bounds of `Updater.request`; which of the
possible events comes next is for the test to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from harmony_agent.core.admission import NotAccepted
from harmony_agent.core.errors import ResourceError, Transient
from harmony_agent.core.status import Enforced, Outcome, deployment_status, resource_status
from harmony_agent.kinds.system_upgrade import SystemUpgradeReconciler
from harmony_agent.topology.updater import Ask, Attempt, UpdaterRefused
from harmony_fleet.errors import Conflict, Unreachable
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.observe.state import Device as Told
from harmony_fleet.observe.state import to_desired
from harmony_updater.machine import TRANSITIONS, Event
from scores.canonical import digest
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO, heartbeat_key, info_key
from scores.manifest import WireManifest
from scores.names import format_time, parse_time
from scores.status import Heartbeat, ResourceStatus, UpdaterInfo
from tests.fakes.clock import FakeClock
from tests.fakes.drive import run as one_pass
from tests.fakes.store import FakeStore
from tests.fakes.updater import FakeUpdater
from tests.unit.fleet.build import device as told_device

NAME, KEY = "system", "SystemUpgrade/system"
START = datetime(2026, 11, 29, 18, tzinfo=UTC)


class Buckets:
    """As much of `Store` as runs need. `writes` are left until the writer is cut off; None: any."""

    def __init__(self) -> None:
        self.time = START
        self.held: dict[tuple[str, str], Entry] = {}
        self.log: list[Entry] = []
        """all that was written, in order"""
        self.revision = 0
        self.writes: int | None = None
        self.on_put: Callable[[str, str, bytes], None] = lambda _bucket, _key, _value: None

    async def now(self) -> datetime:
        return self.time

    async def get(self, bucket: str, key: str) -> Entry:
        return self.held.get((bucket, key)) or Entry(bucket, key, None, 0, None)

    async def entries(self, bucket: str, filters: Sequence[str] = ("*",)) -> dict[str, Entry]:
        return {
            key: entry
            for (of, key), entry in sorted(self.held.items())
            if of == bucket and entry.value is not None and any(_fits(key, one) for one in filters)
        }

    async def history(self, bucket: str, key: str) -> list[Entry]:
        return [entry for entry in self.log if (entry.bucket, entry.key) == (bucket, key)]

    async def put(self, bucket: str, key: str, value: bytes, revision: int, note: str = "") -> int:
        return self._write(bucket, key, value, revision, note)

    async def create(self, bucket: str, key: str, value: bytes) -> int:
        if (bucket, key) in self.held:
            raise Conflict("Conflict", f"{key} was written", "")
        return self._write(bucket, key, value, 0)

    async def purge(self, bucket: str, key: str, revision: int) -> int:
        return self._write(bucket, key, None, revision)

    def _write(
        self, bucket: str, key: str, value: bytes | None, revision: int, note: str = ""
    ) -> int:
        if self.writes is not None:
            if self.writes == 0:
                raise Unreachable("Unreachable", "cut off", "")
            self.writes -= 1
        there = self.held.get((bucket, key))
        absent = there is None or there.value is None
        if revision != (there.revision if there is not None else 0) and (revision or not absent):
            raise Conflict("Conflict", f"{key} was written", "")
        return self.tell(bucket, key, value, note)

    def tell(self, bucket: str, key: str, value: bytes | None, note: str = "") -> int:
        """Write whatever is there."""
        self.revision += 1
        entry = Entry(bucket, key, value, self.revision, self.time, note)
        self.held[bucket, key] = entry
        self.log.append(entry)
        if value is not None:
            self.on_put(bucket, key, value)
        return self.revision


def _fits(key: str, pattern: str) -> bool:
    return pattern in ("*", ">") or (
        key.count(".") == pattern.count(".") and fnmatchcase(key, pattern)
    )


class TableUpdater(FakeUpdater):
    """The updater by its own table."""

    def __init__(self, device: str, buckets: Buckets) -> None:
        super().__init__(device)
        self._buckets = buckets
        self.boot = 1
        self.accepted: list[tuple[str, datetime]] = []
        """run and time of each attempt that was accepted"""
        self.begun: list[tuple[str, datetime]] = []
        """run and time of each for which apt was started"""

    @property
    def active(self) -> Attempt | None:
        """The attempt that hasn't ended."""
        return next((one for one in self.attempts.values() if not one.ended), None)

    async def request(self, ask: Ask) -> Attempt:
        if ask.attempt_id not in self.attempts:
            broken = [one for one in self.attempts.values() if one.detail.phase in REPAIR]
            if broken:
                raise UpdaterRefused("repair-required", "repair it first")
            self.busy = self.active is not None
            if not self.busy and self._buckets.time >= parse_time(ask.expires_at):
                raise UpdaterRefused("expired", "it expired")
            if not self.busy:
                self.accepted.append((ask.run_uid, self._buckets.time))
        return await super().request(ask)

    def events(self) -> list[Event]:
        """What can happen to the active attempt now."""
        if self.active is None:
            return []
        detail = self.active.detail
        ask = self.asks[detail.attemptId]
        found = list(TRANSITIONS[detail.phase])
        if detail.phase in ("preflight", "blocked") and self._buckets.time >= parse_time(
            ask.expires_at
        ):
            return ["refused"]
        if detail.phase == "rebooting":
            same = detail.bootIdBefore == f"boot-{self.boot}"
            return ["reboot-asked", "no-reboot"] if same else ["rebooted"]
        return found

    def happens(self, event: Event) -> None:
        """One step of the active attempt."""
        assert self.active is not None
        detail = self.active.detail
        more: dict[str, Any] = {"bootIdBefore": detail.bootIdBefore, "reason": ""}
        if event == "started":
            more["bootIdBefore"] = f"boot-{self.boot}"
            self.begun.append((detail.runUid, self._buckets.time))
        elif event == "reboot-asked":
            self.boot += 1
        elif event == "unchanged":
            more |= {"reason": "NothingToUpgrade", "result": {}}
        elif event in ("rebooted", "verified"):
            more["bootIdAfter"] = f"boot-{self.boot}"
        if event == "verified":
            more["result"] = {"upgraded": ["a"]}
        phase = TRANSITIONS[detail.phase][event]
        self.put(detail.attemptId, phase, **{key: one for key, one in more.items() if one})


REPAIR = frozenset({"repair-required"})


class Upgrading:
    """One device: its link, its agent and its updater."""

    def __init__(self, name: str, buckets: Buckets) -> None:
        self.name, self.linked = name, True
        self._buckets = buckets
        self.updater = TableUpdater(name, buckets)
        self.clock = FakeClock()
        self.store = FakeStore("SystemUpgrade")
        self.enforced: dict[str, WireManifest] = {}
        self._refused: dict[str, WireManifest] = {}
        self._shown: ResourceStatus | None = None
        self._owner = ""
        """the deployment that has the resource"""
        self.restart()
        told = told_device(
            kinds=("SystemUpgrade",),
            updater=UpdaterInfo(protocol=1, operations=["AptFullUpgradeV1"]),
        ).info
        assert told is not None
        buckets.tell(INFO, info_key(name), told.model_copy(update={"device": name}).canonical())

    def restart(self) -> None:
        """The agent starts; what only its memory held is gone."""
        self.kind = SystemUpgradeReconciler(self.updater, self.store, self.clock, self.name)  # type: ignore[arg-type]

    def as_told(self) -> Told:
        """As an operator sees it."""
        info = told_device(
            kinds=("SystemUpgrade",),
            updater=UpdaterInfo(protocol=1, operations=["AptFullUpgradeV1"]),
        ).info
        beat = self._buckets.held.get((HEARTBEAT, heartbeat_key(self.name)))
        return Told(self.name, info, beat.created if beat is not None else None)

    def passes(self, seconds: float) -> None:
        """Time passes on the device too; a heartbeat comes at its end."""
        self.clock._monotonic += seconds
        self.beat()

    def beat(self) -> None:
        """A heartbeat, if somebody can hear it."""
        if not self.linked:
            return
        beat = Heartbeat(
            device=self.name,
            seq=self._buckets.revision,
            desired_revision=0,
            oldest_unsettled_seconds=0,
            relist_age_seconds=0,
            clock_synchronized=True,
        )
        self._buckets.tell(HEARTBEAT, heartbeat_key(self.name), beat.canonical())

    async def turn(self) -> None:
        """The agent reads what is desired, makes one pass, and says how it is."""
        if self.linked:
            await self._read()
        if self._owner:
            await self._work()
        if self.linked:
            self._say()

    async def _read(self) -> None:
        found = await self._buckets.entries(DESIRED, [f"{self.name}.*"])
        for key, entry in found.items():
            manifest = to_desired(entry).manifest
            assert manifest is not None
            deployment = key.partition(".")[2]
            known = self.enforced.get(deployment)
            if known is not None and known.generation >= manifest.generation:
                continue
            if not manifest.removed and self._owner not in ("", deployment):
                self._refused[deployment] = manifest
                continue
            self._refused.pop(deployment, None)
            self._accept(deployment, manifest)

    def _accept(self, deployment: str, manifest: WireManifest) -> None:
        self.enforced[deployment] = manifest
        if not manifest.removed:
            self._owner = self.store.deployment = deployment
            self.store.set_desired(manifest.scores[0], generation=manifest.generation)
        elif self._owner == deployment:
            self.store.unset(NAME)

    async def _work(self) -> None:
        desired = self.store.desired(NAME)
        try:
            plan: Any = (await one_pass(self.kind, self.store, NAME)).plan
            outcome = Outcome(plan.phase, plan.reason, plan.message)
        except ResourceError as error:
            phase = error.phase if isinstance(error, Transient) else "Failed"
            outcome = Outcome(phase, error.reason, str(error))
        record = self.store.record(NAME)
        if desired is None and record is None:
            self._owner, self._shown = "", None
            return
        observed = await self.kind.observe(NAME)
        outcome = Outcome(
            "Removing" if desired is None else outcome.phase,
            outcome.reason,
            outcome.message,
            self.kind.detail(record, observed),
        )
        of = desired or record
        assert of is not None
        spec = desired.digest if desired is not None else of.spec_digest  # type: ignore[union-attr]
        self._shown = resource_status(
            self._shown, outcome, of.generation, spec, format_time(self._buckets.time)
        )

    def _say(self) -> None:
        for deployment in {*self.enforced, *self._refused}:
            manifest, refused = self.enforced.get(deployment), self._refused.get(deployment)
            mine = deployment == self._owner and self._shown is not None
            status = deployment_status(
                self.name,
                deployment,
                Enforced(
                    manifest.lineage,
                    manifest.generation,
                    digest(manifest.canonical()),
                    manifest.removed,
                )
                if manifest is not None
                else None,
                NotAccepted("Rejected", "OwnedByAnotherDeployment", "", (), refused.generation)
                if refused is not None
                else None,
                {KEY: self._shown} if mine and self._shown is not None else {},
            )
            key = f"{self.name}.{deployment}"
            there = self._buckets.held.get((ACTUAL, key))
            if there is None or there.value != status.canonical():
                self._buckets.tell(ACTUAL, key, status.canonical())


def minutes(count: float) -> timedelta:
    """So many minutes."""
    return timedelta(minutes=count)


def is_busy(device: Upgrading, run_uid: str) -> bool:
    """Return whether an attempt of the run is under way there."""
    active = device.updater.active
    return active is not None and active.detail.runUid == run_uid
