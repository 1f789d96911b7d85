"""This machine: its clocks, its boot id, its system, and the lock that keeps a second agent out."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import time
from pathlib import Path
from typing import Final

import anyio

from scores.status import OsInfo

_STA_UNSYNC: Final = 0x0040
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class AlreadyRunning(Exception):
    """Another agent has this state directory."""


def boot_id() -> str:
    """The kernel's id of this boot; "" where it can't be read."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def machine_id() -> str:
    """Read systemd's id of this installation. "" if there is none."""
    try:
        return Path("/etc/machine-id").read_text("ascii").strip()
    except OSError:
        return ""


def os_info() -> OsInfo:
    """Read os-release and uname. "" for a missing value."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return OsInfo(
        id=release.get("ID", ""),
        version_id=release.get("VERSION_ID", ""),
        arch=platform.machine(),
        kernel=platform.release(),
    )


class _Timex(ctypes.Structure):
    """The head of the kernel's struct timex, on 32 and 64 bits; `modes` 0 only asks."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 168),
    )


class SystemClock:
    """`topology.Clock` on the kernel's clocks."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since boot."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)

    def synchronized(self) -> bool | None:
        """Ask the kernel how its clock stands (adjtimex, reading only).

        None where it can't be asked.
        """
        timex = _Timex()
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
        return None if state < 0 else not timex.status & _STA_UNSYNC


class StateLock:
    """A lock on the state directory. The kernel releases it when the process ends."""

    def __init__(self, state_dir: Path) -> None:
        """Take the lock. Raises AlreadyRunning if another agent has it."""
        self._state_dir = state_dir
        self._descriptor = _lock(state_dir)

    def renew(self) -> None:
        """Take it again, after the directory was made anew.

        Raises OSError if another agent was faster.
        """
        try:
            descriptor = _lock(self._state_dir)
        except AlreadyRunning as error:
            raise OSError(str(error)) from error
        self.close()
        self._descriptor = descriptor

    def close(self) -> None:
        """Release it."""
        os.close(self._descriptor)


def _lock(state_dir: Path) -> int:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(f"another harmony-agent works in {state_dir}: stop it first") from None
    return descriptor
