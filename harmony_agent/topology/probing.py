"""Probing: whether something on this device answers. No library."""

from __future__ import annotations

from typing import Protocol

from scores.probes import HttpProbe, TcpProbe


class Prober(Protocol):
    """Asks on the device's loopback. Returns "" for a success, else why not, in a few words without
    any content.
    """

    async def http(self, probe: HttpProbe, timeout: float) -> str:
        """GET; 200 to 399 is a success."""
        ...

    async def tcp(self, probe: TcpProbe, timeout: float) -> str:
        """A connection that is accepted is a success."""
        ...
