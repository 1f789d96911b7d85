"""What the unit says of the agent's process, and what is put back where somebody changed it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harmony_agent.adapters import process_guard
from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.process_guard import (
    ProcessGuard,
    UnitSettings,
    read_unit,
    settings_of,
)

MANAGER = UnitSettings(policy=0, nice=3, cpus=frozenset({0, 1}), oom=0, io=0)
SHOWN = """\
MainPID=7
CPUSchedulingPolicy=0
Nice=0
CPUAffinity=
OOMScoreAdjust=-250
IOSchedulingClass=2
IOSchedulingPriority=4
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({}, replace(MANAGER, oom=-250)),
        ({"Nice": "-5", "CPUSchedulingPolicy": "3"}, replace(MANAGER, oom=-250, nice=-5, policy=3)),
        ({"CPUAffinity": "0 2-4"}, replace(MANAGER, oom=-250, cpus=frozenset({0, 2, 3, 4}))),
        ({"IOSchedulingClass": "3", "IOSchedulingPriority": "7"}, replace(MANAGER, oom=-250, io=(3 << 13) + 7)),
        ({"MainPID": "8"}, None),
        ({"Nice": "?"}, None),
        ({"OOMScoreAdjust": ""}, None),
    ],
)  # fmt: skip
def test_the_unit_or_else_the_manager_says_how_it_is_to_be(
    lines: dict[str, str], expected: UnitSettings | None
) -> None:
    text = "".join(
        f"{name}={lines.get(name, value)}\n"
        for name, value in (line.split("=", 1) for line in SHOWN.splitlines())
    )
    assert read_unit(text, 7, MANAGER) == expected
    assert read_unit("", 7, MANAGER) is None


class Thread:
    """The kernel's word on the threads of this process, of which all are as this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: UnitSettings) -> None:
        self.now, self.may = wanted, True
        monkeypatch.setattr(process_guard, "settings_of", lambda _thread: self.now)
        monkeypatch.setattr(os, "getpriority", lambda _which, _thread: self.now.nice)
        for name, field in (
            ("sched_setaffinity", "cpus"),
            ("sched_setscheduler", "policy"),
        ):
            monkeypatch.setattr(os, name, self.setter(field))
        monkeypatch.setattr(
            os, "setpriority", lambda _w, thread, nice: self.setter("nice")(thread, nice)
        )
        monkeypatch.setattr(syscalls, "ioprio_set", self.setter("io"))
        monkeypatch.setattr(process_guard, "_put_oom_back", lambda _wanted: False)

    def setter(self, field: str) -> Callable[..., None]:
        def put(_thread: int, value: object, *_: object) -> None:
            if not self.may and field in ("nice", "policy"):
                raise PermissionError(1, "no")
            self.now = replace(self.now, **{field: value})  # type: ignore[arg-type]

        return put


def test_what_others_changed_is_put_back_told_and_kept_until_the_next_boot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    thread, guard = Thread(monkeypatch, MANAGER), ProcessGuard(tmp_path, "boot-1")
    assert guard.look(MANAGER)
    assert (guard.disturbed(), list(tmp_path.iterdir()), caplog.text) == ([], [], "")
    thread.now = UnitSettings(policy=5, nice=19, cpus=frozenset({0}), oom=0, io=3 << 13)
    assert guard.look(MANAGER)
    assert thread.now == MANAGER
    everything = ["CPUAffinity", "CPUSchedulingPolicy", "IOSchedulingClass", "Nice"]
    assert guard.disturbed() == everything
    assert "as the unit says again" in caplog.text
    assert ProcessGuard(tmp_path, "boot-1").disturbed() == everything
    assert ProcessGuard(tmp_path, "boot-2").disturbed() == []
    (tmp_path / "disturbed.json").write_text("[]")
    assert ProcessGuard(tmp_path, "boot-1").disturbed() == []


async def test_what_it_may_not_put_back_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    thread, guard, ended = Thread(monkeypatch, MANAGER), ProcessGuard(tmp_path, "boot-1"), []

    async def asked() -> UnitSettings:
        return MANAGER

    monkeypatch.setattr(process_guard, "ask_unit", asked)
    thread.now, thread.may = replace(MANAGER, nice=19), False
    await guard.run(lambda: ended.append(1))
    assert (ended, guard.disturbed()) == ([1], ["Nice"])
    assert "systemd starts it anew" in caplog.text


async def test_who_is_not_the_packages_unit_is_left_alone(tmp_path: Path) -> None:
    ended: list[int] = []
    await ProcessGuard(tmp_path, "boot-1").run(lambda: ended.append(1))
    assert (ended, list(tmp_path.iterdir())) == ([], [])


def test_the_kernel_does_as_it_is_told() -> None:
    """In a process of its own, with the real calls; up is more than a user may."""
    code = """
import json, os, pathlib
from harmony_agent.adapters import process_guard as guard
from harmony_agent.adapters.posix import syscalls
wanted = guard.settings_of(0)
os.sched_setaffinity(0, {min(wanted.cpus)})
if wanted.io is not None:
    syscalls.ioprio_set(os.getpid(), 3 << 13)
differ = sorted(guard._differences(os.getpid(), wanted))
guard._put_back(os.getpid(), wanted)
oom = pathlib.Path("/proc/self/oom_score_adj")
before = int(oom.read_text())
oom.write_text("900")
syscalls.set_dumpable(dumpable=False)
owner = os.stat("/proc/self/oom_score_adj").st_uid
back = guard._put_oom_back(before), int(oom.read_text()) == before, guard._put_oom_back(before)
print(json.dumps([differ, guard.settings_of(0) == wanted, owner, back]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    differ, same, owner, back = json.loads(done.stdout)
    expected = ["CPUAffinity"] if len(os.sched_getaffinity(0)) > 1 else []
    assert differ == [*expected, *(["IOSchedulingClass"] if settings_of(0).io is not None else [])]
    assert (same, owner, back) == (True, 0, [True, True, False])
