"""Keeps this process as its unit says: its scheduling, its processors, its place when memory is
short.

What runs by Scores is the same user's, and the kernel lets a user change these of any of his
processes. Changes this process alone, and tells. What can't be changed back ends the process:
systemd starts it anew, as the unit says.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import anyio

from harmony_agent.adapters.posix import syscalls
from harmony_agent.core.frozen import frozen

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between looks; one costs some twenty system calls."""
_UNIT: Final = "harmony-agent.service"
_ASKED: Final = (
    "MainPID",
    "CPUSchedulingPolicy",
    "Nice",
    "CPUAffinity",
    "OOMScoreAdjust",
    "IOSchedulingClass",
    "IOSchedulingPriority",
)
_OOM: Final = Path("/proc/self/oom_score_adj")
_UNSET_IO: Final = (2, 4)
"""Class and priority as systemd shows them where the unit sets none."""
_MANAGER: Final = 1
_ASK_SECONDS: Final = 10.0


@frozen()
class UnitSettings:
    """Settings of the unit for each thread, and for the process (`oom`)."""

    policy: int
    nice: int
    cpus: frozenset[int]
    oom: int
    io: int | None


def read_unit(shown: str, pid: int, inherited: UnitSettings) -> UnitSettings | None:
    """The settings from the output of `systemctl show`; None where it is another process's unit.

    What the unit doesn't set it has of the manager itself.
    """
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if found.get("MainPID") != str(pid):
        return None
    try:
        io = (int(found["IOSchedulingClass"]), int(found["IOSchedulingPriority"]))
        return UnitSettings(
            policy=int(found["CPUSchedulingPolicy"]) or inherited.policy,
            nice=int(found["Nice"]) or inherited.nice,
            cpus=frozenset(_numbers(found["CPUAffinity"])) or inherited.cpus,
            oom=int(found["OOMScoreAdjust"]),
            io=inherited.io if io == _UNSET_IO else (io[0] << 13 | io[1]),
        )
    except (KeyError, ValueError):
        return None


def settings_of(thread: int) -> UnitSettings:
    """Read the settings that a thread has by now; `oom` is 0."""
    return UnitSettings(
        policy=os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK,
        nice=os.getpriority(os.PRIO_PROCESS, thread),
        cpus=frozenset(os.sched_getaffinity(thread)),
        oom=0,
        io=syscalls.ioprio_get(thread),
    )


def _numbers(text: str) -> Iterable[int]:
    """``0 2-3`` are 0, 2 and 3."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


async def ask_unit() -> UnitSettings | None:
    """Ask systemd for the settings; None where this process isn't the package's unit."""
    argv = ["systemctl", "show", f"--property={','.join(_ASKED)}", _UNIT]
    try:
        with anyio.fail_after(_ASK_SECONDS):
            done = await anyio.run_process(argv, check=False)
    except (OSError, TimeoutError):
        return None
    return read_unit(done.stdout.decode(errors="replace"), os.getpid(), settings_of(_MANAGER))


class ProcessGuard:
    """Looks each period, and puts back what others changed.

    What was found is kept in `state_dir` until the next boot, over all lives of the agent.
    """

    def __init__(self, state_dir: Path, boot_id: str) -> None:
        self._kept, self._boot = state_dir / "disturbed.json", boot_id
        self._found = self._load()

    def disturbed(self) -> list[str]:
        """The unit's settings that somebody changed since the boot."""
        return sorted(self._found)

    async def run(self, end: Callable[[], None]) -> None:
        """Look until cancelled; call `end` where only a new start mends it.

        Does nothing where systemd didn't start this process as the package's unit.
        """
        wanted = await ask_unit()
        if wanted is None:
            return
        while self.look(wanted):  # noqa: ASYNC110  # what is looked at tells nobody of its changes
            await anyio.sleep(PERIOD)
        end()

    def look(self, wanted: UnitSettings) -> bool:
        """Compare each thread with the unit, and put back what differs; whether that could be."""
        changed: set[str] = set()
        mended = True
        for thread in map(int, os.listdir("/proc/self/task")):
            try:
                if differ := _differences(thread, wanted):
                    changed |= differ
                    _put_back(thread, wanted)
            except ProcessLookupError:
                continue  # it has ended
            except PermissionError:
                mended = False
        if _put_oom_back(wanted.oom):
            changed.add("OOMScoreAdjust")
        if changed:
            self._tell(changed, mended=mended)
        return mended

    def _tell(self, changed: set[str], *, mended: bool) -> None:
        log.warning(
            "somebody changed %s of this process: %s; what runs by Scores is the same user's, and may do that",
            ", ".join(sorted(changed)),
            "it is as the unit says again" if mended else "it ends, so that systemd starts it anew",
            extra={"reason": "ProcessDisturbed"},
        )
        if not changed <= self._found:
            self._found |= changed
            text = json.dumps({"boot": self._boot, "settings": sorted(self._found)})
            try:
                self._kept.write_text(text, "utf-8")
            except OSError as error:
                log.warning("cannot keep what was changed of this process: %s", error.strerror)

    def _load(self) -> set[str]:
        """Read what earlier lives found; nothing where it can't be read."""
        try:
            kept = json.loads(self._kept.read_text("utf-8"))
            return set(kept["settings"]) if kept["boot"] == self._boot else set()
        except (OSError, ValueError, KeyError, TypeError):
            return set()


def _differences(thread: int, wanted: UnitSettings) -> set[str]:
    """The settings of a thread that differ."""
    found = settings_of(thread)
    differ = {
        "CPUSchedulingPolicy": found.policy != wanted.policy,
        "Nice": found.nice != wanted.nice,
        "CPUAffinity": found.cpus != wanted.cpus,
        "IOSchedulingClass": found.io != wanted.io,
    }
    return {name for name, differs in differ.items() if differs}


def _put_back(thread: int, wanted: UnitSettings) -> None:
    """Set all four. PermissionError where the unit's limits don't let it."""
    os.sched_setaffinity(thread, wanted.cpus)
    if wanted.io is not None:
        syscalls.ioprio_set(thread, wanted.io)
    if settings_of(thread).policy != wanted.policy:
        os.sched_setscheduler(thread, wanted.policy, os.sched_param(0))
    if os.getpriority(os.PRIO_PROCESS, thread) != wanted.nice:
        os.setpriority(os.PRIO_PROCESS, thread, wanted.nice)


def _put_oom_back(wanted: int) -> bool:
    """Put back the process's place when memory is short; whether it differed.

    Others can change it only while the process starts: later nobody but root may write there. It is
    opened to ourselves for this. In a container that may not lower it, systemd left it at 0.
    """
    found = int(_OOM.read_text("ascii"))
    for value in (wanted, 0):
        if found <= value:
            break
        syscalls.set_dumpable(dumpable=True)
        try:
            _OOM.write_text(f"{value}", "ascii")
        except PermissionError:
            continue
        finally:
            syscalls.set_dumpable(dumpable=False)
        return True
    return False
