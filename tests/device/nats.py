"""A real nats-server in a lan, with JetStream on disk, and a way to it for the test's own process.

The server listens inside the lan's namespace only. systemd-socket-proxyd carries 127.0.0.1 of the
host into it, so that a test, and any program that it starts, reaches the same server as the
devices. Must not import a NATS client.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.device.claims import Run, kill_cgroup
from tests.device.network import GATEWAY, NATS_HOST, Lan
from tests.device.nspawn import start_in_cgroup
from tests.device.tools import HarnessError
from tests.halted import halt

PORT = 4222
_PROXY = "/lib/systemd/systemd-socket-proxyd"
_READY = "Server is ready"


def server_binary() -> str:
    """The nats-server of the development environment."""
    path = Path(sys.executable).with_name("nats-server")
    if not path.exists():
        raise HarnessError(
            "cannot start nats-server: it isn't beside this Python; make the environment again (make venv)"
        )
    return str(path)


class NatsServer:
    """The lan's server. Its store outlives stop, kill and restart; close() removes it."""

    def __init__(
        self,
        run: Run,
        lan: Lan,
        *,
        max_payload: int | None = None,
        sync_interval: str | None = None,
        extra: str = "",
    ) -> None:
        self._lan = lan
        self._server: subprocess.Popen[bytes] | None = None
        self._proxy: subprocess.Popen[bytes] | None = None
        name = run.unique("nats")
        self.folder = run.folder / name
        self.log = self.folder / "log"
        self._run, self._groups = run, (f"{name}-server", f"{name}-proxy")
        self._claims = [
            run.claim("tree", str(self.folder)),
            *(run.claim("cgroup", group) for group in self._groups),
        ]
        self.folder.mkdir()
        self.configure(max_payload=max_payload, sync_interval=sync_interval, extra=extra)
        self.host_port = 0

    @property
    def url(self) -> str:
        """Where devices reach it."""
        return f"nats://{NATS_HOST}:{PORT}"

    @property
    def host_url(self) -> str:
        """Where the test's process, and programs that it starts on the host, reach it."""
        return f"nats://127.0.0.1:{self.host_port}"

    def configure(
        self, *, max_payload: int | None = None, sync_interval: str | None = None, extra: str = ""
    ) -> None:
        """Write its configuration; takes effect at the next start. `extra` is nats-server's own
        syntax.
        """
        jetstream = [f"store_dir: {json.dumps(str(self.folder / 'store'))}"]
        jetstream += [f"sync_interval: {sync_interval}"] if sync_interval else []
        lines = [f'listen: "0.0.0.0:{PORT}"', f"jetstream {{ {', '.join(jetstream)} }}"]
        lines += [f"max_payload: {max_payload}"] if max_payload else []
        (self.folder / "nats.conf").write_text("\n".join([*lines, extra, ""]), encoding="utf-8")

    def start(self, timeout: float = 20) -> "NatsServer":
        """Start it, and return when it answers."""
        if self._server is not None and self._server.poll() is None:
            raise HarnessError("cannot start nats-server: it is running")
        begun = self.log.stat().st_size if self.log.exists() else 0
        argv = self._lan.enter(server_binary(), "--config", str(self.folder / "nats.conf"))
        self._server = start_in_cgroup(self._groups[0], argv, env=None, output=self.log)
        deadline = time.monotonic() + timeout
        while _READY not in self.log.read_text(encoding="utf-8", errors="replace")[begun:]:
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise HarnessError(
                    f"cannot start nats-server: {self.log.read_text(errors='replace')[-1000:]}"
                )
            time.sleep(0.01)
        if self._proxy is None:
            self._open_way_in()
        return self

    def _open_way_in(self) -> None:
        """Listen on the host's loopback and carry each connection into the lan."""
        for _ in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.host_port = probe.getsockname()[1]
            argv = ["systemd-socket-activate", f"--listen=127.0.0.1:{self.host_port}"]
            argv += self._lan.enter(_PROXY, "--connections-max=1024", f"{GATEWAY}:{PORT}")
            self._proxy = start_in_cgroup(
                self._groups[1], argv, env=None, output=self.folder / "proxy.log"
            )
            deadline = time.monotonic() + 10
            while self._proxy.poll() is None and time.monotonic() < deadline:
                if f"Listening on 127.0.0.1:{self.host_port}" in (
                    self.folder / "proxy.log"
                ).read_text(encoding="utf-8"):
                    return
                time.sleep(0.01)
        said = (self.folder / "proxy.log").read_text(encoding="utf-8")[-500:]
        raise HarnessError(f"cannot open a way from the host into the lan: {said}")

    def _signal(self, number: int) -> subprocess.Popen[bytes]:
        if self._server is None or self._server.poll() is not None:
            raise HarnessError("cannot signal nats-server: it isn't running; start it first")
        # enter.py and nsenter become the server, so the process that was started is the server
        # itself.
        os.kill(self._server.pid, number)
        return self._server

    def stop(self) -> None:
        """Shut it down in order."""
        self._signal(signal.SIGTERM).wait(20)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._signal(signal.SIGKILL).wait(20)

    def restart(self) -> None:
        """stop() and start()."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop it where it is: connections stay open and nothing answers. resume() lets it go
        on.
        """
        halt(self._signal(0).pid)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its store. Does nothing the second time."""
        for group, process in zip(self._groups, (self._server, self._proxy), strict=True):
            kill_cgroup(group)
            if process is not None:
                process.wait(10)
        for claim in reversed(self._claims):
            self._run.free(claim)
