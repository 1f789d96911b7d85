"""Forks real commands of the fleet, with all imports done, and ends each by SIGKILL at the step
that it is told.

A step is the first time at a line of the code that acts (`TRACED`), or the moment before or after a
request to NATS, each time. The kill is a real one, so what is left is what a kill leaves: children
of the command live on.

A program: each line on standard input is ``{"words": ["apply"], "at": n, "what": "steps"}``; it
runs the command to its end and tells ``{"code": …, "steps": …}``, with minus the signal as code,
and the steps that it got to.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final, Literal

from harmony_fleet.cli.options import guarded
from harmony_fleet.commands import fleet, forget, rollout, upgrade
from harmony_fleet.commands.common import Common
from harmony_fleet.nats import bounded
from harmony_fleet.nats.connection import Connection
from harmony_fleet.output.render import Output
from harmony_fleet.rollout import apply, fleet_apply
from harmony_fleet.rollout.runs import follow, store
from harmony_fleet.roster import file
from harmony_fleet.roster.model import Roster
from harmony_fleet.storage import durable, lock
from scores.manifest import Manifest, WireManifest
from scores.status import DeploymentStatus, DeviceInfo
from scores.task_run import TaskRun

TRACED: Final = {
    module.__file__
    for module in (fleet, rollout, fleet_apply, apply, bounded, file, lock, durable, follow, store)
}
_PR_SET_PDEATHSIG: Final = 1
What = Literal["steps", "writes", "requests"]


class Steps:
    """Counts steps into shared memory, and ends this process at number `at`; 0 never."""

    def __init__(self, at: int, seen: int) -> None:
        self._at = at
        self._seen = seen
        self._count = 0
        self._lines: set[tuple[str, int]] = set()

    def step(self) -> None:
        self._count += 1
        os.pwrite(self._seen, self._count.to_bytes(4, "big"), 0)
        if self._count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        """For ``sys.settrace``."""
        if frame.f_code.co_filename not in TRACED:
            return None
        place = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and place not in self._lines:
            self._lines.add(place)
            self.step()
        return self.trace


def watch_messages(steps: Steps, what: What) -> None:
    """Have the moments before and after each request counted; of `writes`, only those that write a
    key. Of `requests` nothing else counts.
    """
    original = Connection.request

    async def request(self: Connection, subject: str, *words: Any, **named: Any) -> bytes:
        counts = what != "writes" or subject.startswith("$KV.")
        if counts:
            steps.step()
        answer = await original(self, subject, *words, **named)
        if counts:
            steps.step()
        return answer

    Connection.request = request  # type: ignore[method-assign]


def one_at_a_time() -> None:
    """Writes in sequence, so that a kill falls between any two of them."""
    bounded.AT_ONCE = 1  # type: ignore[misc]
    follow.LOOK_SECONDS = 0.02  # type: ignore[misc]


def command(order: Mapping[str, Any], seen: int) -> int:
    """The forked child."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    steps = Steps(order["at"], seen)
    one_at_a_time()
    watch_messages(steps, order["what"])
    if order["what"] == "steps":
        sys.settrace(steps.trace)
    return run(*order["words"])


def run(verb: str, *words: str) -> int:
    """What the command line would call."""
    common = Common(output=Output.JSON)
    if verb == "apply":
        return int(guarded(common, lambda: rollout.apply(common, rollout.Apply(wait_seconds=60))))
    if verb == "verify":
        return int(guarded(common, lambda: fleet.doctor(common, verify=True)))
    if verb == "forget":
        return int(guarded(common, lambda: forget.forget(common, *words, force=False)))
    if verb == "watch":
        return int(guarded(common, lambda: upgrade.watch(common, *words)))
    bounds = {
        "deadline": 600.0,
        "max_unavailable": 2,
        "canary": 1,
        "dry_run": False,
        "watch": False,
    }
    start = upgrade.Start(devices=(), selectors=(), device_class=None, everywhere=True, **bounds)  # type: ignore[arg-type]
    return int(guarded(common, lambda: upgrade.start(common, start)))


def main() -> None:
    """Serve until standard input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for model in (Roster, Manifest, WireManifest, DeploymentStatus, DeviceInfo, TaskRun):
        model.model_rebuild()
    gc.freeze()
    seen = os.memfd_create("steps")
    for line in sys.stdin:
        order = json.loads(line)
        os.pwrite(seen, bytes(4), 0)
        child = os.fork()
        if not child:
            code = 70
            try:
                code = command(order, seen)
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(
            json.dumps({"code": code, "steps": int.from_bytes(os.pread(seen, 4, 0), "big")}),
            flush=True,
        )


class Killer:
    """The program above, from a test. Use as ``async with Killer(environment) as killer``."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Killer:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.killed",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | self._environment,
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.communicate()

    async def __call__(self, *words: str, at: int = 0, what: What = "steps") -> tuple[int, int]:
        """Run the command, killed at step `at`; its exit code and how many steps it got to."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"words": words, "at": at, "what": what}).encode() + b"\n")
        await process.stdin.drain()
        told = json.loads(await process.stdout.readline())
        return told["code"], told["steps"]


if __name__ == "__main__":
    main()
