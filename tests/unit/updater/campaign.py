"""Cuts the updater and the runner of apt at each of their points, and sees them come back.

A point is a call, made by a line of harmony_updater, of what opens to write, writes, makes durable,
renames or spawns. It is numbered as it comes: the third fsync of the runner is the same point in
every run. Run as a program, so that it may fork: it has one thread.
"""

import builtins
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import harmony_updater
from harmony_updater.__main__ import run_apt
from harmony_updater.journal import LOGS, JournalError
from harmony_updater.machine import TERMINAL
from tests.unit.updater.world import ATTEMPT, World, request

PACKAGE = os.path.dirname(harmony_updater.__file__)
FAULTS = {
    "spawn": ("kill", "kill after"),
    "open": ("kill", "ENOSPC", "EIO"),
    "write": ("kill", "ENOSPC", "EIO", "short"),
    "fsync": ("kill", "ENOSPC", "EIO"),
    "replace": ("kill", "ENOSPC", "EIO"),
    "unlink": ("kill", "EIO"),
}  # to be killed after one that spawns nothing is to be killed before the next
CALLS = {
    "spawn": (subprocess, "Popen"), "open": (builtins, "open"),
    "write": (os, "write"), "fsync": (os, "fsync"), "replace": (os, "replace"),
    "unlink": (os, "unlink"),
}  # fmt: skip


@dataclass(frozen=True)
class Cut:
    """What happens at which point; no fault at all in the first run, which counts them."""

    role: str = ""
    number: int = 0
    fault: str = ""


@dataclass
class Run:
    """What was seen of one cut."""

    cut: Cut
    lives: int = 0
    points: list[list[Any]] = field(
        default_factory=list
    )  # role, number, kind, line of the source, what it was done to
    at_restart: dict[str, Any] = field(default_factory=dict)
    ended: str = ""  # how apt had ended by the restart: "", "begun" or its exit code
    running: bool = False  # at the restart
    accepted: bool = False  # the request had been answered before the restart
    trouble: str = ""
    final: dict[str, Any] = field(default_factory=dict)
    upgrades: int = 0
    reboots: int = 0
    wrong: list[str] = field(default_factory=list)
    holder: str = ""


def instrument(world: World, role: str, cut: Cut) -> None:
    """Count the points of this process from now on, and do at one of them what the cut says."""
    number, last = 0, ""
    trace = os.open(world.fake / f"points-{role}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    note = os.write

    def wrapped(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal number, last
            frame = sys._getframe(1)
            ours = os.path.dirname(frame.f_code.co_filename) == PACKAGE
            if not ours or (kind == "open" and not set("wax+") & set((*args, "r")[1])):
                return original(*args, **kwargs)
            what, before = _object(kind, args), last
            last = what
            if (
                what == before == "systemctl harmony-updater-apt.service"
            ):  # it waits, as long as apt takes
                return original(*args, **kwargs)
            number += 1
            site = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            note(trace, json.dumps([role, number, kind, site, what]).encode() + b"\n")
            fault = cut.fault if (cut.role, cut.number) == (role, number) else ""
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault in {"ENOSPC", "EIO"}:
                raise OSError(getattr(errno, fault), os.strerror(getattr(errno, fault)))
            if fault == "short":
                return original(args[0], args[1][:-1])
            done = original(*args, **kwargs)
            if fault == "kill after":
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    for kind, (module, name) in CALLS.items():
        setattr(module, name, wrapped(kind, getattr(module, name)))


def _object(kind: str, args: tuple[Any, ...]) -> str:
    if kind == "spawn":
        return f"{os.path.basename(args[0][0])} {args[0][-1]}"
    path = (
        os.readlink(f"/proc/self/fd/{args[0]}")
        if isinstance(args[0], int)
        else args[-1 if kind == "replace" else 0]
    )
    return os.path.basename(path)


def updater_life(world: World, role: str, cut: Cut) -> None:
    """The updater as systemd runs it, and its agent, which asks until it is answered. Ends when all
    is at its end.
    """
    os.setsid()
    updater = world.updater()
    instrument(world, role, cut)

    def watch() -> None:
        while world.record().get("phase") not in TERMINAL or world.holder():
            time.sleep(0.003)
        time.sleep(0.03)  # the name is off the lock; let its folder be synced, too
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    try:
        while not (world.fake / "accepted").exists():
            try:
                updater.request(request())
                (world.fake / "accepted").touch()
            except OSError:  # the server closes the connection; the agent asks again
                time.sleep(0.01)
        updater.run()
    except JournalError as error:
        (world.fake / "journal-error").write_text(str(error))
        os._exit(2)


def runner_life(world: World, role: str, cut: Cut) -> None:
    """The runner in its unit."""
    os.setsid()
    updater = world.updater()
    instrument(world, role, cut)
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, 0.02))
    os._exit(run_apt(updater, ATTEMPT))


def forked(life: Callable[[World, str, Cut], None], world: World, role: str, cut: Cut) -> int:
    """Run it in a process of its own; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            quiet = os.open(os.devnull, os.O_RDWR)
            os.dup2(quiet, 2)
            life(world, role, cut)
        finally:
            os._exit(3)
    return pid


class System:
    """What systemd does here: starts the updater again, runs the unit that is asked for,
    reboots.
    """

    def __init__(self, world: World, cut: Cut) -> None:
        self.world, self.cut, self.seen = world, cut, Run(cut)
        self._runner, self._roles = 0, {"boot-1\n": "updater"}

    def run(self) -> Run:
        """Until the updater has ended well, or 30 s."""
        deadline, seen, world = time.monotonic() + 30, self.seen, self.world
        while not seen.trouble:
            boot = self._boot()
            role = self._roles.setdefault(boot, "rebooted" if len(self._roles) == 1 else "again")
            updater = forked(updater_life, world, role, self.cut)
            self._roles[boot] = "again"  # a cut hits the first life of a boot
            seen.lives += 1
            status = self._attend(updater, deadline)
            if status is None or seen.lives > 12:
                seen.trouble = f"no end after {seen.lives} lives"
            elif os.waitstatus_to_exitcode(status) == 0:
                break
            elif os.waitstatus_to_exitcode(status) > 0:
                said = world.fake / "journal-error"
                seen.trouble = (
                    said.read_text()
                    if said.exists()
                    else f"ended with {os.waitstatus_to_exitcode(status)}"
                )
            self._after_death(updater, boot, role)
        self._end(updater)
        return self._sum_up()

    def _attend(self, updater: int, deadline: float) -> int | None:
        while time.monotonic() < deadline:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == updater:
                return status
            if pid == self._runner and pid:
                self._unit_gone()
            if (self.world.fake / "unit").exists() and not self._runner:
                self._runner = forked(runner_life, self.world, "runner", self.cut)
                (self.world.fake / "unit.runs").touch()
            time.sleep(0.001)
        return None

    def _after_death(self, updater: int, boot: str, role: str) -> None:
        self._kill_group(updater)  # as systemd ends a unit's cgroup
        if self._boot() != boot and self._runner:
            self._kill_group(self._runner)
            os.waitpid(self._runner, 0)
            self._unit_gone()
        if (
            role in {self.cut.role, "updater"} and self.cut.role != "runner"
        ):  # the last one is that of the cut
            exit_file = self.world.state / "system-upgrades" / f"{ATTEMPT}.exit"
            self.seen.at_restart = self.world.record()
            self.seen.ended = exit_file.read_text() if exit_file.exists() else ""
            self.seen.running = (self.world.fake / "unit").exists()
            self.seen.accepted = (self.world.fake / "accepted").exists()

    def _unit_gone(self) -> None:
        self._runner = 0
        (self.world.fake / "unit.runs").unlink(missing_ok=True)
        (self.world.fake / "unit").unlink(missing_ok=True)

    def _end(self, updater: int) -> None:
        for pid in filter(None, (updater, self._runner)):
            self._kill_group(pid)
        if self._runner:
            os.waitpid(self._runner, 0)

    def _boot(self) -> str:
        return (self.world.root / "proc/sys/kernel/random/boot_id").read_text()

    def _kill_group(self, pid: int) -> None:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _sum_up(self) -> Run:
        seen, world = self.seen, self.world
        seen.final, seen.holder = world.record(), world.holder()
        seen.upgrades, seen.reboots = world.calls("UPGRADE"), world.calls("systemctl reboot")
        calls = (world.fake / "calls").read_text().splitlines()
        seen.wrong = [line for line in calls if line.startswith(("NOT", "unknown"))]
        for trace in sorted(world.fake.glob("points-*")):
            seen.points += [json.loads(line) for line in trace.read_text().splitlines()]
        return seen


def cuts(points: list[list[Any]]) -> Iterator[Cut]:
    """Every fault at every point of the first run."""
    for role, number, kind, _, _ in points:
        for fault in FAULTS[kind]:
            yield Cut(role, number, fault)


def cut_once(folder: Path, cut: Cut) -> Run:
    """One device, one cut."""
    world = World(folder, reboot_tries=3, reboot_wait_seconds=1).make()
    for number in range(LOGS + 1):
        world.had(f"old-{number}")
    return System(world, cut).run()


def main() -> None:
    """FOLDER SHARD SHARDS: one JSON object a run, the first without a cut."""
    folder, shard, shards = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    first = cut_once(folder / "first", Cut())
    runs = [first]
    for index, cut in enumerate(cuts(first.points)):
        if index % shards == shard:
            runs.append(cut_once(folder / f"cut-{index}", cut))
    with open(folder / "runs.json", "w", encoding="utf-8") as file:
        json.dump([asdict(run) for run in runs], file)


if __name__ == "__main__":
    main()
