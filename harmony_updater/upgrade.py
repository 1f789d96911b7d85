"""Bring an upgrade from each of its states to the next.

Each step may be cut anywhere and done again; a signal is how this ends. apt's upgrade is spawned
in one place, after `applying` is on disk. The reboot is asked for in one place, after it was
counted on disk. States change in `_enter` only.
"""

import logging
import threading
import time
from typing import Any, NoReturn

from pydantic import Field

from harmony_updater import apt_output
from harmony_updater.apt_output import fit
from harmony_updater.host import Host
from harmony_updater.journal import FULL, Journal, Record, read
from harmony_updater.lock import MutationLock
from harmony_updater.machine import TRANSITIONS, Event
from harmony_updater.preflight import Objection, Preflight, first
from harmony_updater.protocol import Device, Refused, Status, UpgradeRequest, Wire, timestamp

HOUR, DAY = 3_600, 86_400


class Settings(Wire):
    """The content of /etc/harmony/updater.toml: which device this is, and bounds."""

    device_id: Device
    lock_wait_seconds: int = Field(default=600, ge=0, le=DAY)
    reboot_tries: int = Field(default=3, ge=1, le=10)
    reboot_wait_seconds: int = Field(default=600, ge=1, le=DAY)
    attempts_per_hour: int = Field(default=12, ge=1, le=HOUR)
    log_bytes: int = Field(default=4_194_304, ge=65_536, le=67_108_864)


class Updater:
    """The updater: it accepts attempts, and brings the active one to its end."""

    def __init__(self, settings: Settings, folder: str, host: Host, poll: float = 2) -> None:
        self.settings = settings
        self.host = host
        self.journal = Journal(f"{folder}/system-upgrades")
        self.lock = MutationLock(folder, "system-upgrade")
        self._poll = poll
        self._accepting = threading.Lock()
        self._wake = threading.Event()
        self._locked_since = 0.0

    # -- what others ask for

    def request(self, asked: UpgradeRequest) -> Status:
        """Accept an attempt, or say how it stands; what is accepted is on disk afterwards."""
        if asked.deviceId != self.settings.device_id:
            why = f"cannot upgrade {asked.deviceId}: this is {self.settings.device_id}"
            raise Refused("wrong-device", why)
        with self._accepting:
            if known := self.journal.load(asked.attemptId):
                if dict(asked).items() <= dict(known).items():
                    return known
                raise Refused("attempt-conflict", "cannot use an attempt's id for another request")
            records = self.journal.all()
            return self._hindrance(records, asked) or self._accept(records, asked)

    def _hindrance(self, records: list[Record], asked: UpgradeRequest) -> Status | None:
        """Say why no attempt is accepted now; it isn't on disk then, and may be asked for again."""
        for other in records:
            if other.needs_repair:
                why = f"cannot start: {other.attemptId} needs repair, then clear-repair"
                raise Refused("repair-required", why)
        reason, why = "", ""
        active = [record for record in records if not record.ended]
        if active:
            reason, why = "OtherAttempt", f"attempt {active[0].attemptId} is {active[0].phase}"
        elif self._accepted_lately(records) >= self.settings.attempts_per_hour:
            most = self.settings.attempts_per_hour
            reason, why = "TooManyAttempts", f"{most} were accepted within the last hour"
        elif len(records) >= FULL and asked.expiresAt > _now(DAY):
            reason, why = "TooManyAttempts", f"{len(records)} are known: let it expire within a day"
        if not reason:
            return None
        return Status(
            attemptId=asked.attemptId,
            runUid=asked.runUid,
            deviceId=asked.deviceId,
            phase="blocked",
            reason=reason,
            message=why,
        )

    def _accepted_lately(self, records: list[Record]) -> int:
        """Count the attempts of the last hour; a start in the future is of a wrong clock."""
        return sum(_now(-HOUR) < (record.startedAt or "") <= _now() for record in records)

    def _accept(self, records: list[Record], asked: UpgradeRequest) -> Record:
        now = _now()
        if self.host.clock_synchronised():
            if now >= asked.expiresAt:
                why = f"cannot start: the attempt expired at {asked.expiresAt}"
                raise Refused("expired", why)
            self.journal.forget(records, now)
        record = Record(**dict(asked), phase="preflight", startedAt=now, updatedAt=now)
        self.journal.write(record)
        self._wake.set()
        return record

    def clear_repair(self) -> list[str]:
        """Release the device from `repair-required`; what hinders that, empty when it is done."""
        for record in self.journal.all():
            if record.needs_repair:
                if complaints := self.host.unhealthy():
                    return complaints
                self._enter(record, "cleared", record.reason, record.message, clearedAt=_now())
        return []

    # -- what is done, state by state

    def run(self) -> NoReturn:
        """Work for ever. JournalError when what is on disk can't be trusted."""
        while True:
            try:
                self.step()
            except OSError as error:  # no room, a read-only disk: the state on disk stands
                logging.warning("cannot go on: %s", error)
                time.sleep(self._poll)

    def step(self) -> None:
        """Do what is next, or wait for a request."""
        record = next(iter(self.journal.all()), None)
        if record is None or record.ended:
            self.lock.release()
            self._locked_since = 0.0
            self._wake.wait()
            self._wake.clear()
        elif record.phase in {"preflight", "blocked"}:
            self._prepare(record)
        elif other := self.lock.acquire(record.attemptId):
            raise BlockingIOError(f"waiting for {other}")
        elif record.phase == "applying":
            self._apply(record)
        elif record.phase == "rebooting":
            self._reboot(record)
        else:
            self._verify(record)

    def _prepare(self, record: Record) -> None:
        objection = first(
            [
                self._clock_is_right,
                lambda: _has_expired(record, "before it could start"),
                lambda: self._mutation_lock_is_ours(record),
                self._package_locks_are_free,
            ]
        )
        if objection is None and record.phase == "blocked":
            self._enter(record, "unhindered")
            return
        checks = Preflight(self.host)
        if objection is None:
            objection = checks.objection() or _has_expired(record, "while it was checked")
        if objection is None:
            self._start(record, checks)
        else:
            self._hold(record, objection)

    def _hold(self, record: Record, objection: Objection) -> None:
        hindered = objection.event == "hindered"
        told = (record.phase, record.reason, record.message)
        if not hindered or told != ("blocked", objection.reason, objection.message):
            self._enter(record, objection.event, objection.reason, objection.message)
        if hindered:
            time.sleep(self._poll)

    def _clock_is_right(self) -> Objection | None:
        if self.host.clock_synchronised():
            return None
        why = "the clock isn't synchronised, so expiry can't be judged"
        return Objection("hindered", "ClockUnsynchronised", why)

    def _mutation_lock_is_ours(self, record: Record) -> Objection | None:
        other = self.lock.acquire(record.attemptId)
        return Objection("hindered", "OtherMutation", f"waiting for {other}") if other else None

    def _package_locks_are_free(self) -> Objection | None:
        holder = self.host.lock_holder()
        if holder is None:
            self._locked_since = 0.0
            return None
        self._locked_since = self._locked_since or time.monotonic()
        late = time.monotonic() - self._locked_since >= self.settings.lock_wait_seconds
        return Objection("refused" if late else "hindered", "PackageLocksHeld", holder)

    def _start(self, record: Record, checks: Preflight) -> None:
        self._enter(
            record,
            "started",
            bootIdBefore=checks.boot_id,
            before=self.host.installed(),
            planned=checks.plan.versions,
        )
        logging.info("apt: %s", self.host.run("spawn", record.attemptId))

    def _apply(self, record: Record) -> None:
        rebooted = self.host.boot_id() not in {None, record.bootIdBefore}
        code = None if rebooted else self._exit_code(record.attemptId)
        log = self._log(record.attemptId)
        complaints = self.host.unhealthy()
        installed = self.host.installed()
        changes = apt_output.changes(record.before, installed or record.before)
        rest = {
            "held": apt_output.held(log),
            "keptConffiles": apt_output.kept_conffiles(log),
            "dpkgAudit": complaints,
        }
        result = {name: fit(entries) for name, entries in (changes | rest).items()}
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
        elif any(changes.values()) or self.host.reboot_required():
            self._enter(record, "upgraded", **ended)
        else:
            why = "all packages are up to date, and no reboot is required"
            self._enter(record, "unchanged", "NothingToUpgrade", why, **ended)

    def _exit_code(self, attempt: str) -> int | None:
        """Wait for the end of apt's unit; None when apt was cut off or never began."""
        path = f"{self.journal.folder}/{attempt}.exit"
        gone = {(0, "inactive\n"), (0, "failed\n")}
        while not read(path).isdecimal() and self.host.run("state") not in gone:
            time.sleep(self._poll)
        word = read(path)
        return int(word) if word.isdecimal() else None

    def _log(self, attempt: str) -> str:
        path = f"{self.journal.folder}/{attempt}.log"
        return "\n".join(read(part) for part in (f"{path}.1", path))

    def _reboot(self, record: Record) -> None:
        same = {None, record.bootIdBefore}
        wait = self.settings.reboot_wait_seconds if record.rebootsAsked else 0
        until = time.monotonic() + wait
        boot_id = self.host.boot_id()
        while boot_id in same and time.monotonic() < until:
            time.sleep(self._poll)
            boot_id = self.host.boot_id()
        if boot_id not in same:
            self._enter(record, "rebooted", bootIdAfter=boot_id)
        elif record.rebootsAsked >= self.settings.reboot_tries:
            why = f"asked {record.rebootsAsked} times, still the same boot"
            self._enter(record, "no-reboot", "RebootFailed", why)
        else:
            self._enter(record, "reboot-asked", rebootsAsked=record.rebootsAsked + 1)
            logging.info("reboot: %s", self.host.run("reboot"))

    def _verify(self, record: Record) -> None:
        until = time.monotonic() + self.settings.lock_wait_seconds
        while self.host.lock_holder() and time.monotonic() < until:
            time.sleep(self._poll)  # packages that are worked on look broken
        if complaints := self.host.unhealthy():
            result = (record.result or {}) | {"dpkgAudit": fit(complaints)}
            self._enter(record, "broken", "PackagesUnhealthy", " ".join(complaints), result=result)
        else:
            self._enter(record, "verified")

    def _enter(
        self, record: Record, event: Event, reason: str = "", message: str = "", **changes: Any
    ) -> None:
        after = {
            "phase": TRANSITIONS[record.phase][event],
            "reason": reason,
            "message": fit([message], 2_000)[0],
        }
        entered = Record.model_validate(dict(record) | changes | after | {"updatedAt": _now()})
        self.journal.write(entered)
        logging.info("%s: %s", record.attemptId, after)


def _has_expired(record: Record, when: str) -> Objection | None:
    if _now() < record.expiresAt:
        return None
    return Objection("refused", "Expired", f"it expired at {record.expiresAt}, {when}")


def _now(shift: float = 0) -> str:
    """Read the clock, `shift` seconds on."""
    return timestamp(time.time() + shift)
