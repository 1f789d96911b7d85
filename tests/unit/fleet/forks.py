"""Forks that change a roster, or make an authority: many at once, or one that is killed at its N-th
line. A process of its own, no threads.

python -m tests.unit.fleet.forks race HOME COUNT       prints how many had which exit code
python -m tests.unit.fleet.forks inits HOME COUNT      the same of server init
python -m tests.unit.fleet.forks kill HOME             prints what each kill left
python -m tests.unit.fleet.forks holder HOME           takes the lock, says so, and never lets go
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from harmony_fleet.authority import setup
from harmony_fleet.errors import HarmonyError
from harmony_fleet.roster import file
from harmony_fleet.roster.edit import add
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.storage import durable, lock

TRACED = (file.__file__, durable.__file__, lock.__file__)


def mutate(home: Path, name: str, generation: int) -> int:
    try:
        RosterFile(home).mutate(generation, add("devices", [{"name": name, "class": "web"}]))
    except HarmonyError as error:
        return int(error.exit_code)
    return 0


def init(home: Path, number: int) -> int:
    """Servers' folders of each one's own, but for two that have one together."""
    wanted = setup.ServerRequest("fleet", home.parent / f"nats-{number // 2}", ("localhost",))
    try:
        setup.init(home, setup.checked(wanted))
    except HarmonyError as error:
        return int(error.exit_code)
    return 0


def race(count: int, work: Callable[[int], int]) -> dict[str, int]:
    """All wait for one byte, then go."""
    ready, go = os.pipe()
    children = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.read(ready, 1)
            os._exit(work(number))
        children.append(pid)
    os.close(go)
    codes = Counter(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
    return {str(code): times for code, times in codes.items()}


def killer(at: int) -> Any:
    seen = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def kill(home: Path) -> list[dict[str, Any]]:
    """Kill a mutation at each of its lines, and tell what is left each time."""
    told = []
    first = (home / "fleet/roster.yaml").read_bytes(), (home / "fleet/roster.seal").read_bytes()
    for at in range(1, 10_000):
        (home / "fleet/roster.yaml").write_bytes(first[0])
        (home / "fleet/roster.seal").write_bytes(first[1])
        pid = os.fork()
        if pid == 0:
            sys.settrace(killer(at))
            os._exit(mutate(home, "pi-1", 1))
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
            return told
        with RosterFile(home).locked(5) as roster:
            left = sorted(os.listdir(home / "fleet"))
        told.append({"generation": roster.generation, "devices": len(roster.devices), "left": left})
    raise AssertionError("a mutation without end")


def hold(home: Path) -> None:
    with RosterFile(home).locked():
        print("locked", flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    what, place = sys.argv[1], Path(sys.argv[2])
    if what == "holder":
        hold(place)
    works = {
        "race": lambda number: mutate(place, f"pi-{number}", 1),
        "inits": lambda number: init(place, number),
    }
    print(json.dumps(race(int(sys.argv[3]), works[what]) if what in works else kill(place)))
