"""What a workload would do to the device that it runs on, were it let: a program that runs there,
alone.

    python3 attacks.py GROUP[,GROUP…] PID ROOT OUT

Tries every attack of the groups and writes `{"name": "done" | "refused: why"}` to OUT. PID is the
agent's main process, ROOT where the device's own root is seen from here. None of them does lasting
harm, so that root can run them as well, to see that they would be noticed: files are opened for
writing and not written, what is made is taken away. Standard library only; must not import anything
of the project, which isn't there.
"""

import ctypes
import errno
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

LIBC: Final = ctypes.CDLL(None, use_errno=True)
ATTACH, DETACH, SEIZE = 16, 17, 0x4206
PIDFD_OPEN, PIDFD_GETFD = 434, 438
NEWNS, NEWUSER = 0x20000, 0x10000000
UPDATER: Final = "/run/harmony-updater/updater.sock"
Attack = Callable[[], object]


class Refused(Exception):
    """Somebody said no, other than by an error of the kernel."""


class Missing(Exception):
    """There is no such thing to be seen from here."""


def succeed(result: int) -> int:
    """The result of a call to libc; OSError where it failed."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def run(*argv: str, feed: str = "") -> str:
    """Run a program; what it said. Refused when it fails."""
    done = subprocess.run(argv, input=feed, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise Refused((done.stderr or done.stdout).strip()[-200:])
    return done.stdout


class Attacks:
    """All of them, by group and name. `pid` is the agent's, `root` leads to the device's own
    root.
    """

    def __init__(self, pid: int, root: str) -> None:
        self.pid, self.root = pid, root.rstrip("/")
        self.groups: dict[str, dict[str, Attack]] = {
            "secrets": self.secrets(),
            "places": self.places(),
            "process": self.process(),
            "identity": self.identity(),
            "manager": self.manager(),
            "updater": self.updater(),
        }

    # -- files

    def at(self, path: str) -> str:
        """A path of the device as it is seen from here."""
        return self.root + path

    def read(self, path: str) -> Attack:
        """The content of a file, or of a directory's list."""

        def attack() -> None:
            place = self.at(path)
            if os.path.isdir(place):
                if not os.listdir(place):
                    raise Missing(f"nothing is in {place}")
            else:
                with open(place, "rb") as file:
                    file.read(1)

        return attack

    def write(self, path: str) -> Attack:
        """Open a file for writing, or make something in a directory."""

        def attack() -> None:
            place = Path(self.at(path))
            if place.is_dir():
                made = place / ".attack"
                made.mkdir()
                made.rmdir()
            else:
                os.close(os.open(place, os.O_WRONLY | os.O_APPEND))

        return attack

    def replace(self, path: str) -> Attack:
        """Move a file aside, and back."""

        def attack() -> None:
            os.rename(self.at(path), self.at(path) + ".attack")
            os.rename(self.at(path) + ".attack", self.at(path))

        return attack

    def hard_link(self, path: str) -> Attack:
        """Give a file another name below a File root."""

        def attack() -> None:
            name = self.at(f"/srv/attack/link-{os.getpid()}")
            os.link(self.at(path), name)
            os.unlink(name)

        return attack

    def secrets(self) -> dict[str, Attack]:
        """What only the agent and root may see or change."""
        found: dict[str, Attack] = {}
        for path in (
            "/etc/harmony",
            "/etc/harmony/agent.toml",
            "/etc/harmony/device.creds",
            "/var/lib/harmony-agent",
            "/var/lib/harmony-agent/manifests.db",
            "/var/lib/harmony-fleet-updater",
            "/var/lib/harmony-fleet-updater/system-upgrades",
            "/var/lib/harmony-fleet-updater/system-upgrades/attempt-0.json",
        ):
            found[f"read {path}"] = self.read(path)
            found[f"write {path}"] = self.write(path)
        for path in ("/etc/harmony/device.creds", "/var/lib/harmony-agent/manifests.db"):
            found[f"hard link to {path}"] = self.hard_link(path)
            found[f"replace {path}"] = self.replace(path)
        found["replace the agent's memory"] = self.replace("/var/lib/harmony-agent")
        found["speak at the agent's socket"] = lambda: self._connect(
            "/var/lib/harmony-agent/agent.sock"
        ).close()
        return found

    def places(self) -> dict[str, Attack]:
        """What only root may change: all that lies outside the roots and matters."""
        paths = (
            "/etc/passwd",
            "/etc/systemd/system",
            "/etc/polkit-1/rules.d",
            "/etc/ld.so.cache",
            "/usr/lib/systemd/system/harmony-agent.service",
            "/usr/lib/systemd/system/harmony-updater.service",
            "/usr/lib/harmony-agent/prepare",
            "/usr/lib/systemd/system-generators",
            "/usr/bin",
            "/opt/harmony/agent/lib",
            "/opt/harmony/updater/lib",
            "/run/systemd/system",
            "/run/harmony-updater",
            "/var/lib/systemd/linger",
            "/root",
        )
        return {f"write {path}": self.write(path) for path in paths} | {
            "hard link to /etc/shadow": self.hard_link("/etc/shadow")
        }

    # -- the agent's process

    def process(self) -> dict[str, Attack]:
        """To look into the agent's process, or to change it."""
        pid = self.pid
        found: dict[str, Attack] = {
            f"open /proc/PID/{name}": self._open_proc(name) for name in ("environ", "maps", "mem")
        }
        found |= {
            f"follow /proc/PID/{name}": self._follow(name)
            for name in ("cwd/etc", "root/etc", "fd/0", "exe")
        }
        return found | {
            "ptrace attach": lambda: self._trace(ATTACH),
            "ptrace seize": lambda: self._trace(SEIZE),
            "process_vm_readv": self._read_memory,
            "pidfd_getfd": self._take_descriptor,
            "enter its mounts": self._enter_mounts,
            "change its limits": lambda: run("prlimit", f"--pid={pid}", "--core=0:0"),
        }

    def _open_proc(self, name: str) -> Attack:
        def attack() -> None:
            with open(f"/proc/{self.pid}/{name}", "rb", buffering=0) as file:
                if name == "environ":
                    file.read(1)

        return attack

    def _follow(self, name: str) -> Attack:
        return lambda: os.stat(f"/proc/{self.pid}/{name}")

    def _trace(self, how: int) -> None:
        LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        LIBC.ptrace.restype = ctypes.c_long
        succeed(LIBC.ptrace(how, self.pid, None, None))
        if how == ATTACH:
            os.waitpid(self.pid, 0x40000000)
            LIBC.ptrace(DETACH, self.pid, None, None)

    def _read_memory(self) -> None:
        held = ctypes.create_string_buffer(8)

        class Vector(ctypes.Structure):
            _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

        here = Vector(ctypes.addressof(held), 8)
        there = Vector(ctypes.addressof(held), 8)
        try:
            succeed(
                LIBC.process_vm_readv(self.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            )
        except OSError as error:
            if error.errno != errno.EFAULT:  # permitted; it has nothing at this address
                raise

    def _take_descriptor(self) -> None:
        descriptor = succeed(LIBC.syscall(PIDFD_OPEN, self.pid, 0))
        os.close(succeed(LIBC.syscall(PIDFD_GETFD, descriptor, 0, 0)))

    def _enter_mounts(self) -> None:
        os.close(os.open(f"/proc/{self.pid}/ns/mnt", os.O_RDONLY))

    # -- identity

    def identity(self) -> dict[str, Attack]:
        """To become a member of the agent's group, or root."""
        gid = _group_id(self.at("/etc/group"), "harmony-agent")
        return {
            "setgid": lambda: self._as_member(lambda: os.setgid(gid)),
            "setgroups": lambda: self._as_member(lambda: os.setgroups([gid])),
            "setuid": lambda: self._as_member(lambda: os.setuid(0)),
            "newgrp": lambda: run(
                "sg", "harmony-agent", f"cat {self.at('/etc/harmony/agent.toml')}"
            ),
            "give a file to the group": lambda: self._own_file(
                lambda path: os.chown(path, -1, gid)
            ),
            "setgid bit": self._setgid_bit,
            "map the group": lambda: self._map_group(gid),
            "map a subordinate group": lambda: self._map_group(
                _subordinate(self.at("/etc/subgid"))
            ),
        }

    def _as_member(self, change: Callable[[], None]) -> None:
        """Become another in a child, and look there whether that is of any use."""
        child = os.fork()
        if child == 0:
            try:
                change()
                self.read("/etc/harmony/agent.toml")()
            except OSError as error:
                os._exit(error.errno or 1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            raise OSError(status, os.strerror(status))

    def _own_file(self, change: Callable[[str], None]) -> None:
        path = self.at(f"/srv/attack/own-{os.getpid()}")
        with open(path, "w", encoding="ascii"):
            pass
        try:
            change(path)
            if os.stat(path).st_gid != os.stat(self.at("/etc/harmony")).st_gid:
                raise Refused("it is another group's, of this user namespace")
        finally:
            os.unlink(path)

    def _setgid_bit(self) -> None:
        """On a file that the agent made: it is ours, and its group is the agent's."""
        path = self.at("/srv/attack/of-the-agent")
        os.chmod(path, 0o2755)
        if not os.stat(path).st_mode & stat.S_ISGID:
            raise Refused("the kernel took the bit away")
        os.chmod(path, 0o644)

    def _map_group(self, gid: int) -> None:
        """In a user namespace of its own, have the agent's group by newgidmap."""
        done, said = os.pipe()
        go, ready = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ready)
            os.write(said, b"1" if LIBC.unshare(NEWUSER) == 0 else b"0")
            os.read(go, 1)
            os._exit(0)
        try:
            if os.read(done, 1) == b"0":
                raise Refused("there is no user namespace to be had here")
            run("newgidmap", str(child), "0", str(gid), "1")
        finally:
            os.close(ready)
            os.waitpid(child, 0)

    # -- the system's manager

    def manager(self) -> dict[str, Attack]:
        """To have systemd, logind or polkit do it."""
        ours, updater, other = (
            "harmony-agent.service",
            "harmony-updater.socket",
            "systemd-tmpfiles-clean.timer",
        )
        systemctl = ("systemctl", "--no-ask-password")
        busctl = (
            "busctl",
            "call",
            "org.freedesktop.systemd1",
            "/org/freedesktop/systemd1",
            "org.freedesktop.systemd1.Manager",
        )
        transient = ("StartTransientUnit", "ssa(sv)a(sa(sv))")
        argument = ("1", "ExecStart", "a(sasb)", "1", "/bin/true", "1", "true", "false", "0")
        calls: dict[str, tuple[str, ...]] = {
            f"reset {ours}": (*systemctl, "reset-failed", ours),
            f"restart {other}": (*systemctl, "restart", "--no-block", other),
            f"restart {updater}": (*systemctl, "restart", updater),
            "a transient unit": (
                "systemd-run",
                "--system",
                "--no-ask-password",
                "--quiet",
                "--wait",
                "true",
            ),
            "a transient unit of an allowed name": (
                *busctl,
                *transient,
                "web.service",
                "replace",
                *argument,
            ),
            "reload": (*systemctl, "daemon-reload"),
            "a property": (*systemctl, "set-property", "--runtime", ours, "CPUWeight=100"),
            "environment of the manager": (*systemctl, "set-environment", "ATTACK=1"),
            "enable": (*systemctl, "enable", "--quiet", other),
            "link": (*systemctl, "link", self.at("/srv/attack/attack.service")),
            "signal": (*systemctl, "kill", "--signal=CONT", ours),
        }
        return {name: lambda argv=argv: run(*argv) for name, argv in calls.items()}  # type: ignore[misc]

    # -- the updater

    def updater(self) -> dict[str, Attack]:
        """To have more of the updater than its fixed operations; `capabilities` shows that it can
        be spoken to.
        """
        request = {
            "attemptId": "attack-1",
            "runUid": "run-1",
            "deviceId": "pi-01",
            "expiresAt": "2999-01-01T00:00:00Z",
        }
        upgrade = {"op": "AptFullUpgradeV1", "request": request}
        lines: dict[str, object] = {
            "another operation": {"op": "AptInstallV1", "request": request},
            "another version": {"op": "capabilities", "v": 2},
            "a version that is true": {"op": "capabilities", "v": True},
            "an argument to capabilities": {"op": "capabilities", "attemptId": "attempt-0"},
            "a package": {**upgrade, "request": {**request, "packages": ["nano"]}},
            "an option": {**upgrade, "options": ["-o", "APT::Get::AllowUnauthenticated=true"]},
            "another device": {**upgrade, "request": {**request, "deviceId": "pi-02"}},
            "one that has expired": {
                **upgrade,
                "request": {**request, "expiresAt": "2001-01-01T00:00:00Z"},
            },
            "an attempt outside the journals": {
                "op": "status",
                "attemptId": "../../../../etc/shadow",
            },
            "a hidden attempt": {"op": "status", "attemptId": ".attempt-0"},
            "an attempt of somebody else's run": {
                **upgrade,
                "request": {**request, "attemptId": "attempt-0"},
            },
            "clear-repair": {"op": "clear-repair"},
            "a list": [upgrade],
            "no JSON": "\x00",
        }
        found: dict[str, Attack] = {
            name: lambda line=line: self._ask(line) for name, line in lines.items()
        }  # type: ignore[misc]
        found["capabilities"] = lambda: self._ask({"op": "capabilities"})
        found["a line without end"] = lambda: self._ask(
            {"op": "capabilities", "filler": "x" * (1 << 20)}
        )
        found["its journals by the socket's folder"] = self.write("/run/harmony-updater")
        return found

    def _connect(self, path: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        try:
            connection.connect(self.at(path))
        except OSError:
            connection.close()
            raise
        return connection

    def _ask(self, line: object) -> None:
        text = json.dumps({"v": 1, **line} if isinstance(line, dict) else line).encode() + b"\n"
        with self._connect(UPDATER) as connection:
            try:
                connection.sendall(text)
                answer = json.loads(
                    connection.makefile("rb").readline() or b'{"error":{"code":"hung up"}}'
                )
            except (BrokenPipeError, ConnectionResetError):
                raise Refused("hung up") from None
        if not answer.get("ok"):
            raise Refused(answer["error"]["code"])


def _group_id(path: str, name: str) -> int:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        found, _, gid, *_ = line.split(":")
        if found == name:
            return int(gid)
    return 65533


def _subordinate(path: str) -> int:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith("fleet-agent:"):
            return int(line.split(":")[1])
    return 65533


def attempt(attack: Attack) -> str:
    """Do it, and say what came of it."""
    try:
        attack()
    except FileNotFoundError as error:
        return f"missing: {error.filename or ''}"
    except OSError as error:
        return f"refused: {errno.errorcode.get(error.errno or 0, str(error))}"
    except Refused as refused:
        return f"refused: {refused}"
    except Missing as missing:
        return f"missing: {missing}"
    return "done"


def main(groups: str, pid: str, root: str, out: str) -> int:
    """Try all, and write down what came of each."""
    every = Attacks(int(pid), root).groups
    found = {
        f"{group}: {name}": attempt(attack)
        for group in groups.split(",")
        for name, attack in every[group].items()
    }
    Path(f"{out}.new").write_text(json.dumps(found), encoding="utf-8")
    os.rename(f"{out}.new", out)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
