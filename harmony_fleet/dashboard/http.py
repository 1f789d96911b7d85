"""The part of HTTP that a page on loopback needs: GET, an answer, the end of the connection.

A request must name loopback as its Host. Otherwise a web page elsewhere could read the fleet by a
name that it points here (DNS rebinding). Only the method, the path and the Host of a request are
used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from harmony_fleet.errors import InvalidInput

_MOST: Final = 16 * 1024
_SECONDS: Final = 10.0
_HEADERS: Final = (
    "Cache-Control: no-store",
    "X-Content-Type-Options: nosniff",
    "Referrer-Policy: no-referrer",
    "Cross-Origin-Resource-Policy: same-origin",
    "Connection: close",
)
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request. `policy` is the page's Content-Security-Policy."""

    content: bytes
    kind: str = "text/plain; charset=utf-8"
    code: int = 200
    policy: str = "default-src 'none'; frame-ancestors 'none'"

    def as_bytes(self) -> bytes:
        """Status line, headers and content."""
        lines = [
            f"HTTP/1.1 {self.code} {_REASONS[self.code]}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.content)}",
            f"Content-Security-Policy: {self.policy}",
            *(["Allow: GET"] if self.code == 405 else []),
            *_HEADERS,
        ]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + self.content


Pages = Mapping[str, Callable[[], Awaitable[Answer]]]


def address(text: str) -> tuple[str, int]:
    """``127.0.0.1:8080`` or ``[::1]:8080``. Raises InvalidInput for anything that isn't
    loopback.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _loopback(host) or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidInput(
            "ListenInvalid",
            "cannot listen there: it must be an address and a port of loopback, as 127.0.0.1:8080",
            "to be read from elsewhere, put a proxy that asks who it is in front, or a tunnel",
        )
    return host, int(port)


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def answer(head: bytes, pages: Pages) -> Answer:
    """Answer a request by its head."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
        hosts = [
            line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")
        ]
    except ValueError:
        return Answer(b"no request\n", code=400)
    if not version.startswith("HTTP/1.") or len(hosts) != 1:
        return Answer(b"no request\n", code=400)
    name, _, port = hosts[0].rpartition(":")
    host = name if name and port.isdigit() else hosts[0]
    if not _loopback(host.removeprefix("[").removesuffix("]")):
        return Answer(b"this is for loopback only\n", code=403)
    if method != "GET":
        return Answer(b"only GET\n", code=405)
    page = pages.get(target.partition("?")[0])
    return await page() if page is not None else Answer(b"nothing here\n", code=404)


def handler(
    pages: Pages,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """For ``asyncio.start_server``: one request a connection, in a bounded time and size."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write((await answer(head, pages)).as_bytes())
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, or never asked
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return handle


LIMIT: Final = _MOST
"""For ``asyncio.start_server``."""
