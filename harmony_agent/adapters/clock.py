"""Time from the kernel."""

from __future__ import annotations

import ctypes
import time

import anyio

_STA_UNSYNC = 0x0040


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
