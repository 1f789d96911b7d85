"""Say how a unit failed, and what is wrong with its files, in systemd's own names. Pure.

Says nothing that the unit logged, and nothing that its files say but the names of settings.
"""

from __future__ import annotations

import re
import signal
from typing import Final

from harmony_agent.core.actions import Wait
from harmony_agent.kinds.systemd_unit.facts import wanted_files
from harmony_agent.topology.units import REFUSED, RUNNING, Complaint, Unit
from scores.systemd_unit import SystemdUnit

NAMED: Final = 3
"""Number of faults that a message names before it counts the rest."""
STATUSES: Final = {
    number: name
    for first, names in (
        (1, "FAILURE INVALIDARGUMENT NOTIMPLEMENTED NOPERMISSION NOTINSTALLED NOTCONFIGURED"),
        (7, "NOTRUNNING"),
        (64, "USAGE DATAERR NOINPUT NOUSER NOHOST UNAVAILABLE SOFTWARE OSERR OSFILE CANTCREAT"),
        (74, "IOERR TEMPFAIL PROTOCOL NOPERM CONFIG"),
        (200, "CHDIR NICE FDS EXEC MEMORY LIMITS OOM_ADJUST SIGNAL_MASK STDIN STDOUT CHROOT"),
        (211, "IOPRIO TIMERSLACK SECUREBITS SETSCHEDULER CPUAFFINITY GROUP USER CAPABILITIES"),
        (219, "CGROUP SETSID CONFIRM STDERR"),
        (224, "PAM NETWORK NAMESPACE NO_NEW_PRIVILEGES SECCOMP SELINUX_CONTEXT PERSONALITY"),
        (231, "APPARMOR ADDRESS_FAMILIES RUNTIME_DIRECTORY"),
        (235, "CHOWN SMACK_PROCESS_LABEL KEYRING STATE_DIRECTORY CACHE_DIRECTORY"),
        (240, "LOGS_DIRECTORY CONFIGURATION_DIRECTORY NUMA_POLICY CREDENTIALS BPF"),
        (255, "EXCEPTION"),
    )
    for number, name in enumerate(names.split(), first)
}
"""Exit statuses that `systemd-analyze exit-status` names."""
RESULTS: Final = {
    "success": "it ended well",
    "resources": "the system lacked something to start it",
    "protocol": "it didn't do what its Type= asks for",
    "timeout": "timeout: it took longer than its unit allows",
    "watchdog": "watchdog: it gave no sign of life within WatchdogSec=",
    "oom-kill": "oom-kill: the kernel ran out of memory and ended it",
    "start-limit-hit": "start-limit-hit: it was started too often",
    "exec-condition": "exec-condition: its ExecCondition= doesn't hold",
    "trigger-limit-hit": "trigger-limit-hit: it was triggered too often",
    "service-start-limit-hit": "service-start-limit-hit: the service that it starts was started "
    "too often",
    "unit-start-limit-hit": "unit-start-limit-hit: the unit that it starts was started too often",
    "mount-start-limit-hit": "mount-start-limit-hit: it was mounted too often",
    "unmounted": "unmounted: somebody else unmounted it",
}
"""Results of systemd that aren't told by an exit status or a signal."""
_SETTING: Final = re.compile(r"\s*([A-Z][A-Za-z]{0,63})\s*=[^=\s]")
"""The name of a setting; by its form no piece of a key or a password in base64."""


def how(unit: Unit) -> str:
    """Tell how its last run ended: ``exit status 203/EXEC: sleeep: no such file or directory``."""
    step = f"{unit.step}=: " if unit.step else ""
    if unit.result == "exit-code" and unit.exit_status:
        name = STATUSES.get(unit.exit_status)
        status = f"{unit.exit_status}/{name}" if name else str(unit.exit_status)
        return f"{step}exit status {status}" + (f": {unit.spawn}" if unit.spawn else "")
    if unit.result in ("signal", "core-dump") and unit.exit_status > 128:
        dumped = ", with a core dump" if unit.result == "core-dump" else ""
        return f"{step}ended by {_signal(unit.exit_status - 128)}{dumped}"
    return RESULTS.get(unit.result, unit.result)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals, which have no name of their own
        return f"signal {number}"


def is_refused(unit: Unit) -> bool:
    """Return whether systemd refuses the files of a unit that doesn't run. It reads them anew at
    each look, and systemd 252 asks for a reload for ever where there are drop-ins.
    """
    idle = unit.active_state not in RUNNING and unit.active_state != "activating"
    return unit.load_state in REFUSED and idle


def invalid(spec: SystemdUnit, unit: Unit, directory: str) -> Wait:
    """Say what systemd refuses of the unit's files."""
    ours = wanted_files(spec)
    faults = [_fault(one, spec, ours, directory) for one in unit.complaints]
    more = f"; and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
    told = "; ".join(faults[:NAMED]) + more
    text = f"systemd refuses the files of {unit.name} ({unit.load_state}): " + (
        told or f"see `systemctl status {unit.name}`"
    )
    return Wait("UnitInvalid", text, phase="Failed" if ours else "Blocked", seconds=300.0)


def _fault(one: Complaint, spec: SystemdUnit, ours: dict[str, str], directory: str) -> str:
    """A fault with its place, as its author knows it, and the name of the setting on that line."""
    if not one.line:
        return one.fault
    place = one.path.removeprefix(f"{directory}/")
    if place not in ours:
        return f"{one.path}:{one.line}: {one.fault}"
    file = "content" if place == spec.name else f"dropins {place.rpartition('/')[2]}"
    return f"line {one.line} of {file}{_setting(ours[place], one.line)}: {one.fault}"


def _setting(text: str, number: int) -> str:
    """The setting that a line belongs to, perhaps as the continuation of others."""
    lines = text.split("\n")[:number]
    while len(lines) > 1 and lines[-2].endswith("\\"):
        lines.pop()
    found = _SETTING.match(lines[-1])
    return f" ({found[1]}=)" if found else ""
