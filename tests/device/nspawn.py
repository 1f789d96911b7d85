"""Boots a folder with systemd in it as a machine of its own, with systemd-nspawn, and ends it
again.

Knows processes, control groups and the notify socket. Must not know users, files or units of what
it boots.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.device.claims import FREE, Claim, Run, cgroup_procs, hierarchies, kill_cgroup
from tests.device.tools import HarnessError

REBOOT = 133
_ENTER = str(Path(__file__).with_name("enter.py"))
_ISOLATION = (
    "--register=no",
    "--keep-unit",
    "--notify-ready=yes",
    "--kill-signal=SIGRTMIN+3",
    "--console=pipe",
    "--link-journal=no",
    "--resolv-conf=off",
    "--timezone=off",
    # All capabilities, as a real machine has, but none that reaches through to the host: its clock,
    # modules, ports.
    "--capability=all",
    "--drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE,CAP_SYS_RAWIO",
    "--system-call-filter=@keyring",
    "--system-call-filter=bpf",
    "--bind=/dev/fuse",
    "--bind=/dev/net/tun",
)


def start_in_cgroup(
    name: str, argv: list[str], *, env: dict[str, str] | None, output: Path
) -> subprocess.Popen[bytes]:
    """Start `argv` inside the group `name` of every hierarchy, with its output appended to the file
    `output`.
    """
    for root in hierarchies():
        (root / name).mkdir(exist_ok=True)
    enter = [sys.executable, "-I", "-S", _ENTER, *cgroup_procs(name), "--"]
    with open(output, "ab") as log:
        return subprocess.Popen(
            [*enter, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )


class Nspawn:
    """One machine: started, ended and started again any number of times from the same folder."""

    def __init__(
        self, run: Run, root: Path, name: str, *, hostname: str, netns: str | None, console: Path
    ) -> None:
        self.root, self.name, self.console = root, name, console
        self._hostname, self._netns = hostname, netns
        self._uuid = os.urandom(16).hex()
        self._process: subprocess.Popen[bytes] | None = None
        self._leader: int | None = None
        self.claim: Claim = run.claim("cgroup", name)

    @property
    def leader(self) -> int:
        """The host's process id of the machine's process 1."""
        if self._leader is None:
            raise HarnessError(f"cannot reach {self.name}: it isn't running; boot it first")
        return self._leader

    @property
    def running(self) -> bool:
        """Whether the machine has been started and its nspawn has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = 60) -> None:
        """Start, and return when the machine has reached multi-user.target."""
        if self.running:
            raise HarnessError(f"cannot boot {self.name}: it is running")
        FREE["cgroup"](
            self.name
        )  # what an earlier start left of its groups would hang this one's reboot
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(f"\0{self.name}")
            env = {
                **os.environ,
                "NOTIFY_SOCKET": f"@{self.name}",
                "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
                "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
            }
            self._process = start_in_cgroup(
                self.name, self._command(), env=env, output=self.console
            )
            try:
                self._await_ready(notify, self._process, time.monotonic() + timeout)
            except BaseException:
                self.kill()
                raise

    def _command(self) -> list[str]:
        network = (
            f"--network-namespace-path=/run/netns/{self._netns}"
            if self._netns
            else "--private-network"
        )
        named = (
            "-D",
            str(self.root),
            "-M",
            self.name,
            f"--hostname={self._hostname}",
            f"--uuid={self._uuid}",
        )
        return ["systemd-nspawn", *named, "--boot", network, *_ISOLATION]

    def _await_ready(
        self, notify: socket.socket, process: subprocess.Popen[bytes], deadline: float
    ) -> None:
        notify.settimeout(0.2)
        while True:
            try:
                said = notify.recv(4096).decode(errors="replace").splitlines()
            except TimeoutError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise HarnessError(f"cannot boot {self.name}: {self.last_words()}") from None
                continue
            for line in said:
                if line.startswith("X_NSPAWN_LEADER_PID="):
                    self._leader = int(line.partition("=")[2])
            if "READY=1" in said and self._leader is not None:
                return

    def last_words(self) -> str:
        """The end of what the machine wrote to its console."""
        return (
            self.console.read_text(encoding="utf-8", errors="replace")[-1500:].strip()
            or "it said nothing"
        )

    def wait(self, timeout: float) -> int:
        """Wait until nspawn ends by itself; its exit code, REBOOT when the machine asked for a
        reboot.
        """
        if self._process is None:
            raise HarnessError(f"cannot wait for {self.name}: it was never started")
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise HarnessError(
                f"cannot see {self.name} end within {timeout:g} s: {self.last_words()}"
            ) from error
        self._leader = None
        return code

    def stop(self, timeout: float = 30) -> int:
        """Shut the machine down in order; nspawn's exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        return self.wait(timeout)

    def freeze(self) -> None:
        """Stop every process of the machine where it is; only kill() goes on from there."""
        group = hierarchies()[0] / self.name
        (group / "cgroup.freeze").write_text("1", encoding="ascii")
        deadline = time.monotonic() + 10
        while "frozen 1" not in (group / "cgroup.events").read_text(encoding="ascii"):
            if time.monotonic() > deadline:
                raise HarnessError(f"cannot freeze {self.name}: look at {group}/cgroup.events")
            time.sleep(0.002)

    def kill(self) -> None:
        """End every process of the machine at once, as a pulled plug does; what they wrote stays
        written.
        """
        kill_cgroup(self.name)
        if self._process is not None:
            self._process.wait(10)
        self._leader = None

    def pids(self) -> list[int]:
        """The host's ids of all processes of the machine."""
        found: list[int] = []
        for folder, _, _ in os.walk(hierarchies()[0] / self.name):
            found += [
                int(pid) for pid in Path(folder, "cgroup.procs").read_text(encoding="ascii").split()
            ]
        return found
