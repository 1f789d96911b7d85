"""What a run of the harness holds on this machine, written down before it is made, so that it
always goes again.

A run is one process. Its claims stand in a file of /run/harmony-device, one JSON object a line, and
the process holds a lock on that file for as long as it lives: a file whose lock is free belongs to
a dead run, and the next run gives back what it names. Giving back is the same code in both cases.
Nothing is ever given back that no file names.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from tests.device.tools import HarnessError, call

STATE = Path("/run/harmony-device")
PREFIX = "hd-"
_CGROUP_TIMEOUT = 10.0

Claim = tuple[str, str]


def hierarchies() -> list[Path]:
    """Where this host's cgroup v2 is mounted and, beside it, v1's named hierarchy of systemd if
    there is one.
    """
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2" or (
            kind == "cgroup" and "name=systemd" in options.split(" ")[-1].split(",")
        ):
            found.setdefault(kind, Path(left.split(" ")[4]))
    if "cgroup2" not in found:
        raise HarnessError("cannot boot a device: this host has no cgroup v2 mounted; mount one, for instance with "
                           "mount -t cgroup2 none /sys/fs/cgroup/unified")  # fmt: skip
    return [found[kind] for kind in ("cgroup2", "cgroup") if kind in found]


def cgroup_procs(name: str) -> list[str]:
    """The files to write a process id into, so that it belongs to the group `name` in every
    hierarchy.
    """
    return [str(root / name / "cgroup.procs") for root in hierarchies()]


def kill_cgroup(name: str) -> None:
    """Kill every process in the group `name` and below, and wait until none is left."""
    group = hierarchies()[0] / name
    if not group.exists():
        return
    (group / "cgroup.kill").write_text("1", encoding="ascii")
    deadline = time.monotonic() + _CGROUP_TIMEOUT
    while "populated 1" in (group / "cgroup.events").read_text(encoding="ascii"):
        if time.monotonic() > deadline:
            raise HarnessError(f"cannot end all processes of {name}: look at {group}/cgroup.procs")
        time.sleep(0.005)


def _free_cgroup(name: str) -> None:
    kill_cgroup(name)
    for root in hierarchies():
        for folder, _, _ in os.walk(root / name, topdown=False):
            _retry(lambda folder=folder: os.rmdir(folder))  # type: ignore[misc]


def _free_netns(name: str) -> None:
    if Path("/run/netns", name).exists():
        call("ip", "netns", "delete", name)


def mounted(target: str) -> bool:
    """Whether something is mounted just there. Not os.path.ismount(), which takes a subvolume of
    btrfs for a mount.
    """
    where = os.path.realpath(target).replace(" ", r"\040")
    return any(
        line.split(" ")[4] == where
        for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    )


def _free_mount(target: str) -> None:
    if mounted(target):
        _retry(lambda: call("umount", target))


def _free_subvolume(path: str) -> None:
    if not Path(path).exists():
        return
    # A device may have made subvolumes of its own; the kernel refuses to delete one that holds
    # others.
    for line in call("btrfs", "subvolume", "list", "-o", path).splitlines():
        inner = line.split(" path ", 1)[1]
        _free_subvolume(os.path.join(path, inner.split(f"{os.path.basename(path)}/", 1)[1]))
    _retry(lambda: call("btrfs", "subvolume", "delete", path))


def _free_tree(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


FREE: dict[str, Callable[[str], None]] = {
    "cgroup": _free_cgroup,
    "netns": _free_netns,
    "mount": _free_mount,
    "subvolume": _free_subvolume,
    "tree": _free_tree,
}


def _retry(act: Callable[[], object], *, patience: float = 3.0) -> None:
    """Do `act`, again while the kernel still lets go of what has just died."""
    deadline = time.monotonic() + patience
    while True:
        try:
            act()
        except (HarnessError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


class Run:
    """This process's run: its unique name, and the file of its claims. Safe to use from several
    threads.
    """

    def __init__(self) -> None:
        STATE.mkdir(parents=True, exist_ok=True)
        self.name = PREFIX + secrets.token_hex(4)
        self._path = STATE / f"{self.name}.jsonl"
        fresh = (
            STATE / f".{self.name}"
        )  # locked before it has its name, so that nobody takes it for a dead run's
        self._fd = os.open(
            fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        fresh.rename(self._path)
        self._claims: list[Claim] = []
        self._lock = threading.Lock()
        self._count = 0
        self._note({"owner": os.getpid()})
        self.folder = Path(
            tempfile.gettempdir(), self.name
        )  # for consoles, servers' stores and the like
        self.claim("tree", str(self.folder))
        self.folder.mkdir(mode=0o700)

    def unique(self, what: str) -> str:
        """A name that nothing else on this machine has."""
        with self._lock:
            self._count += 1
            return f"{self.name}-{what}{self._count}"

    def claim(self, kind: str, value: str) -> Claim:
        """Note that `value` is about to be made. `kind` is a key of FREE."""
        claim = (kind, value)
        with self._lock:
            self._claims.append(claim)
            self._note({"claim": claim})
        return claim

    def free(self, claim: Claim) -> None:
        """Give one claim back; does nothing when it was given back before."""
        with self._lock:
            if claim not in self._claims:
                return
        FREE[claim[0]](claim[1])
        with self._lock:
            self._claims.remove(claim)
            self._note({"freed": claim})

    def close(self) -> None:
        """Give back all that is left, newest first. Raises the errors at the end, after everything
        was tried.
        """
        errors = _free_all(reversed(list(self._claims)), self.free)
        if not errors:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        if errors:
            raise ExceptionGroup("cannot give back all that this run made", errors)

    def _note(self, line: dict[str, object]) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _free_all(claims: Iterator[Claim], free: Callable[[Claim], None]) -> list[Exception]:
    errors: list[Exception] = []
    for claim in claims:
        try:
            free(claim)
        except (
            Exception
        ) as error:  # every other claim must still be given back; the caller raises them all
            errors.append(error)
    return errors


def sweep() -> list[str]:
    """Give back what dead runs left behind, and return their names."""
    swept = []
    for path in sorted(STATE.glob(f"{PREFIX}*.jsonl")):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its owner lives
            errors = _free_all(
                reversed(left_over(file.read())), lambda claim: FREE[claim[0]](claim[1])
            )
            if errors:
                raise ExceptionGroup(f"cannot clean up after the dead run {path.stem}", errors)
            path.unlink(missing_ok=True)
            swept.append(path.stem)
    return swept


def left_over(journal: bytes) -> list[Claim]:
    """The claims that a run's file names and that weren't given back, oldest first. A torn last
    line is no claim.
    """
    claims: list[Claim] = []
    for line in journal.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "claim" in entry:
            claims.append(tuple(entry["claim"]))
        elif "freed" in entry:
            claims.remove(tuple(entry["freed"]))
    return claims
