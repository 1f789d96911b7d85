"""What is done in each state of an upgrade. Each step may be cut anywhere and done again; a signal is how this ends.

apt's upgrade is spawned in one place, after `applying` is on disk; the reboot is asked for in one place, after it was
counted on disk. States change in `_enter` only.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from pydantic import Field

from harmony_updater import apt
from harmony_updater.journal import Journal, Record, read, write_durably
from harmony_updater.lock import MutationLock
from harmony_updater.machine import TERMINAL, TRANSITIONS, Event
from harmony_updater.protocol import Device, Refused, Status, UpgradeRequest, Wire, timestamp


class Settings(Wire):
    """/etc/harmony/updater.toml: which device this is, and bounds."""

    device_id: Device
    lock_wait_seconds: int = Field(default=600, ge=0, le=86_400)
    reboot_tries: int = Field(default=3, ge=1, le=10)
    reboot_wait_seconds: int = Field(default=600, ge=1, le=86_400)
    log_bytes: int = Field(default=4_194_304, ge=65_536, le=67_108_864)


class Updater:
    """Accepts attempts and brings the active one to its end."""

    def __init__(self, settings: Settings, folder: str, host: apt.Host, poll: float = 2) -> None:
        self.settings, self.host, self._poll = settings, host, poll
        self.journal, self.lock = Journal(f"{folder}/system-upgrades"), MutationLock(folder, "system-upgrade")
        self._accepting, self._wake, self._locked_since = threading.Lock(), threading.Event(), 0.0

    def request(self, asked: UpgradeRequest) -> Status:
        """Accept an attempt, or say how it stands. What is accepted is on disk before this returns."""
        if asked.deviceId != self.settings.device_id:
            raise Refused("wrong-device", f"cannot upgrade {asked.deviceId}: this is {self.settings.device_id}")
        with self._accepting:
            if known := self.journal.load(asked.attemptId):
                if dict(asked).items() <= dict(known).items():
                    return known
                raise Refused("attempt-conflict", "cannot use an attempt's id for another request")
            for other in self.journal.all():
                if other.phase == "repair-required" and not other.clearedAt:
                    raise Refused("repair-required", f"cannot start: {other.attemptId} needs repair, then clear-repair")
                if other.phase not in TERMINAL:
                    why = f"attempt {other.attemptId} is {other.phase}"
                    asked_by = asked.model_dump(exclude={"expiresAt"})
                    return Status(**asked_by, phase="blocked", reason="OtherAttempt", message=why)
            if self.host.clock_synchronised() and _now() >= asked.expiresAt:
                raise Refused("expired", f"cannot start: the attempt expired at {asked.expiresAt}")
            record = Record(**dict(asked), phase="preflight", startedAt=_now(), updatedAt=_now())
            write_durably(f"{self.journal.folder}/{record.attemptId}.json", record.model_dump_json())
            self._wake.set()
            return record

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
            self._prepare(record, self.host.boot_id())
        elif other := self.lock.acquire(record.attemptId):
            raise BlockingIOError(f"waiting for {other}")
        else:
            {"applying": self._apply, "rebooting": self._reboot, "verifying": self._verify}[record.phase](record)

    def _prepare(self, record: Record, boot_id: str | None) -> None:
        event, reason, message = next(self._objections(record, boot_id), ("started", "", ""))
        if event == "started":
            self._enter(record, event, bootIdBefore=boot_id, before=self.host.installed())
            logging.info("apt: %s", self.host.run("spawn", record.attemptId))
        elif event != "hindered" or (record.phase, record.reason, record.message) != ("blocked", reason, message):
            self._enter(record, event, reason, message)
        if event == "hindered":
            time.sleep(self._poll)

    def _objections(self, record: Record, boot_id: str | None) -> Iterator[tuple[Event, str, str]]:
        """What keeps the attempt from starting, in order: each is looked for once all before it have passed."""
        if not self.host.clock_synchronised():
            yield "hindered", "ClockUnsynchronised", "the clock isn't synchronised, so expiry can't be judged"
        if _now() >= record.expiresAt:
            yield "refused", "Expired", f"it expired at {record.expiresAt}, before it could start"
        if other := self.lock.acquire(record.attemptId):
            yield "hindered", "OtherMutation", f"waiting for {other}"
        if holder := self.host.lock_holder():
            self._locked_since = self._locked_since or time.monotonic()
            late = time.monotonic() - self._locked_since >= self.settings.lock_wait_seconds
            yield "refused" if late else "hindered", "PackageLocksHeld", holder
        self._locked_since = 0.0
        if record.phase == "blocked":
            yield "unhindered", "", ""
        if complaints := self.host.unhealthy():
            yield "refused", "PackagesUnhealthy", " ".join(complaints)
        if places := self.host.unauthenticated():
            yield "refused", "UnauthenticatedSource", "authentication is off: " + "; ".join(places)
        failed, said = self.host.run("update")
        if failed:
            yield "refused", "IndexFailed", " ".join(apt.ERROR.findall(said) or [said])
        failed, plan = self.host.run("plan")
        if failed:
            yield "refused", "NoPlan", " ".join(apt.ERROR.findall(plan) or [plan])
        if lacking := self.host.space_lacking(plan):
            yield "refused", "NoSpace", lacking
        if boot_id is None:
            yield "refused", "BootIdUnreadable", "the boot id isn't readable, so a reboot couldn't be told"
        if _now() >= record.expiresAt:
            yield "refused", "Expired", f"it expired at {record.expiresAt}, while the indexes were fetched"

    def _apply(self, record: Record) -> None:
        rebooted = self.host.boot_id() not in {None, record.bootIdBefore}
        code = None if rebooted else self._ended(record.attemptId)
        log = "\n".join(read(f"{self.journal.folder}/{record.attemptId}.log{older}") for older in (".1", ""))
        held, kept = " ".join(apt.HELD.findall(log)).split(), apt.KEPT.findall(log)
        complaints, before, after = self.host.unhealthy(), record.before, self.host.installed() or record.before
        lists = {
            "upgraded": [f"{p} ({before[p]} => {after[p]})" for p in after if before.get(p, after[p]) != after[p]],
            "installed": [f"{p} ({after[p]})" for p in after if p not in before],
            "removed": [f"{p} ({before[p]})" for p in before if p not in after],
            "held": held, "keptConffiles": kept, "dpkgAudit": complaints,
        }  # fmt: skip
        changes: dict[str, Any] = {"before": {}, "result": {key: _fit(lines) for key, lines in lists.items()}}
        failures = " ".join(apt.ERROR.findall(log) + complaints)
        if code is None:
            self._enter(record, "broken", "Interrupted", f"apt was cut off, or never began. {failures}", **changes)
        elif complaints:
            self._enter(record, "broken", "PackagesUnhealthy", failures, **changes)
        elif code:
            self._enter(record, "apt-failed", "UpgradeFailed", failures, **changes)
        else:
            self._enter(record, "upgraded", **changes)

    def _reboot(self, record: Record) -> None:
        until = time.monotonic() + (self.settings.reboot_wait_seconds if record.rebootsAsked else 0)
        while (boot_id := self.host.boot_id()) in {None, record.bootIdBefore} and time.monotonic() < until:
            time.sleep(self._poll)
        if boot_id not in {None, record.bootIdBefore}:
            self._enter(record, "rebooted", bootIdAfter=boot_id)
        elif record.rebootsAsked >= self.settings.reboot_tries:
            self._enter(record, "no-reboot", "RebootFailed", f"asked {record.rebootsAsked} times, still the same boot")
        else:
            self._enter(record, "reboot-asked", rebootsAsked=record.rebootsAsked + 1)
            logging.info("reboot: %s", self.host.run("reboot"))

    def _verify(self, record: Record) -> None:
        until = time.monotonic() + self.settings.lock_wait_seconds
        while self.host.lock_holder() and time.monotonic() < until:  # packages that are worked on look broken
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

    def _enter(self, record: Record, event: Event, reason: str = "", message: str = "", **changes: Any) -> None:
        after = {"phase": TRANSITIONS[record.phase][event], "reason": reason, "message": _fit([message], 2_000)[0]}
        entered = Record.model_validate(dict(record) | changes | after | {"updatedAt": _now()})
        write_durably(f"{self.journal.folder}/{record.attemptId}.json", entered.model_dump_json())
        logging.info("%s: %s", record.attemptId, after)


def _now() -> str:
    return timestamp(time.time())


def _fit(lines: list[str], room: int = 9_000) -> tuple[str, ...]:
    """The lines that have room in an answer, printable, and how many more there are."""
    fitting = ["".join(filter(str.isprintable, line))[:500] for line in lines]
    while len(json.dumps(fitting)) > room:
        fitting = fitting[: len(fitting) * 9 // 10]
    return (*fitting, *([f"... {len(lines) - len(fitting)} more"] if len(fitting) < len(lines) else []))
