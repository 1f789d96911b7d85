"""A disposable Debian device: boots, runs commands, gives up its files and journal, reboots, loses its power.

Must not import pytest: the demonstration boots the same devices. See lab.py for how one is made.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.device.agent import Agent
from tests.device.claims import FREE, Claim, Run
from tests.device.network import Link
from tests.device.nspawn import REBOOT, Nspawn
from tests.device.prepare import BUSYBOX, UID, USER, users
from tests.device.tools import HarnessError, call

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2


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


@dataclass(frozen=True)
class FileStat:
    """A path of a device as stat(2) shows it, links not followed; `kind` is stat(1)'s %F, as in `regular file`."""

    kind: str
    mode: int
    owner: str
    group: str
    size: int
    inode: int
    links: int
    mtime_ns: int
    target: str | None


class Device:
    """One device. Everything but boot() and the reading of files and journal needs it to be running."""

    def __init__(
        self,
        run: Run,
        root: Path,
        *,
        name: str,
        suite: str,
        hostname: str,
        link: Link | None,
        console: Path,
        claims: Sequence[Claim],
        disk: Path | None = None,
    ) -> None:
        self._run, self._claims, self._disk = run, list(claims), disk
        self.name, self.suite, self.hostname, self.root = name, suite, hostname, root
        self._link = link
        self._nspawn = Nspawn(
            run, root, name, hostname=hostname, netns=link.netns if link else None, console=console
        )  # fmt: skip
        self._claims.append(self._nspawn.claim)
        self._mount()
        self._users = users(root)

    def know_hosts(self, names: Mapping[str, str]) -> None:
        """Write /etc/hosts: the device itself, and `names` with their addresses."""
        lines = ["127.0.0.1 localhost", f"127.0.1.1 {self.hostname}", *(f"{at} {name}" for name, at in names.items())]
        (self.root / "etc/hosts").write_text("\n".join([*lines, ""]), encoding="ascii")

    # -- power ---------------------------------------------------------------------------------------------------

    def boot(self, timeout: float = 60) -> "Device":
        """Boot, and return when multi-user.target and fleet-agent's own manager are up."""
        self._nspawn.start(timeout)
        bus = Path(f"/proc/{self._nspawn.leader}/root/run/user/{UID}/bus")
        deadline = time.monotonic() + timeout
        while not bus.exists():
            if time.monotonic() > deadline:
                raise HarnessError(f"cannot reach the manager of {USER} on {self.name}: {self._nspawn.last_words()}")
            time.sleep(0.01)
        self.run(["systemctl", "--user", "is-system-running", "--wait"], user=USER, check=False)
        return self

    @property
    def running(self) -> bool:
        """Whether it has been booted and has not ended."""
        return self._nspawn.running

    @property
    def link(self) -> Link:
        """Its link to the lan, to cut and to heal."""
        if self._link is None:
            raise HarnessError(f"cannot use the link of {self.name}: it was made without a lan")
        return self._link

    def boot_id(self) -> str:
        """The kernel's random id of this boot."""
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()

    def stop(self, timeout: float = 30) -> None:
        """Shut down in order. boot() starts it again."""
        code = self._nspawn.stop(timeout)
        if code != 0:
            raise HarnessError(f"cannot stop {self.name} in order: exit code {code}: {self._nspawn.last_words()}")

    def reboot(self, timeout: float = 60) -> "Device":
        """Ask it to reboot, wait until it has shut down, and boot it again."""
        self.run(["systemctl", "reboot"], check=False)
        return self.await_reboot(timeout)

    def await_reboot(self, timeout: float = 60) -> "Device":
        """Wait until it reboots for a reason of its own, and boot it again."""
        code = self._nspawn.wait(timeout)
        if code != REBOOT:
            raise HarnessError(f"cannot see {self.name} reboot: it ended with {code}: {self._nspawn.last_words()}")
        return self.boot(timeout)

    def kill(self) -> None:
        """End all its processes at once. Nothing that reached write(2) is lost: for that, see power_cut()."""
        self._nspawn.kill()

    def power_cut(self, *, boot: bool = True) -> "Device":
        """Cut the power of a durable device: what was not synced is lost. Boots it again unless told not to."""
        if self._disk is None:
            raise HarnessError(f"cannot cut the power of {self.name}: only a durable device loses what was not synced")
        self._nspawn.freeze()
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, _NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(fd)
        self._nspawn.kill()
        FREE["mount"](str(self.root))
        self._mount()
        return self.boot() if boot else self

    def _mount(self) -> None:
        if self._disk is None:
            return
        # Mounted while the loop device of the last mount lingers, the dead file system would be the one that answers.
        deadline = time.monotonic() + 10
        while call("losetup", "--associated", str(self._disk)):
            if time.monotonic() > deadline:
                raise HarnessError(f"cannot mount {self._disk} again: something still holds its loop device")
            time.sleep(0.01)
        call("mount", "-t", "ext4", "-o", "loop,noatime", str(self._disk), str(self.root))

    def close(self) -> None:
        """End it and remove all that was made for it. Does nothing the second time."""
        self._nspawn.kill()
        for claim in reversed(self._claims):
            self._run.free(claim)
        if self._link is not None:
            self._link.close()

    # -- commands ------------------------------------------------------------------------------------------------

    def environment(self, user: str | None = None) -> dict[str, str]:
        """What a login of `user` (root when none) has in its environment, with the way to the user's own manager."""
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

        It has the host's capabilities and control group: use run_unit() where those matter. With `check`, any exit
        code but 0 raises CommandError. After `timeout` seconds the command is killed and CommandError raised.
        """
        full = ["nsenter", "--target", str(self._nspawn.leader), "--all", "--"]
        if user is not None:
            uid, gid, _ = self._users[user]
            full += ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--"]
        result = self._communicate([*full, *argv], input, {**self.environment(user), **(env or {})}, timeout)
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
        """Run a command as a transient service: in a control group and with the capabilities that systemd gives."""
        settings = {**({"User": user} if user else {}), **(properties or {})}
        options = [option for key, value in settings.items() for option in ("--property", f"{key}={value}")]
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
            # nsenter's child is the command; left alive, it would hold up the device's next shutdown.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = (err or out).decode(errors="replace").strip()[-1000:]
            raise CommandError(f"{' '.join(argv)} had not ended after {timeout:g} s: {said}") from None
        code = process.returncode
        return Result(code if code >= 0 else 128 - code, out, err)

    def systemctl(self, *argv: str, user: bool = False, check: bool = True) -> Result:
        """systemctl of the system's manager, or of fleet-agent's own."""
        return self.run(["systemctl", *(["--user"] if user else []), *argv], user=USER if user else None, check=check)

    def podman(self, *argv: str, root: bool = False, check: bool = True, timeout: float = 60) -> Result:
        """podman as fleet-agent, or as root. The image localhost/busybox:latest is there for both."""
        return self.run(["podman", *argv], user=None if root else USER, check=check, timeout=timeout)

    def load_busybox(self) -> str:
        """The name of the image for containers, which every device has from the start, for both users."""
        return BUSYBOX

    def host_pid(self, pid: int) -> int:
        """The host's id of the process that the device knows as `pid`."""
        for candidate in self._nspawn.pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{candidate}/status").read_text(encoding="utf-8")
                ids = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
                if len(ids) > 1 and int(ids[1]) == pid:
                    return candidate
        raise HarnessError(f"cannot find process {pid} of {self.name}: it has ended, or was started by run()")

    # -- files ---------------------------------------------------------------------------------------------------

    def _look(self, argv: Sequence[str], *, check: bool = True) -> Result:
        """Run one of the device's own tools on its files; works also while it isn't running."""
        if self.running:
            return self.run(argv, check=check)
        result = self._communicate(["chroot", str(self.root), *argv], None, self.environment(), 60)
        if check and result.rc != 0:
            raise CommandError(f"{' '.join(argv)} on {self.name} ended with {result.rc}: {result.stderr.strip()}")
        return result

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return self._look(["cat", "--", path]).out

    def read_text(self, path: str) -> str:
        """The content of a file, as UTF-8."""
        return self.read(path).decode()

    def exists(self, path: str) -> bool:
        """Whether there is anything at `path`, a dangling link included."""
        return self._look(["stat", "--", path], check=False).rc == 0

    def stat(self, path: str) -> FileStat:
        """What is at `path`."""
        shown = self._look(["stat", "--printf", r"%F\n%a\n%U\n%G\n%s\n%i\n%h\n%.9Y", "--", path]).stdout
        kind, mode, owner, group, size, inode, links, mtime = shown.split("\n")
        target = self._look(["readlink", "--no-newline", "--", path]).stdout if kind == "symbolic link" else None
        seconds, _, nanoseconds = mtime.partition(".")
        kind = "regular file" if kind == "regular empty file" else kind
        stamp = int(seconds) * 10**9 + int(nanoseconds)
        return FileStat(kind, int(mode, 8), owner, group, int(size), int(inode), int(links), stamp, target)

    def write(
        self, path: str, data: bytes | str, *, mode: int | None = None, owner: str | None = None
    ) -> None:  # fmt: skip
        """Write a file as an administrator's editor does: in place when it exists, its folders made when missing.

        `owner` is a user's name, and gives the file that user's group too. New files belong to root with mode 0644.
        """
        self.run(["mkdir", "--parents", "--", os.path.dirname(path)])
        self.run(["dd", "status=none", f"of={path}"], input=data)
        if owner is not None:
            self.run(["chown", f"{owner}:", "--", path])
        if mode is not None:
            self.run(["chmod", f"{mode:04o}", "--", path])

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all in it."""
        self.run(["rm", "-r", "--one-file-system", "--", path])

    def make_folder(self, path: str, *, owner: str = "root", mode: int = 0o755) -> None:
        """Make a folder with the missing ones above it."""
        self.run(["install", "-d", "-o", owner, "-g", owner, "-m", f"{mode:04o}", "--", path])

    # -- agent ---------------------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The agent's unit on this device; agent.install() makes it."""
        return Agent(self)

    # -- journal -------------------------------------------------------------------------------------------------

    def journal(self, *, unit: str | None = None, user: bool = False, boot: str | None = None) -> list[dict[str, Any]]:
        """The journal's entries, oldest first, with all their fields; read from the host, so also after a crash.

        `unit` picks a unit of the system's manager or, with `user`, of a user's own; `boot` picks a boot id.
        """
        if self.running:
            self.run(["journalctl", "--sync"])
        argv = ["journalctl", "--directory", str(self.root / "var/log/journal"), "--output=json", "--all", "--quiet"]
        argv += [f"_BOOT_ID={boot.replace('-', '')}"] if boot else []
        if unit is not None and user:
            argv += [f"--user-unit={unit}"]
        elif unit is not None:
            argv += [f"--unit={unit}"]
        return [json.loads(line) for line in call(*argv, "--no-pager").splitlines()]

    def messages(self, *, unit: str | None = None, user: bool = False) -> list[str]:
        """The journal's messages alone, oldest first."""
        return [str(entry.get("MESSAGE", "")) for entry in self.journal(unit=unit, user=user)]
