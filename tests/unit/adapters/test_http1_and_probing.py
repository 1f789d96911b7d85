"""HTTP over a real socket, and the probes that stand on it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harmony_agent.adapters import http1
from harmony_agent.adapters.probing import LoopbackProber
from scores.probes import HttpProbe, TcpProbe


@asynccontextmanager
async def server(
    answer: bytes, seen: list[bytes] | None = None, **options: object
) -> AsyncIterator[int]:
    """Answers each connection with fixed bytes, then closes it."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in request.split(b"\r\n")
                    if b"content-length" in line.lower()
                ),
                0,
            )
            seen.append(request + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
    async with listening:
        yield listening.sockets[0].getsockname()[1]


def reply(status: int, body: bytes = b"", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


async def test_a_request_is_sent_whole_and_its_answer_read():
    seen: list[bytes] = []
    async with server(reply(200, b'{"a":1}'), seen) as port:
        opening = asyncio.open_connection("127.0.0.1", port)
        async with http1.exchange(
            opening, "POST", "/x", params={"q": "a b"}, body=b'{"in":2}'
        ) as response:
            assert (response.status, await response.json()) == (200, {"a": 1})
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /x?q=a+b HTTP/1.1\r\n")
    assert json.loads(body) == {"in": 2}


async def test_chunks_and_lines_arrive_as_they_come():
    body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n4\r\nb\nc\n\r\n0\r\n\r\n"
    async with server(body) as port:
        async with http1.exchange(
            asyncio.open_connection("127.0.0.1", port), "GET", "/"
        ) as response:
            assert [line async for line in response.lines()] == [b"a", b"bb", b"c"]
    async with server(reply(200, b"a\nrest")) as port:
        async with http1.exchange(
            asyncio.open_connection("127.0.0.1", port), "GET", "/"
        ) as response:
            assert [line async for line in response.lines()] == [b"a", b"rest"]


async def test_an_informational_answer_is_passed_over():
    async with server(b"HTTP/1.1 100 Continue\r\n\r\n" + reply(204)) as port:
        async with http1.exchange(
            asyncio.open_connection("127.0.0.1", port), "GET", "/"
        ) as response:
            assert response.status == 204


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
async def test_what_is_no_whole_answer_is_broken_off(answer: bytes):
    async with server(answer) as port:
        with pytest.raises(http1.BrokenOff):
            async with http1.exchange(
                asyncio.open_connection("127.0.0.1", port), "GET", "/"
            ) as response:
                await response.read()


@pytest.mark.parametrize(
    ("status", "good"),
    [(200, True), (204, True), (302, True), (399, True), (400, False), (503, False)],
)
async def test_http_probe_judges_by_the_status(status: int, good: bool):
    async with server(reply(status)) as port:
        why = await LoopbackProber().http(HttpProbe(port=port, path="/health"), 5)
    assert why == ("" if good else f"HTTP status {status}")


async def test_probes_say_why_not(unused_tcp_port_factory: Callable[[], int]):
    port = unused_tcp_port_factory()
    assert "connect" in await LoopbackProber().tcp(TcpProbe(port=port), 5)
    assert "connect" in await LoopbackProber().http(HttpProbe(port=port), 5)


async def test_a_silent_server_costs_the_timeout_and_no_more():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert await LoopbackProber().tcp(TcpProbe(port=port), 5) == ""
        assert await LoopbackProber().http(HttpProbe(port=port), 0.1) == "no answer within 0.1 s"


async def test_something_that_is_no_http_server_fails_the_probe():
    async with server(b"220 mail ready\r\n") as port:
        assert "no HTTP" in (await LoopbackProber().http(HttpProbe(port=port), 5)).replace(
            "http", "HTTP"
        )


async def test_https_probe_takes_the_devices_own_certificate(tmp_path: Path):
    import subprocess

    key, certificate = tmp_path / "k", tmp_path / "c"
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ed25519",
        "-nodes",
        "-subj",
        "/CN=x",
        "-days",
        "2",
    ]
    subprocess.run(
        [*argv, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with server(reply(200), ssl=context) as port:
        assert await LoopbackProber().http(HttpProbe(port=port, scheme="https"), 5) == ""
