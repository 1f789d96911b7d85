"""Runs commands in a device, as root or as one of its users, and tells their exact exit codes.

Must not start, stop or change a device otherwise.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.device.nspawn import Nspawn
from tests.device.prepare import BUSYBOX, USER, users
from tests.device.tools import HarnessError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandError(AssertionError):
    """A command that a test ran in a device ended with a code that the test did not allow."""


@dataclass(frozen=True)
class Result:
    """What a command in a device left: its exit code (128 + N for signal N) and its output."""

    rc: int
    out: bytes
    err: bytes

    @property
    def stdout(self) -> str:
        """Standard output as text."""
        return self.out.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return self.err.decode(errors="replace")


class Commands:
    """The part of a device that runs commands."""

    def __init__(self, name: str, root: Path, nspawn: Nspawn) -> None:
        self.name, self.root, self._nspawn = name, root, nspawn
        self._users = users(root)

    def know_users(self) -> None:
        """Read the accounts anew: they are others once a package or an administrator has made
        some.
        """
        self._users = users(self.root)

    def uid(self, user: str) -> int:
        """A user's id."""
        return self._users[user][0]

    @property
    def running(self) -> bool:
        """Whether the device has been booted and has not ended."""
        return self._nspawn.running

    @property
    def leader(self) -> int:
        """The host's id of its first process: /proc/LEADER/root shows what stands on its tmpfs,
        too.
        """
        return self._nspawn.leader

    def environment(self, user: str | None = None) -> dict[str, str]:
        """What a login of `user` (root when none) has in its environment, with the way to the
        user's own manager.
        """
        uid, _, home = self._users[user or "root"]
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": home,
            "USER": user or "root",
            "LOGNAME": user or "root",
            "XDG_RUNTIME_DIR": f"/run/user/{uid}",
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path=/run/user/{uid}/bus",
        }

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        input: bytes | str | None = None,  # noqa: A002 - as subprocess names it
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        check: bool = True,
    ) -> Result:
        """Run a command in the device, as root or as `user`, and return when it has ended.

        It has the host's capabilities and control group: use run_unit() where those matter. With
        `check`, any exit code but 0 raises CommandError. After `timeout` seconds the command is
        killed and CommandError raised.
        """
        full = ["nsenter", "--target", str(self._nspawn.leader), "--all", "--"]
        if user is not None:
            uid, gid, _ = self._users[user]
            full += ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--"]
        result = self._communicate(
            [*full, *argv], input, {**self.environment(user), **(env or {})}, timeout
        )
        if check and result.rc != 0:
            said = (result.stderr or result.stdout).strip()[-2000:]
            raise CommandError(f"{' '.join(argv)} on {self.name} ended with {result.rc}: {said}")
        return result

    def run_unit(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        properties: Mapping[str, str] | None = None,
        input: bytes | str | None = None,  # noqa: A002 - as subprocess names it
        timeout: float = 60,
        check: bool = True,
    ) -> Result:
        """Run a command as a transient service: in a control group and with the capabilities that
        systemd gives.
        """
        settings = {**({"User": user} if user else {}), **(properties or {})}
        options = [
            option for key, value in settings.items() for option in ("--property", f"{key}={value}")
        ]
        full = ["systemd-run", "--pipe", "--wait", "--collect", "--quiet", *options, "--", *argv]
        return self.run(full, input=input, timeout=timeout, check=check)

    def _communicate(
        self, argv: list[str], given: bytes | str | None, env: dict[str, str], timeout: float
    ) -> Result:  # fmt: skip
        stdin = given.encode() if isinstance(given, str) else given
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException as error:
            # nsenter's child is the command; left alive, it would hold up the device's next
            # shutdown.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = _rest(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = (err or out).decode(errors="replace").strip()[-1000:]
            raise CommandError(
                f"{' '.join(argv)} had not ended after {timeout:g} s: {said}"
            ) from None
        code = process.returncode
        return Result(code if code >= 0 else 128 - code, out, err)

    def systemctl(self, *argv: str, user: bool = False, check: bool = True) -> Result:
        """systemctl of the system's manager, or of fleet-agent's own."""
        return self.run(
            ["systemctl", *(["--user"] if user else []), *argv],
            user=USER if user else None,
            check=check,
        )

    def podman(
        self, *argv: str, root: bool = False, check: bool = True, timeout: float = 60
    ) -> Result:
        """podman as fleet-agent, or as root. The image localhost/busybox:latest is there for
        both.
        """
        return self.run(
            ["podman", *argv], user=None if root else USER, check=check, timeout=timeout
        )

    def load_busybox(self) -> str:
        """The name of the image for containers, which every device has from the start, for both
        users.
        """
        return BUSYBOX

    def host_pid(self, pid: int) -> int:
        """The host's id of the process that the device knows as `pid`."""
        for candidate in self._nspawn.pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{candidate}/status").read_text(encoding="utf-8")
                ids = next(
                    line for line in status.splitlines() if line.startswith("NSpid:")
                ).split()[1:]
                if len(ids) > 1 and int(ids[1]) == pid:
                    return candidate
        raise HarnessError(
            f"cannot find process {pid} of {self.name}: it has ended, or was started by run()"
        )


def _rest(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What a killed command had still written; a process that got away from it may hold the pipes
    open for ever.
    """
    try:
        return process.communicate(timeout=2)
    except subprocess.TimeoutExpired as error:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        return error.output or b"", error.stderr or b""
