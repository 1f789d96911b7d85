"""What an operator may ask of a device: ping, resync, logs, within bounds; all else is refused in
words.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import LogLine
from harmony_agent.core.resources import Key
from harmony_agent.engine.report.commands import DEFAULT_LINES, MAX_BYTES, MAX_LINES, Commands
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from tests import strategies

TIME = "2026-11-29T17:00:00.000001Z"
HELLO = {"device": "pi-01", "agent_version": "1"}


class Logged:
    """A kind whose resources logged `lines`."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.asked: list[tuple[str, int]] = []
        self.error: Exception | None = None

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        self.asked.append((name, lines))
        self.seconds = seconds
        if self.error:
            raise self.error
        return [LogLine(TIME, text) for text in self.lines]


class World:
    """A device with one unit that is wanted and one that is only owned."""

    def __init__(self, lines: list[str] | None = None) -> None:
        self.kind = Logged(lines or [])
        self.resyncs = 0
        book = SimpleNamespace(
            desired={Key("SystemdUnit", "web.service"): None},
            records={Key("SystemdUnit", "old.service"): None},
        )
        kinds = {"SystemdUnit": cast(KindInstance, self.kind)}
        self.commands = Commands(cast(DeviceState, book), kinds, HELLO, self.resync)

    def resync(self) -> None:
        self.resyncs += 1

    async def ask(self, verb: str, request: Any = b"") -> dict[str, Any]:
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        reply: dict[str, Any] = json.loads(await self.commands.answer(verb, data))
        assert reply["ok"] is ("error" not in reply)
        return reply


LOGS = {"resource": "SystemdUnit/web.service"}


async def test_ping() -> None:
    assert await World().ask("ping") == {"ok": True, **HELLO}


async def test_resync() -> None:
    world = World()
    assert await world.ask("resync") == {"ok": True}
    assert world.resyncs == 1


@pytest.mark.parametrize("verb", ["exec", "", "PING", "run", "ping ", "x" * 1000])
async def test_no_other_verb(verb: str) -> None:
    reply = await World().ask(verb)
    assert reply["error"]["code"] == "unsupported"
    assert len(reply["error"]["message"]) < 200


async def test_logs() -> None:
    world = World([f"line {index}" for index in range(300)])
    assert (await world.ask("logs", LOGS))["lines"] == [
        f"line {index}" for index in range(200, 300)
    ]
    assert (await world.ask("logs", {**LOGS, "lines": 2}))["lines"] == ["line 298", "line 299"]
    assert await world.ask("logs", {"resource": "SystemdUnit/old.service", "lines": 1})
    assert world.kind.asked == [
        ("web.service", DEFAULT_LINES),
        ("web.service", 2),
        ("old.service", 1),
    ]


async def test_at_most_a_thousand_lines_though_a_kind_gives_more() -> None:
    world = World([str(index) for index in range(5000)])
    lines = (await world.ask("logs", {**LOGS, "lines": MAX_LINES}))["lines"]
    assert lines == [str(index) for index in range(4000, 5000)]


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "\0", '"', "\ud800"])
@pytest.mark.parametrize(("length", "count"), [(600, MAX_LINES), (20_000, 60), (300_000, 60)])
async def test_at_most_half_a_mebibyte_and_the_newest_of_it(
    letter: str, length: int, count: int
) -> None:
    world = World([f"{index} {letter * length}" for index in range(count)])
    data = await world.commands.answer("logs", json.dumps({**LOGS, "lines": MAX_LINES}).encode())
    assert len(data) <= MAX_BYTES
    lines = json.loads(data)["lines"]
    assert lines[-1].startswith(f"{count - 1} ")
    assert [int(line.split(" ")[0]) for line in lines] == list(range(count - len(lines), count))
    assert len(data) > MAX_BYTES / 2


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"", "bad-request"),
        (b"hello", "bad-request"),
        (b"\xff", "bad-request"),
        (b"[" * 60_000, "bad-request"),
        (b'{"resource":"' + b"x" * 100_000 + b'"}', "bad-request"),
        (b'{"resource":"SystemdUnit/web.service","lines":' + b"9" * 5000 + b"}", "bad-request"),
        (b'{"resource":"SystemdUnit/web.service","lines":NaN}', "bad-request"),
        (None, "bad-request"),
        ([], "bad-request"),
        ("x", "bad-request"),
        ({}, "bad-request"),
        ({"resource": 5}, "bad-request"),
        ({**LOGS, "lines": "5"}, "bad-request"),
        ({**LOGS, "lines": True}, "bad-request"),
        ({**LOGS, "lines": 5.0}, "bad-request"),
        ({**LOGS, "lines": None}, "bad-request"),
        ({**LOGS, "lines": 0}, "bad-request"),
        ({**LOGS, "lines": -1}, "bad-request"),
        ({**LOGS, "lines": MAX_LINES + 1}, "bad-request"),
        ({**LOGS, "follow": True}, "bad-request"),
        ({"resource": "SystemdUnit/other.service"}, "unknown-resource"),
        ({"resource": "File/web.service"}, "unknown-resource"),
        ({"resource": "web.service"}, "unknown-resource"),
        ({"resource": ""}, "unknown-resource"),
        ({"resource": "SystemdUnit/\ud800"}, "unknown-resource"),
        ({"resource": "SystemdUnit/../web.service"}, "unknown-resource"),
    ],
)
async def test_requests_that_are_refused(request_: Any, code: str) -> None:
    world = World(["x"])
    assert (await world.ask("logs", request_))["error"]["code"] == code
    assert world.kind.asked == []


async def test_what_a_kind_cannot_do_is_told() -> None:
    world = World()
    world.kind.error = Transient("JournalUnreadable", "cannot read the journal: join its group")
    reply = await world.ask("logs", LOGS)
    assert reply["error"] == {
        "code": "JournalUnreadable",
        "message": "cannot read the journal: join its group",
    }


@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=10),
    st.binary(max_size=60) | strategies.json_values().map(lambda v: json.dumps(v).encode()),
)
async def test_whatever_is_asked_is_answered(verb: str, request_: bytes) -> None:
    world = World(["x"])
    for asked in (verb, "logs"):
        json.loads(await world.commands.answer(asked, request_))


async def test_logs_with_their_times_since() -> None:
    world = World(["one", "two"])
    reply = await world.ask("logs", {**LOGS, "timestamps": True, "since_seconds": 2.5})
    assert reply["lines"] == [f"{TIME} one", f"{TIME} two"]
    assert world.kind.seconds == 2.5
    reply = await world.ask("logs", LOGS)
    assert reply["lines"] == ["one", "two"]
    assert world.kind.seconds is None


@pytest.mark.parametrize(
    "more",
    [
        {"timestamps": 1},
        {"since_seconds": 0},
        {"since_seconds": -1},
        {"since_seconds": True},
        {"since_seconds": "5s"},
        {"since_seconds": 1e12},
    ],
)
async def test_times_that_are_none(more: dict[str, Any]) -> None:
    reply = await World(["one"]).ask("logs", {**LOGS, **more})
    assert reply["error"]["code"] == "bad-request"
