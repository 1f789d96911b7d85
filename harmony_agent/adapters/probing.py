"""Probes over asyncio's sockets, to the device's loopback only."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import anyio

from scores.probes import HttpProbe, TcpProbe

_HOST: Final = "127.0.0.1"


class LoopbackProber:
    """`topology.probing.Prober`."""

    async def http(self, probe: HttpProbe, timeout: float) -> str:
        """Send a GET. The body isn't read; a certificate isn't verified, it is the device's own."""
        try:
            with anyio.fail_after(timeout):
                return await self._get(probe)
        except TimeoutError:
            return f"no answer within {timeout:g} s"
        except (OSError, ValueError) as error:
            return _word(error)

    async def tcp(self, probe: TcpProbe, timeout: float) -> str:
        """Connect and close."""
        try:
            with anyio.fail_after(timeout):
                _, writer = await asyncio.open_connection(_HOST, probe.port)
        except TimeoutError:
            return f"no connection within {timeout:g} s"
        except OSError as error:
            return _word(error)
        writer.close()
        return ""

    async def _get(self, probe: HttpProbe) -> str:
        from harmony_agent.adapters import http1  # noqa: PLC0415  # most devices probe nothing by HTTP

        context = _unverified() if probe.scheme == "https" else None
        opening = asyncio.open_connection(_HOST, probe.port, ssl=context)
        host = {"Host": f"localhost:{probe.port}"}
        async with http1.exchange(opening, "GET", probe.path, headers=host) as response:
            return "" if 200 <= response.status < 400 else f"HTTP status {response.status}"


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _word(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
