"""Forks agents that do a pass over one File, or over a set, on a real directory, so that a test can
have each of them killed somewhere.

Run as a program with a socket as standard output: reads one JSON scenario a line, forks, and tells
of the child's pid, its ledger after each change, how the pass ended, and the exit status. The child
lets itself be traced and waits for SIGUSR1. What it needs is imported once, before the forks.
"""

from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from harmony_agent.adapters.files.local_files import LocalFiles
from harmony_agent.adapters.posix import syncing
from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.resources import Facts, OwnershipRecord
from harmony_agent.kinds.file import FileReconciler
from scores.file import File
from tests.fakes import drive
from tests.fakes.files import FakeObjects
from tests.fakes.store import FakeStore

_PR_SET_PTRACER: Final = 0x59616D61


class Clock:
    """The machine's."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def synchronized(self) -> bool | None:
        return None


class Ledger(FakeStore):
    """Tells of the record after each change, as a real ledger makes it durable."""

    def __init__(self, tell: Callable[[OwnershipRecord | None], None]) -> None:
        super().__init__("File")
        self._tell = tell

    def claim(self, name: str, *args: Any, **kwargs: Any) -> OwnershipRecord:
        record = super().claim(name, *args, **kwargs)
        self._tell(record)
        return record

    async def note(self, name: str, facts: Facts) -> None:
        await super().note(name, facts)
        self._tell(self.record(name))

    def settled(self, name: str, *args: Any, **kwargs: Any) -> None:
        super().settled(name, *args, **kwargs)
        self._tell(self.record(name))

    def forget(self, name: str) -> None:
        super().forget(name)
        self._tell(None)


class Agent:
    """A File reconciler over a real directory. `tell` hears of the ledger's record."""

    def __init__(
        self, directory: str, tell: Callable[[OwnershipRecord | None], None] = lambda _record: None
    ) -> None:
        self.root = f"{directory}/root"
        self.store = Ledger(tell)
        files = LocalFiles([self.root], f"{directory}/state", Clock())
        self.kind = FileReconciler(files, self.store, FakeObjects(), roots=[self.root])

    async def reach(self, fields: dict[str, Any] | None) -> str:
        """Want this (None: nothing) in a pass; "" when it is as wanted, else the reason. ``path``
        is below the root.
        """
        self.want(fields)
        return await self._one("a")

    async def reach_all(self, files: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Want all of these, by name, in passes side by side; each reason that isn't "", by name."""
        for name, fields in files.items():
            path = f"{self.root}/{fields['path']}"
            self.store.set_desired(File(name=name, **{**fields, "path": path}))
        found = await asyncio.gather(*map(self._one, files))
        return {name: reason for name, reason in zip(files, found, strict=True) if reason}

    async def _one(self, name: str) -> str:
        try:
            result = await drive.run(self.kind, self.store, name)
        except ResourceError as error:
            return error.reason
        return "" if result.plan == Converged() else getattr(result.plan, "reason", "StillActing")

    def want(self, fields: dict[str, Any] | None) -> None:
        if fields is None:
            self.store.unset("a")
        else:
            self.store.set_desired(
                File(name="a", **{**fields, "path": f"{self.root}/{fields['path']}"})
            )


def unpack(record: str) -> Any:
    """The record that a child told of, or the records that it is given."""
    return pickle.loads(base64.b64decode(record))


def _child(out: socket.socket, scenario: dict[str, Any]) -> None:
    def tell(record: OwnershipRecord | None) -> None:
        _send(out, "record", base64.b64encode(pickle.dumps(record)).decode())

    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    if not scenario["together"]:
        syncing._OTHERS_DIRTY = -(1 << 60)  # as where others wrote much: no call for all
    agent = Agent(scenario["directory"], tell)
    for record in unpack(scenario["records"]):
        agent.store.put(record)
    _send(out, "pid", os.getpid())
    signal.sigwait([signal.SIGUSR1])
    reach = agent.reach_all if scenario["many"] else agent.reach
    _send(out, "ended", asyncio.run(reach(scenario["wanted"])))


def _send(out: socket.socket, what: str, value: object) -> None:
    out.sendall(json.dumps([what, value]).encode() + b"\n")


def main() -> None:
    """Serve until the input ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with (
        tempfile.TemporaryDirectory() as warm
    ):  # so that no child imports or builds anything while it is traced
        os.mkdir(f"{warm}/root")
        asyncio.run(Agent(warm).reach({"path": "a", "content": ""}))
    out = socket.socket(fileno=os.dup(1))
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _child(out, json.loads(line))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        _send(out, "status", status)


if __name__ == "__main__":
    main()
