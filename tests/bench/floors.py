"""Bare processes that do the same work with nothing around it: what a row is measured against.

python -m tests.bench.floors watch URL FOLDER      a watcher that writes durably, commits one row, and answers
python -m tests.bench.floors repair FOLDER …       an inotify loop that repairs durably
python -m tests.bench.floors imports LIBRARY …     imports them, says so, and waits
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import os
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import Final

DESIRED: Final = "floor-desired"
ACTUAL: Final = "floor-actual"
_EVENT: Final = struct.Struct("iIII")
_IN_CLOSE_WRITE: Final = 0x8


def write_durably(folder: int, name: str, data: bytes) -> None:
    """Beside, fsync, rename, fsync of the directory."""
    beside = f".{name}.new"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=folder)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


async def watch(url: str, folder: str) -> None:
    """nats-py's own watch of one bucket; for each value: the file, one row, an answer in the other
    bucket.
    """
    import nats

    client = await nats.connect(url)
    js = client.jetstream()
    desired, actual = await js.key_value(DESIRED), await js.key_value(ACTUAL)
    database = sqlite3.connect(f"{folder}/floor.db", isolation_level=None)
    database.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (k TEXT PRIMARY KEY, v)"
    )
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    watcher = await desired.watchall()
    print("ready", flush=True)
    while True:
        try:
            entry = await watcher.updates(timeout=60)
        except nats.errors.TimeoutError:  # nothing came for so long
            continue
        if entry is None:
            continue
        data = entry.value or b""
        write_durably(directory, "file", data)
        database.execute(
            "INSERT OR REPLACE INTO t VALUES (?, ?)", (entry.key, hashlib.sha256(data).hexdigest())
        )
        await actual.put(entry.key, data[-12:])


async def repair(folder: str) -> None:
    """Each file that is closed after writing and isn't as it was at the start is put back
    durably.
    """
    from harmony_agent.adapters.posix import syscalls

    wanted = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fd = syscalls.inotify_init()
    syscalls.inotify_add(fd, folder, _IN_CLOSE_WRITE)

    def changed() -> None:
        data, offset = os.read(fd, 65536), 0
        while offset < len(data):
            _watch, _mask, _cookie, length = _EVENT.unpack_from(data, offset)
            name = data[offset + 16 : offset + 16 + length].rstrip(b"\0").decode()
            offset += 16 + length
            want = wanted.get(name)
            with contextlib.suppress(FileNotFoundError):
                if want is not None and (Path(folder) / name).read_bytes() != want:
                    write_durably(directory, name, want)

    asyncio.get_running_loop().add_reader(fd, changed)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def imports(*libraries: str) -> None:
    """As a program that uses these libraries has them: imported, one model made, a loop that waits
    in a task group.

    The group is anyio's, which imports most of itself when the first one is made.
    """
    import anyio

    for library in libraries:
        importlib.import_module(library)
    from pydantic import BaseModel

    class Model(BaseModel):
        name: str
        number: int = 0

    Model.model_validate_json('{"name": "a"}')
    async with anyio.create_task_group():
        print(f"ready {time.monotonic()}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run({"watch": watch, "repair": repair, "imports": imports}[sys.argv[1]](*sys.argv[2:]))
