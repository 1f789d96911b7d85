"""A unit or a container is killed: how long until it runs again, on a disposable device; and memory
with podman.

Beside each a bare loop in the same device that starts its own as soon as the manager's or podman's
event comes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from scores import SystemdUnit
from scores.base import Score
from tests.bench.report import Row, median
from tests.bench.resting import ALL_LIBRARIES, COUNT
from tests.bench.world import memory
from tests.device.image import VENV
from tests.device.lab import Lab, missing
from tests.device.life import CONFIG, UNITS, Life, eventually, living, page
from tests.device.pods import container
from tests.device.prepare import BUSYBOX, USER

KILLS: Final = 15
SUITE: Final = "bookworm"
EXTRA: Final = 0.010
"""Seconds that the agent may need beyond the bare loop."""
SLEEP: Final = "[Service]\nExecStart=/bin/sleep {}\n"
_PYTHON: Final = f"{VENV}/bin/python"


def measure() -> list[Row]:
    """Rows for units, containers, and memory; or that they were left out, and why."""
    lacking = "needs root" if os.geteuid() else "needs " + ", ".join(missing()) if missing() else ""
    if lacking:
        what = (
            "unit killed: runs again",
            "container killed: runs again",
            "idle, all kinds: resident",
        )
        return [Row(name, "-", "-", "-", "-", None, lacking) for name in what]
    with Lab() as lab, living(lab, SUITE) as life:
        life.device.write(
            "/tmp/bare_events.py",
            Path(__file__).with_name("bare_events.py").read_text(),
            mode=0o755,
        )
        units = _row("unit", life, _units)
        containers = _row("container", life, _containers)
        try:
            return [units, containers, *_memory(life)]
        except (OSError, AssertionError) as error:
            name = f"idle, {COUNT} resources, all kinds: resident"
            return [
                units,
                containers,
                Row(name, "-", "-", "-", "-", None, f"could not be measured: {error!r}"),
            ]


def _row(kind: str, life: Life, make: Callable[[Life], None]) -> Row:
    make(life)
    took, bare = [], []
    names = [f"bare{at}.service" if kind == "unit" else f"bare{at}" for at in range(KILLS)]
    with _loop(life, kind, names):
        for at in range(KILLS):
            took.append(_kill(_mark(kind, "ours", at)))
            bare.append(_kill(_mark(kind, "bare", at)))
    ours, floor = median(took), median(bare)
    return Row(
        f"{kind} killed: runs again, p50 of {KILLS}",
        f"{floor * 1e3:.1f} ms",
        f"{ours * 1e3:.1f} ms",
        f"{ours / floor:.2f}",
        "at most the floor + 10 ms",
        ours <= floor + EXTRA,
        f"{(ours - floor) * 1e3:+.1f} ms; the floor is the event itself and the start that answers it",
    )


def _mark(kind: str, whose: str, at: int) -> str:
    """The argument by which its process is known."""
    return f"{77 if kind == 'unit' else 88}{1 if whose == 'ours' else 2}{at:03}"


def _units(life: Life) -> None:
    ours = [
        SystemdUnit.model_validate(
            {"name": f"ours{at}.service", "content": SLEEP.format(_mark("unit", "ours", at))}
        )
        for at in range(KILLS)
    ]
    life.converge(*ours, deployment="units")
    for at in range(KILLS):
        life.device.write(
            f"{UNITS}/bare{at}.service", SLEEP.format(_mark("unit", "bare", at)), owner=USER
        )
    life.device.systemctl("daemon-reload", user=True)
    life.device.systemctl("start", *(f"bare{at}.service" for at in range(KILLS)), user=True)


def _containers(life: Life) -> None:
    ours = [
        container(f"ours{at}", "/bin/sleep", _mark("container", "ours", at)) for at in range(KILLS)
    ]
    life.converge(*ours, deployment="containers")
    for at in range(KILLS):
        words = [
            "run",
            "--detach",
            f"--name=bare{at}",
            BUSYBOX,
            "/bin/sleep",
            _mark("container", "bare", at),
        ]
        life.device.podman(*words)


@contextlib.contextmanager
def _loop(life: Life, kind: str, names: list[str]) -> Iterator[None]:
    """The bare loop, while it runs, in the device as the agent's user."""
    words = [
        "systemd-run",
        "--user",
        "--quiet",
        f"--unit=bare-{kind}",
        _PYTHON,
        "/tmp/bare_events.py",
        kind,
        *names,
    ]
    life.device.run(words, user=USER)
    eventually(
        lambda: "ready" in life.device.messages(unit=f"bare-{kind}.service", user=True),
        "the bare loop is ready",
    )
    try:
        yield
    finally:
        life.device.systemctl("stop", f"bare-{kind}.service", user=True)


def _kill(mark: str) -> float:
    """Seconds from the kill of the process to the next one like it."""
    old = _find(mark, set())
    assert old, f"nothing runs with {mark}"
    known = _pids()
    begun = time.perf_counter()
    os.kill(old, signal.SIGKILL)
    while time.perf_counter() - begun < 60:
        found = _pids() - known
        if found and _find(mark, known):
            took = time.perf_counter() - begun
            time.sleep(0.3)
            return took
    raise TimeoutError(f"nothing with {mark} runs again")


def _pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()}


def _find(mark: str, known: set[int]) -> int:
    want = [b"/bin/sleep", mark.encode()]
    for pid in _pids() - known:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2] == want:
                return pid
    return 0


def _memory(life: Life) -> list[Row]:
    """100 resources, of them a unit and a container, in an agent of all kinds, started anew; seen
    from the host.
    """
    config: dict[str, dict[str, Any]] = {name: dict(part) for name, part in CONFIG.items()}
    del config["intervals"]
    config["agent"]["kinds"] = ["File", "SystemdUnit", "Container", "SystemUpgrade"]
    for deployment in ("units", "containers"):
        life.remove(deployment)
    life.device.agent.configure(config)
    life.device.agent.restart()
    files: list[Score] = [
        page(f"{at}", name=f"p{at}", path=f"/srv/life/p{at}") for at in range(COUNT - 2)
    ]
    unit = SystemdUnit.model_validate({"name": "one.service", "content": SLEEP.format(1_000_000)})
    life.converge(*files, unit, container("box"), deployment="all")
    source = Path(__file__).with_name("floors.py").read_text()
    life.device.write("/tmp/floors.py", source, mode=0o755)
    words = [
        "systemd-run",
        "--user",
        "--quiet",
        "--unit=bare-imports",
        _PYTHON,
        "/tmp/floors.py",
        "imports",
    ]
    life.device.run([*words, *ALL_LIBRARIES], user=USER)
    time.sleep(25)  # relists and heartbeats have been
    here = os.readlink(f"/proc/{_find('1000000', set())}/ns/pid")
    rss, pss = memory(_process(here, "harmony-agent", "run"))
    floor_rss, floor_pss = memory(_process(here, "/tmp/floors.py"))
    rows = []
    for what, floor, ours in (("resident", floor_rss, rss), ("proportional", floor_pss, pss)):
        met = ours <= 1.15 * floor and ours <= 50
        target = "at most 1.15 x, 50 MB"
        name = f"idle, {COUNT} resources, all kinds: {what}"
        rows.append(
            Row(name, f"{floor:.1f} MB", f"{ours:.1f} MB", f"{ours / floor:.2f}", target, met)
        )
    return rows


def _process(namespace: str, *words: str) -> int:
    """The youngest process of the device's of which each of `words` stands in its command line."""
    for pid in sorted(_pids(), reverse=True):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            same = os.readlink(f"/proc/{pid}/ns/pid") == namespace
            if same and all(any(word in part for part in line) for word in words):
                return pid
    raise ProcessLookupError(" ".join(words))
