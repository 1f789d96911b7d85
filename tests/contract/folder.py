"""One device on a real folder: the whole engine with the real Files adapter, and time that passes
only while all wait.

The adapter's threads are replaced by the loop's own, so that a test can stop the agent between any
two of its steps.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from harmony_agent.adapters.files.local_files import LocalFiles
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.path_errors import transient
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.kinds.file import FileReconciler
from harmony_agent.topology.control_plane import StoredManifest
from tests.fakes.files import FakeObjects
from tests.fakes.ledger import FakeLedger
from tests.unit.engine.world import World

T = TypeVar("T")


class Knife:
    """Stops the agent ahead of its `at`-th step from now: a change of the device, or a write of the
    ledger.
    """

    def __init__(self) -> None:
        self.left = 0
        self.fell = False
        self._dead = asyncio.Event()

    def at(self, steps: int) -> None:
        self.left, self.fell, self._dead = steps, False, asyncio.Event()

    def bury(self) -> None:
        """End what stands before the step: some of it shields itself from being cancelled."""
        self._dead.set()

    async def step(self) -> None:
        """Go on, or never again."""
        await asyncio.sleep(0)
        if self.left:
            self.left -= 1
            self.fell = not self.left
        if self.fell:
            await self._dead.wait()
            raise asyncio.CancelledError


class InLoop:
    """`BoundedExecutor` without threads."""

    def __init__(self, knife: Knife) -> None:
        self._knife = knife

    async def run(
        self, lane: str, key: str, doing: str, seconds: float, work: Callable[[Job], T]
    ) -> T:
        del lane, key, seconds
        await self._knife.step()
        try:
            return work(Job())
        except Exception as error:
            translated = transient(error, doing)  # what the real ones do
            if translated is None:
                raise
            raise translated from error


class CutLedger(FakeLedger):
    """A ledger whose writes the knife may fall before."""

    def __init__(self, knife: Knife) -> None:
        super().__init__()
        self._knife = knife

    async def _write(self) -> None:
        await self._knife.step()
        await super()._write()

    async def accept(self, manifest: StoredManifest) -> None:
        await super().accept(manifest)

    async def put(self, records: Any) -> None:
        await super().put(records)


class Folder(World):
    """`World` with `root` as a real directory. `snapshot` shows what is in it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(self._make)
        self.root, self.state = directory / "root", directory / "state"
        self.root.mkdir(parents=True)
        self.state.mkdir()
        self.clock.offset = time.time()
        self.knife = Knife()
        self.ledger = CutLedger(self.knife)

    def _make(self, book: DeviceState) -> dict[str, Any]:
        self.adapter = LocalFiles([str(self.root)], str(self.state), self.clock)
        self.adapter._threads = InLoop(self.knife)  # type: ignore[assignment]  # instead of threads
        store = DeviceStateView(book, "File")
        return {"File": FileReconciler(self.adapter, store, FakeObjects(), roots=[str(self.root)])}

    async def stop(self) -> None:
        """The agent ends, wherever it is; also ahead of a step that the knife keeps it from."""
        self.knife.bury()
        await super().stop()

    async def restart(self) -> None:
        """Another life of the agent: what it remembers is gone, the ledger and the folder stay."""
        await self.stop()
        await self.adapter.close()
        self.knife.at(0)
        await self.start()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def file(self, name: str, at: str, **fields: Any) -> dict[str, Any]:
        """A Score; `at` is below the root."""
        return {"kind": "File", "name": name, "path": self.path(at), **fields}

    def place(self, at: str, what: str) -> None:
        """Somebody else puts something there: ``dir``, ``-> target`` or a file with that
        content.
        """
        path = self.root / at
        path.parent.mkdir(parents=True, exist_ok=True)
        if what == "dir":
            path.mkdir(exist_ok=True)
        elif what.startswith("-> "):
            path.symlink_to(what[3:])
        else:
            path.write_text(what)
            path.chmod(0o640)

    def snapshot(self) -> dict[str, str]:
        """Everything below the root, by its path there: as `place` takes it."""
        found = {}
        for folder, names, files in os.walk(self.root):
            for name in (*names, *files):
                path = os.path.join(folder, name)
                found[os.path.relpath(path, self.root)] = _show(path)
        return found

    def kept(self) -> list[str]:
        """Copies of what others had, below the state directory."""
        return sorted(path.name for path in self.state.glob("former/*"))

    def records(self) -> dict[Key, OwnershipRecord]:
        return dict(self.ledger.owned)


def _show(path: str) -> str:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"-> {os.readlink(path)}"
    return "dir" if stat.S_ISDIR(mode) else Path(path).read_text()
