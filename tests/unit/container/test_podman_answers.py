"""What podman answers, as two versions of it did, and in the forms that it might."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.adapters.podman import decode as answers
from harmony_agent.adapters.podman.transport import answered
from harmony_agent.topology.containers import ContainerEvent, EngineRefused, Listed

DIGEST = "sha256:" + "a" * 64


class Body:
    """As much of a response as `answered` looks at."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self._text = status, text

    async def read(self) -> bytes:
        return self._text.encode()


async def test_answers_that_are_errors() -> None:
    good: Any = Body(200, "")
    assert await answered(good) is good
    missing: Any = Body(404, "")
    assert await answered(missing, missing=True) is missing
    refused: Any = Body(500, '{"cause":"c","message":"no such image","response":500}')
    with pytest.raises(EngineRefused) as caught:
        await answered(refused)
    assert (caught.value.status, caught.value.text) == (500, "no such image")
    assert "no such image" not in str(caught.value)


@pytest.mark.parametrize("text", ["plain words", "[]", '{"cause": 1}'])
async def test_errors_in_other_forms(text: str) -> None:
    refused: Any = Body(404, text)
    with pytest.raises(EngineRefused) as caught:
        await answered(refused)
    assert caught.value.text == text


def test_a_list_entry() -> None:
    entry: dict[str, Any] = {
        "Id": "1",
        "Names": ["web"],
        "State": "running",
        "Labels": {"a": "b"},
        "ExitCode": 0,
    }
    entry |= {"StartedAt": 5, "ExitedAt": -1, "Pid": 7, "Networks": ["z", "a"]}
    assert answers.listed(entry) == Listed(
        "1", "web", "running", {"a": "b"}, 0, 5, -1, 7, ("a", "z")
    )
    assert answers.listed({"Id": "1", "Names": None, "Labels": None}) == Listed(
        "1", "", "unknown", {}
    )


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ("configured", "created"),
        ("initialized", "created"),
        ("stopped", "exited"),
        ("stopping", "stopping"),
        ("odd", "unknown"),
    ],
)
def test_states(shown: str, state: str) -> None:
    assert answers.container({"Id": "1", "Name": "w", "State": {"Status": shown}}).state == state


def test_an_inspected_container() -> None:
    body: dict[str, Any] = {
        "Id": "1",
        "Name": "web",
        "Image": "i",
        "ImageDigest": DIGEST,
        "State": {
            "Status": "exited",
            "ExitCode": 3,
            "StartedAt": "2026-11-29T18:00:00.123456789+01:00",
            "FinishedAt": "0001-01-01T00:00:00Z",
            "Healthcheck": {"Status": "unhealthy"},
        },
        "Config": {"Labels": None, "StopTimeout": 7},
        "HostConfig": {
            "NetworkMode": "pasta",
            "Memory": 5,
            "PidsLimit": 6,
            "CpuQuota": 1,
            "CpuPeriod": 2,
        },
        "NetworkSettings": {"Networks": {"pasta": {}, "b": {}, "a": {}}},
    }
    state = answers.container(body)
    assert state.started == datetime(2026, 11, 29, 17, 0, 0, 123456, tzinfo=UTC)
    assert (state.finished, state.exit_code, state.health, state.stop_timeout) == (
        None,
        3,
        "unhealthy",
        7,
    )
    assert state.image_digest == DIGEST
    assert {name: state.config[name] for name in ("memory", "cpus", "pids", "network")} == {
        "memory": "5",
        "cpus": "1/2",
        "pids": "6",
        "network": "pasta,a,b",
    }
    checked = {**body, "Config": {"Healthcheck": {"Test": ["CMD", "x"]}}}
    assert answers.container(checked).config["healthcheck"] != state.config["healthcheck"]


def test_an_image() -> None:
    assert answers.image({"Id": "1", "Digest": "odd", "Config": None}).digest is None
    assert answers.image(
        {"Id": "1", "Digest": DIGEST, "Config": {"Entrypoint": ["/e"]}}
    ).entrypoint == ("/e",)


@pytest.mark.parametrize(
    "text", [None, "", "never", "0001-01-01T00:00:00Z", "0001-01-01T01:00:00+01:00"]
)
def test_no_moment(text: str | None) -> None:
    assert answers.moment(text) is None


def test_a_moment_without_a_zone_is_utc() -> None:
    assert answers.moment("2026-11-29T18:00:00") == datetime(2026, 11, 29, 18, tzinfo=UTC)


def test_events() -> None:
    line = b'{"Actor":{"ID":"1","Attributes":{"name":"web","io.harmony.device":"d"}}}'
    assert answers.event(line) == ContainerEvent(
        "1", "web", {"name": "web", "io.harmony.device": "d"}
    )
    for odd in (b"", b"{}", b"[]", b'{"Actor":null}'):
        assert answers.event(odd) is None


def frame(text: bytes) -> bytes:
    return b"\x01\0\0\0" + len(text).to_bytes(4, "big") + text


def log_lines(chunks: list[bytes], most: int, limit: int) -> list[str]:
    found = answers.LogLines(most, limit)
    for chunk in chunks:
        found.add(chunk)
    return [line.text for line in found.lines()]


@pytest.mark.parametrize(
    ("line", "time", "text"),
    [
        ("2026-11-29T18:00:00.123456789+01:00 one two", "2026-11-29T17:00:00.123456Z", "one two"),
        ("2026-11-29T17:00:00Z ", "2026-11-29T17:00:00.000000Z", ""),
        ("5 o'clock", "", "5 o'clock"),
        ("2026-99-29T17:00:00Z x", "", "2026-99-29T17:00:00Z x"),
    ],
)
def test_a_log_line_has_its_time_in_utc(line: str, time: str, text: str) -> None:
    found = answers.LogLines(10, 1000)
    found.add(frame(f"{line}\n".encode()))
    assert found.lines() == [(time, text)]


@given(
    st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1), max_size=20),
    st.integers(1, 9),
)
def test_log_lines_however_they_are_cut(lines: list[str], size: int) -> None:
    data = b"".join(frame(f"{line}\n".encode()) for line in lines)
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert log_lines(chunks, 100, 10**6) == lines
    assert log_lines(chunks, 2, 10**6) == lines[-2:]


def test_log_lines_are_bounded() -> None:
    chunks = [frame(b"%04d\n" % number) for number in range(1000)]
    assert log_lines(chunks, 1000, 50) == [f"{number:04d}" for number in range(990, 1000)]
    assert len(log_lines([frame(b"x" * 1000)], 10, 50)[0]) == 50
    assert log_lines(chunks, 0, 50) == []


def events_of(*named: tuple[str, float]) -> list[bytes]:
    return [
        b'{"Action":"%s","timeNano":%d}' % (name.encode(), int((1_796_000_000 + at) * 1e9))
        for name, at in named
    ]


ENDED = (("start", 0.1), ("died", 20.0), ("cleanup", 20.3))


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], None),
        ([("start", 0.1)], None),
        (ENDED[:2], False),
        (ENDED, False),
        ([*ENDED, ("cleanup", 20.4)], True),  # podman stop
        ([("kill", 19.9), *ENDED], True),
        ([("kill", 5.0), *ENDED], False),  # a signal that it went on after
        ([("stop", 20.1), *ENDED], True),
        ([("died", -9.0), ("cleanup", -8.0), ("cleanup", -7.9)], None),  # the run before
        ([("died", -9.0), ("cleanup", -8.0), *ENDED], False),
    ],
)
def test_podmans_events_tell_who_ended_a_run(
    events: list[tuple[str, float]], told: bool | None
) -> None:
    lines = [b"no JSON", b"{}", b"[]", *events_of(*events)]
    assert answers.was_stopped(lines, datetime.fromtimestamp(1_796_000_000, UTC)) is told
