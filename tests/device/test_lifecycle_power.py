"""The power goes in the middle of each action of each kind: the agent is stopped behind its nth
step, then the plug is pulled, and what was not synced is lost.

A step is a system call that makes something durable, changes a directory, or asks systemd or podman
for something. One disk a suite; the whole range of steps is spread over the cuts.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from scores.base import Score
from tests.device.commands import CommandError
from tests.device.lab import Lab
from tests.device.life import PI, STATE, UNITS, Life, eventually, living, page, web
from tests.device.pods import container

STEPS = "fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,symlink,symlinkat,mkdir,mkdirat,sendmsg,sendto"
CUTS = {"bookworm": range(2, 44, 7), "trixie": range(5, 44, 14)}
"""Behind which step of a thread; a generation has some forty in the busiest one."""


def scores(number: int) -> tuple[Score, ...]:
    """Every kind differs with the number: a file that moves, a unit with a drop-in, a container
    that is made anew.
    """
    text = f"cut {number}\n" * 5000
    return (
        page(text, path=f"/srv/life/{number % 2}/page"),
        web(
            str(number),
            dropins={"10-more.conf": f"[Service]\nEnvironment=NUMBER={number}\n"},
            enabled=True,
        ),
        container("box", env={"NUMBER": str(number)}),
    )


def is_exactly(life: Life, number: int) -> bool:
    """Whether the device is as the manifest of that number says, and nothing else is left of
    others.
    """
    try:
        return looks_exactly(life, number)
    except CommandError:
        return False  # what is being changed went away under the look


def looks_exactly(life: Life, number: int) -> bool:
    device = life.device
    path = f"/srv/life/{number % 2}/page"
    if not device.exists(path) or device.read_text(path) != f"cut {number}\n" * 5000:
        return False
    unit = life.unit(
        "web.service",
        "Description",
        "ActiveState",
        "NeedDaemonReload",
        "Environment",
        "UnitFileState",
    )
    if unit != [str(number), "active", "no", f"NUMBER={number}", "enabled"]:
        return False
    if (
        not life.box()[2]
        or f"NUMBER={number}"
        not in device.podman("inspect", "--format={{.Config.Env}}", "box").stdout
    ):
        return False
    return device.run(["find", "/srv/life", "-type", "f"]).stdout.split() == [path]


def stopped_behind(life: Life, step: int, trace: Path) -> subprocess.Popen[bytes]:
    """strace, which stops the agent behind its `step`th step from now on."""
    inject = f"inject={STEPS}:signal=STOP:when={step}"
    argv = [
        "strace",
        "-f",
        "-q",
        "-p",
        str(life.device.host_pid(life.device.agent.pid)),
        "-o",
        str(trace),
    ]
    tracer = subprocess.Popen([*argv, "-e", f"trace={STEPS}", "-e", inject])
    eventually(lambda: traced(life), "strace is there")
    return tracer


def traced(life: Life) -> bool:
    status = Path(f"/proc/{life.device.host_pid(life.device.agent.pid)}/status").read_text(
        encoding="utf-8"
    )
    return "TracerPid:\t0\n" not in status


def converged(life: Life, generation: int) -> bool:
    status = life.control.status(PI, "life")
    return status is not None and (status.generation, status.phase) == (generation, "Converged")


def cut_behind(life: Life, number: int, step: int, trace: Path) -> bool:
    """Cut the power behind a step on the way to that generation; whether there was such a step."""
    tracer = stopped_behind(life, step, trace)
    try:
        generation = life.put(*scores(number))
        deadline = time.monotonic() + 90
        while not (hit := "stopped by" in trace.read_text(encoding="utf-8", errors="replace")):
            if converged(life, generation):
                break
            assert time.monotonic() < deadline, f"neither stopped behind step {step} nor done"
            time.sleep(0.05)
    finally:
        life.device.power_cut()
        tracer.wait(60)
    eventually(lambda: is_exactly(life, number), f"as wanted after a cut behind step {step}", 120)
    eventually(lambda: converged(life, generation), "and it is said")
    left = life.device.run(
        ["find", "/srv", UNITS, STATE, "-name", ".harmony-*", "-o", "-name", "*.new"]
    ).stdout
    assert left == "", f"left behind step {step}"
    return hit


@pytest.mark.timeout(600)
def test_the_power_goes_in_the_middle_of_everything(lab: Lab, suite: str) -> None:
    with living(lab, suite, durable=True) as life:
        device = life.device
        life.converge(*scores(0))
        device.run(["sync"])  # the installation, not what the agent does later
        hits = [
            cut_behind(life, n, step, lab.folder / f"trace-{n}")
            for n, step in enumerate(CUTS[suite], 1)
        ]
        assert sum(hits) > len(hits) / 2
        life.remove()
        assert device.podman("ps", "--all", "--external", "--quiet").stdout == ""
        assert device.run(["find", "/srv/life", "-type", "f"], check=False).stdout == ""
        assert not device.exists(f"{UNITS}/web.service")
        assert not device.exists(f"{UNITS}/web.service.d")
