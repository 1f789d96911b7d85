"""Datagrams to systemd: readiness, and log records as the journal takes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from harmony_agent.adapters import sd_notify
from harmony_agent.adapters.sd_notify import JournalHandler, set_up_logging


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(5)
        receiver.bind(str(tmp_path / "journal"))
        yield receiver


@pytest.fixture
def handler(journal: socket.socket) -> Iterator[JournalHandler]:
    made = JournalHandler("pi-01", journal.getsockname())
    yield made
    made.close()


def entry(data: bytes) -> dict[str, str]:
    """The journal's native protocol, read back."""
    fields = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[8 + size + 1 :]
        fields[name.decode()] = value.decode()
        data = rest
    return fields


def record(message: str, *args: Any, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "harmony_agent.engine", level, __file__, 1, message, args, None, "work"
    )
    made.__dict__.update(extra)
    return made


def test_readiness(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(5)
        manager.bind(str(tmp_path / "notify"))
        sd_notify.notify("READY=1\nSTATUS=works", {"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert manager.recv(100) == b"READY=1\nSTATUS=works"


def test_readiness_to_an_abstract_address(tmp_path: Path) -> None:
    name = f"harmony-test-{tmp_path.name}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(5)
        manager.bind(f"\0{name}")
        sd_notify.notify("READY=1", {"NOTIFY_SOCKET": f"@{name}"})
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/at/all"}]
)
def test_nobody_listens(environ: dict[str, str]) -> None:
    sd_notify.notify("READY=1", environ)


def test_a_record_has_its_fields(handler: JournalHandler, journal: socket.socket) -> None:
    extra = {"deployment": "web", "resource": "File/motd", "generation": 3, "reason": "NoSpace"}
    handler.emit(record("%s is %s", "File/motd", "Degraded", level=logging.WARNING, **extra))
    assert entry(journal.recv(65536)) == {
        "MESSAGE": "File/motd is Degraded",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "harmony-agent",
        "CODE_FUNC": "harmony_agent.engine.work",
        "HARMONY_DEVICE": "pi-01",
        "HARMONY_DEPLOYMENT": "web",
        "HARMONY_RESOURCE": "File/motd",
        "HARMONY_GENERATION": "3",
        "HARMONY_REASON": "NoSpace",
    }


def test_fields_without_value_are_left_out(handler: JournalHandler, journal: socket.socket) -> None:
    handler.emit(record("hi", generation=None))
    found = entry(journal.recv(65536))
    assert {name for name in found if name.startswith("HARMONY_")} == {"HARMONY_DEVICE"}


@pytest.mark.parametrize(
    "text", ["two\nlines", "a=b", "", "\n", "é\U0001f600", "FAKE\nPRIORITY=0\nMESSAGE=x"]
)
def test_no_text_makes_another_field(
    handler: JournalHandler, journal: socket.socket, text: str
) -> None:
    handler.emit(record("%s", text, reason=text or "-"))
    found = entry(journal.recv(65536))
    assert found["MESSAGE"] == text
    assert found["PRIORITY"] == "6"
    assert len(found) == 6


def test_text_that_is_no_unicode(handler: JournalHandler, journal: socket.socket) -> None:
    handler.emit(record("a\udcffb"))
    assert entry(journal.recv(65536))["MESSAGE"] == "a\\udcffb"


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.DEBUG, "7"),
        (logging.INFO, "6"),
        (logging.WARNING, "4"),
        (logging.ERROR, "3"),
        (logging.CRITICAL, "2"),
    ],
)
def test_levels(handler: JournalHandler, journal: socket.socket, level: int, priority: str) -> None:
    handler.emit(record("x", level=level))
    assert entry(journal.recv(65536))["PRIORITY"] == priority


def test_a_journal_that_hangs_stops_nobody_and_is_used_again(
    handler: JournalHandler, journal: socket.socket
) -> None:
    began = time.monotonic()
    for index in range(5000):
        handler.emit(record("%s", "x" * 200 + str(index)))
    assert time.monotonic() - began < 30
    journal.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while journal.recv(65536):
            pass
    journal.settimeout(5)
    handler.emit(record("again"))
    assert entry(journal.recv(65536))["MESSAGE"] == "again"


def test_a_journal_that_went_away_is_no_error(
    handler: JournalHandler, journal: socket.socket
) -> None:
    journal.close()
    handler.emit(record("into nothing"))


def test_a_record_that_cannot_be_formatted_is_shown_and_raises_nothing(
    handler: JournalHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    handler.emit(record("%d", "no number"))
    assert "Logging error" in capsys.readouterr().err


def test_without_a_journal_there_is_no_handler(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        JournalHandler("pi-01", str(tmp_path / "none"))


@pytest.fixture
def restored() -> Iterator[None]:
    root, ours, nats = (
        logging.getLogger(),
        logging.getLogger("harmony_agent"),
        logging.getLogger("nats"),
    )
    before = (root.handlers[:], root.level, ours.level, nats.level)
    yield
    for handler in root.handlers:
        if handler not in before[0]:
            handler.close()
    root.handlers = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    nats.setLevel(before[3])


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(("verbose", "level"), [(False, logging.INFO), (True, logging.DEBUG)])
def test_logs_go_to_standard_error_where_systemd_did_not_start_us(
    verbose: bool, level: int
) -> None:
    set_up_logging("pi-01", verbose=verbose, environ={})
    (only,) = logging.getLogger().handlers
    assert isinstance(only, logging.StreamHandler)
    assert only.stream is sys.stderr
    assert logging.getLogger("harmony_agent").level == level
    assert logging.getLogger().level == logging.WARNING


@pytest.mark.usefixtures("restored")
def test_logs_go_to_the_journal_where_systemd_did(
    journal: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = ("pi-01", journal.getsockname())
    monkeypatch.setattr(sd_notify, "JournalHandler", lambda _device: JournalHandler(*defaults))
    set_up_logging("pi-01", verbose=False, environ={"JOURNAL_STREAM": "8:1"})
    logging.getLogger("harmony_agent.engine").warning("seen")
    assert entry(journal.recv(65536))["MESSAGE"] == "seen"


# -- the watchdog


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_watchdog_seconds(environ: dict[str, str], seconds: float | None) -> None:
    assert sd_notify.watchdog_seconds(environ) == seconds


async def test_the_watchdog_is_fed_three_times_a_period_and_only_while_nothing_is_stuck(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sd_notify.feed_watchdog, lambda: stuck, environ)
            for _ in range(3):
                with anyio.fail_after(30):
                    assert await asyncio.get_running_loop().sock_recv(manager, 100) == b"WATCHDOG=1"
            stuck = "the queue"
            await anyio.sleep(0.3)
            while True:
                try:
                    manager.recv(100)  # one may have been under way
                except BlockingIOError:
                    break
            await anyio.sleep(0.3)
            with pytest.raises(BlockingIOError):
                manager.recv(100)
            stuck = ""
            with anyio.fail_after(30):
                assert await asyncio.get_running_loop().sock_recv(manager, 100) == b"WATCHDOG=1"
            tasks.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        "the queue makes no progress: the watchdog isn't fed"
    ]


async def test_without_a_watchdog_nothing_is_fed() -> None:
    with anyio.fail_after(30):
        await sd_notify.feed_watchdog(lambda: "", {})
