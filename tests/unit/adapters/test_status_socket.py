"""The socket over which `status` asks the running agent, and the clock that the kernel keeps."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import socket
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harmony_agent.adapters import status_socket
from harmony_agent.adapters.host import AlreadyRunning, StateLock, SystemClock, _Timex


async def listens(home: Path) -> None:
    """Wait until somebody listens there."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(home / status_socket.NAME))
                return
            await asyncio.sleep(0.005)


@pytest.fixture
async def answers(tmp_path: Path) -> AsyncIterator[list[object]]:
    """An agent that answers with the last of this list."""
    said: list[object] = [{"ok": True}]
    task = asyncio.create_task(status_socket.serve(tmp_path, lambda: said[-1]))
    await listens(tmp_path)
    yield said
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_agent_answers(tmp_path: Path, answers: list[object]) -> None:
    assert await asyncio.to_thread(status_socket.ask, tmp_path) == {"ok": True}
    answers.append({"text": "é" * 300_000})
    assert await asyncio.to_thread(status_socket.ask, tmp_path) == answers[-1]


async def test_many_ask_at_once(tmp_path: Path, answers: list[object]) -> None:
    found = await asyncio.gather(
        *(asyncio.to_thread(status_socket.ask, tmp_path) for _ in range(20))
    )
    assert found == [answers[-1]] * 20


async def test_only_the_owner_may_ask(tmp_path: Path, answers: list[object]) -> None:
    assert answers
    assert stat.S_IMODE((tmp_path / status_socket.NAME).stat().st_mode) == 0o600


async def test_whoever_goes_away_in_the_middle_stops_nobody(
    tmp_path: Path, answers: list[object]
) -> None:
    answers.append("x" * 5_000_000)
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(tmp_path / status_socket.NAME))
            await asyncio.sleep(0)
    answers.append("still here")
    assert await asyncio.to_thread(status_socket.ask, tmp_path) == "still here"


async def test_the_socket_of_a_killed_agent_is_replaced_and_ours_goes_with_us(
    tmp_path: Path,
) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / status_socket.NAME))
    task = asyncio.create_task(status_socket.serve(tmp_path, lambda: 1))
    await listens(tmp_path)
    assert await asyncio.to_thread(status_socket.ask, tmp_path) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / status_socket.NAME).exists()


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        status_socket.ask(tmp_path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / status_socket.NAME))
    with pytest.raises(ConnectionRefusedError):
        status_socket.ask(tmp_path)


async def test_an_agent_that_ends_while_it_answers(tmp_path: Path) -> None:
    async def half(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"ok":')
        writer.close()

    server = await asyncio.start_unix_server(half, tmp_path / status_socket.NAME)
    with pytest.raises(OSError, match="ended while it answered"):
        await asyncio.to_thread(status_socket.ask, tmp_path)
    server.close()


async def test_a_state_directory_too_deep_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    await asyncio.wait_for(status_socket.serve(deep, lambda: 1), 5)
    assert list(deep.iterdir()) == []
    with pytest.raises(OSError, match="too long"):
        status_socket.ask(deep)


# -- the clock


async def test_the_clock_is_the_kernels() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 1
    before = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() >= before + 0.009


def test_whether_it_is_synchronised_is_what_the_kernel_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SystemClock().synchronized() in (True, False)

    class Libc:
        def __init__(self, state: int, status: int, _name: None, *, use_errno: bool) -> None:
            self.state, self.status = state, status

        def adjtimex(self, pointer: object) -> int:
            ctypes.cast(pointer, ctypes.POINTER(_Timex)).contents.status = self.status  # type: ignore[arg-type]
            return self.state

    for state, status, said in (
        (0, 0x2001, True),
        (5, 0x0040, False),
        (5, 0x2041, False),
        (-1, 0, None),
    ):
        monkeypatch.setattr(ctypes, "CDLL", functools.partial(Libc, state, status))
        assert SystemClock().synchronized() is said


def test_the_kernels_structure_has_its_size() -> None:
    assert _Timex.status.offset == (40 if ctypes.sizeof(ctypes.c_long) == 8 else 20)
    assert ctypes.sizeof(_Timex) >= 208 - (0 if ctypes.sizeof(ctypes.c_long) == 8 else 80)


async def test_the_socket_is_made_again_with_its_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, anew = tmp_path / "state", asyncio.Event()
    home.mkdir()
    task = asyncio.create_task(status_socket.serve(home, lambda: 1, anew))
    await listens(home)
    (home / status_socket.NAME).unlink()
    home.rmdir()
    anew.set()  # too early: there is nothing to listen in, and nobody is stopped by that
    async with asyncio.timeout(60):
        while "cannot listen" not in caplog.text:
            await asyncio.sleep(0.005)
    home.mkdir()
    anew.set()
    await listens(home)
    assert await asyncio.to_thread(status_socket.ask, home) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_state_directory_is_taken_once_and_again_when_it_was_made_anew(tmp_path: Path) -> None:
    held = StateLock(tmp_path)
    with pytest.raises(AlreadyRunning, match="stop it first"):
        StateLock(tmp_path)
    (tmp_path / "lock").unlink()
    held.renew()
    with pytest.raises(AlreadyRunning):
        StateLock(tmp_path)
    (tmp_path / "lock").unlink()
    other = StateLock(tmp_path)
    with pytest.raises(OSError, match="another harmony-agent"):
        held.renew()
    other.close()
    held.close()
