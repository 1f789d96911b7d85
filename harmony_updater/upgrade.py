"""What is done in each state of an upgrade. Each step may be cut anywhere and done again; a signal is how this ends.

apt's upgrade is spawned in one place, after `applying` is on disk; the reboot is asked for in one place, after it was
counted on disk. States change in `_enter` only.
"""

import json
import logging
import threading
import time
from typing import Any, NoReturn

from pydantic import Field

from harmony_updater import apt_output
from harmony_updater.host import Host
from harmony_updater.journal import FULL, Journal, Record, read
from harmony_updater.lock import MutationLock
from harmony_updater.machine import TERMINAL, TRANSITIONS, Event
from harmony_updater.preflight import Objection, Preflight, first
from harmony_updater.protocol import Device, Refused, Status, UpgradeRequest, Wire, timestamp


class Settings(Wire):
    """/etc/harmony/updater.toml: which device this is, and bounds."""

    device_id: Device
    lock_wait_seconds: int = Field(default=600, ge=0, le=86_400)
    reboot_tries: int = Field(default=3, ge=1, le=10)
    reboot_wait_seconds: int = Field(default=600, ge=1, le=86_400)
    attempts_per_hour: int = Field(default=12, ge=1, le=3600)
    log_bytes: int = Field(default=4_194_304, ge=65_536, le=67_108_864)


class Updater:
    """Accepts attempts and brings the active one to its end."""

    def __init__(self, settings: Settings, folder: str, host: Host, poll: float = 2) -> None:
        self.settings, self.host, self._poll = settings, host, poll
        self.journal, self.lock = (
            Journal(f"{folder}/system-upgrades"),
            MutationLock(folder, "system-upgrade"),
        )
        self._accepting, self._wake, self._locked_since = threading.Lock(), threading.Event(), 0.0

    def request(self, asked: UpgradeRequest) -> Status:
        """Accept an attempt, or say how it stands. What is accepted is on disk before this returns."""
        if asked.deviceId != self.settings.device_id:
            why = f"cannot upgrade {asked.deviceId}: this is {self.settings.device_id}"
            raise Refused("wrong-device", why)
        with self._accepting:
            if known := self.journal.load(asked.attemptId):
                if dict(asked).items() <= dict(known).items():
                    return known
                raise Refused("attempt-conflict", "cannot use an attempt's id for another request")
            records = self.journal.all()
            if blocked := self._blocked(records, asked):
                asked_by = asked.model_dump(exclude={"expiresAt"})
                return Status(**asked_by, phase="blocked", reason=blocked[0], message=blocked[1])
            if self.host.clock_synchronised():
                if _now() >= asked.expiresAt:
                    why = f"cannot start: the attempt expired at {asked.expiresAt}"
                    raise Refused("expired", why)
                self.journal.forget(records, _now())
            record = Record(**dict(asked), phase="preflight", startedAt=_now(), updatedAt=_now())
            self.journal.write(record)
            self._wake.set()
            return record

    def _blocked(self, records: list[Record], asked: UpgradeRequest) -> tuple[str, str] | None:
        """Say why no attempt is accepted now; it isn't on disk then, and may be asked for again."""
        for other in records:
            if other.phase == "repair-required" and not other.clearedAt:
                why = f"cannot start: {other.attemptId} needs repair, then clear-repair"
                raise Refused("repair-required", why)
            if other.phase not in TERMINAL:
                return "OtherAttempt", f"attempt {other.attemptId} is {other.phase}"
        most, now = self.settings.attempts_per_hour, time.time()
        recent = [
            one
            for one in records
            if timestamp(now - 3600) < (one.startedAt or "") <= timestamp(now)
        ]
        if len(recent) >= most:
            return (
                "TooManyAttempts",
                f"{len(recent)} attempts were accepted in the last hour, of at most {most}",
            )
        if len(records) >= FULL and asked.expiresAt > timestamp(now + 86_400):
            return (
                "TooManyAttempts",
                f"of {len(records)} attempts that may come again: ask for one that expires today",
            )
        return None

    def clear_repair(self) -> list[str]:
        """Release the device from `repair-required`; what hinders that, empty when it is done."""
        for record in self.journal.all():
            if record.phase == "repair-required" and not record.clearedAt:
                if complaints := self.host.unhealthy():
                    return complaints
                self._enter(record, "cleared", record.reason, record.message, clearedAt=_now())
        return []

    def run(self) -> NoReturn:
        """Work for ever. JournalError when what is on disk can't be trusted."""
        while True:
            try:
                self.step()
            except OSError as error:  # no room, a read-only disk: the state on disk stands, and this is tried again
                logging.warning("cannot go on: %s", error)
                time.sleep(self._poll)

    def step(self) -> None:
        """Do what is next, or wait for a request."""
        record = next(iter(self.journal.all()), None)
        if record is None or record.phase in TERMINAL:
            self.lock.release()
            self._locked_since = 0.0
            self._wake.wait()
            self._wake.clear()
            return
        if record.phase in {"preflight", "blocked"}:
            self._prepare(record)
        elif other := self.lock.acquire(record.attemptId):
            raise BlockingIOError(f"waiting for {other}")
        else:
            {"applying": self._apply, "rebooting": self._reboot, "verifying": self._verify}[
                record.phase
            ](record)

    def _prepare(self, record: Record) -> None:
        gates = [self._clock, lambda: _expiry(record, "before it could start")]
        gates += [lambda: self._mutation(record), self._package_locks]
        objection = first(gates)
        if objection is None and record.phase == "blocked":
            self._enter(record, "unhindered")
            return
        preflight = Preflight(self.host)
        objection = (
            objection or preflight.objection() or _expiry(record, "while the indexes were fetched")
        )
        if objection is None:
            self._start(record, preflight)
        elif objection.event != "hindered" or objection[1:] != (record.reason, record.message):
            self._enter(record, *objection)
        if objection and objection.event == "hindered":
            time.sleep(self._poll)

    def _clock(self) -> Objection | None:
        if not self.host.clock_synchronised():
            why = "the clock isn't synchronised, so expiry can't be judged"
            return Objection("hindered", "ClockUnsynchronised", why)
        return None

    def _mutation(self, record: Record) -> Objection | None:
        if other := self.lock.acquire(record.attemptId):
            return Objection("hindered", "OtherMutation", f"waiting for {other}")
        return None

    def _package_locks(self) -> Objection | None:
        holder = self.host.lock_holder()
        if holder is None:
            self._locked_since = 0.0
            return None
        self._locked_since = self._locked_since or time.monotonic()
        late = time.monotonic() - self._locked_since >= self.settings.lock_wait_seconds
        return Objection("refused" if late else "hindered", "PackageLocksHeld", holder)

    def _start(self, record: Record, preflight: Preflight) -> None:
        before, planned = self.host.installed(), preflight.plan.versions
        boot_id = preflight.boot_id
        self._enter(record, "started", bootIdBefore=boot_id, before=before, planned=planned)
        logging.info("apt: %s", self.host.run("spawn", record.attemptId))

    def _apply(self, record: Record) -> None:
        rebooted = self.host.boot_id() not in {None, record.bootIdBefore}
        code = None if rebooted else self._ended(record.attemptId)
        path = f"{self.journal.folder}/{record.attemptId}.log"
        log = "\n".join(read(f"{path}{older}") for older in (".1", ""))
        complaints, installed = self.host.unhealthy(), self.host.installed()
        changes = apt_output.changes(record.before, installed or record.before)
        rest = {
            "held": apt_output.held(log),
            "keptConffiles": apt_output.kept_conffiles(log),
            "dpkgAudit": complaints,
        }
        result = {key: _fit(entries) for key, entries in (changes | rest).items()}
        ended: dict[str, Any] = {"before": {}, "planned": {}, "result": result}
        failures = " ".join(apt_output.errors(log) + complaints)
        if code is None:
            why = f"apt was cut off, or never began. {failures}"
            self._enter(record, "broken", "Interrupted", why, **ended)
        elif complaints:
            self._enter(record, "broken", "PackagesUnhealthy", failures, **ended)
        elif code:
            self._enter(record, "apt-failed", "UpgradeFailed", failures, **ended)
        elif missing := apt_output.differences(record.planned, installed):
            self._enter(record, "incomplete", "UpgradeIncomplete", "; ".join(missing), **ended)
        elif not any(changes.values()) and not self.host.reboot_required():
            why = "all packages are up to date, and no reboot is required"
            self._enter(record, "unchanged", "NothingToUpgrade", why, **ended)
        else:
            self._enter(record, "upgraded", **ended)

    def _reboot(self, record: Record) -> None:
        until = time.monotonic() + (self.settings.reboot_wait_seconds if record.rebootsAsked else 0)
        while (boot_id := self.host.boot_id()) in {
            None,
            record.bootIdBefore,
        } and time.monotonic() < until:
            time.sleep(self._poll)
        if boot_id not in {None, record.bootIdBefore}:
            self._enter(record, "rebooted", bootIdAfter=boot_id)
        elif record.rebootsAsked >= self.settings.reboot_tries:
            self._enter(
                record,
                "no-reboot",
                "RebootFailed",
                f"asked {record.rebootsAsked} times, still the same boot",
            )
        else:
            self._enter(record, "reboot-asked", rebootsAsked=record.rebootsAsked + 1)
            logging.info("reboot: %s", self.host.run("reboot"))

    def _verify(self, record: Record) -> None:
        until = time.monotonic() + self.settings.lock_wait_seconds
        while (
            self.host.lock_holder() and time.monotonic() < until
        ):  # packages that are worked on look broken
            time.sleep(self._poll)
        if complaints := self.host.unhealthy():
            result = (record.result or {}) | {"dpkgAudit": _fit(complaints)}
            self._enter(record, "broken", "PackagesUnhealthy", " ".join(complaints), result=result)
        else:
            self._enter(record, "verified")

    def _ended(self, attempt: str) -> int | None:
        """Wait, without a limit, until apt's unit is gone; its exit code, None when it was cut off or never began."""
        path, gone = f"{self.journal.folder}/{attempt}.exit", ((0, "inactive\n"), (0, "failed\n"))
        while not read(path).isdecimal() and self.host.run("state") not in gone:
            time.sleep(self._poll)
        word = read(path)
        return int(word) if word.isdecimal() else None

    def _enter(
        self, record: Record, event: Event, reason: str = "", message: str = "", **changes: Any
    ) -> None:
        after = {
            "phase": TRANSITIONS[record.phase][event],
            "reason": reason,
            "message": _fit([message], 2_000)[0],
        }
        entered = Record.model_validate(dict(record) | changes | after | {"updatedAt": _now()})
        self.journal.write(entered)
        logging.info("%s: %s", record.attemptId, after)


def _expiry(record: Record, when: str) -> Objection | None:
    if _now() >= record.expiresAt:
        return Objection("refused", "Expired", f"it expired at {record.expiresAt}, {when}")
    return None


def _now() -> str:
    return timestamp(time.time())


def _fit(lines: list[str], room: int = 9_000) -> tuple[str, ...]:
    """The lines that have room in an answer, printable, and how many more there are."""
    fitting = ["".join(filter(str.isprintable, line))[:500] for line in lines]
    while len(json.dumps(fitting)) > room:
        fitting = fitting[: len(fitting) * 9 // 10]
    return (
        *fitting,
        *([f"... {len(lines) - len(fitting)} more"] if len(fitting) < len(lines) else []),
    )
