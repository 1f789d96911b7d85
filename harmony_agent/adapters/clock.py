"""Time from the kernel."""

from __future__ import annotations

import ctypes
import time

import anyio

_STA_UNSYNC = 0x0040
_TIMEX_BYTES = 208


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
        """What the kernel says of its own clock (adjtimex, asking only); None where it can't be asked."""
        timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes = 0: reads
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
        if state < 0:
            return None
        # struct timex: unsigned modes (4, padded to 8); long offset, freq, maxerror, esterror; int status
        status = int.from_bytes(timex.raw[40:44], "little")
        return not status & _STA_UNSYNC
