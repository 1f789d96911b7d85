"""Events between two looks: each change once, none without a change, whatever order things come in."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_fleet.client.events import Event, EventLog
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.observe.state import STALE_AFTER
from harmony_fleet.output.event_lines import event_line
from scores.keys import ACTUAL, HEARTBEAT, INFO
from scores.status import Drift, Heartbeat, PauseInfo, RejectedField, Rejection
from tests.unit.fleet.build import NOW, SINCE, device, resource, status

DRIFT = Drift(
    count=2, fields=["mode", "owner"], first_seen=SINCE, last_seen=SINCE, action="repaired"
)
REFUSED = Rejection(
    generation=4,
    reason="UnknownField",
    errors=[RejectedField(field="scores[0].x", code="UnknownField")],
)

PAUSE = PauseInfo(scope="deployment", until=SINCE)


def entry(value: Any, revision: int, at: datetime = NOW, key: str = "pi-01.web") -> Entry:
    data = value if isinstance(value, bytes | None) else value.canonical()
    return Entry(ACTUAL, key, data, revision, at)


def beat(at: datetime, seq: int = 1, name: str = "pi-01") -> Entry:
    made = Heartbeat(
        device=name, seq=seq, desired_revision=1, oldest_unsettled_seconds=0,
        relist_age_seconds=1, clock_synchronized=True,
    )  # fmt: skip
    return Entry(HEARTBEAT, f"heartbeat.{name}", made.canonical(), seq, at)


def words(found: list[Event]) -> list[str]:
    return [" ".join(event_line(event).plain.split()[2:]) for event in found]


def after(*told: Any) -> list[str]:
    """The lines of the last of these."""
    log = EventLog()
    *before, last = [entry(value, revision) for revision, value in enumerate(told, 1)]
    for item in before:
        log.feed(item)
    return words(log.feed(last))


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        ([status()], ["pi-01/web Converged generation 3"]),
        ([status(resources={"File/a": resource()})], ["pi-01/web Converged generation 3"]),
        (
            [status("Failed", reason="Some", message="why", resources={"File/a": resource("Failed", "NoSpace")})],
            ["pi-01/web File/a Failed NoSpace", "pi-01/web Failed generation 3 Some: why"],
        ),
        (
            [status(resources={"File/a": resource(drift=DRIFT)})],
            ["pi-01/web File/a drift repaired 2 times: mode, owner", "pi-01/web Converged generation 3"],
        ),
        ([status(), status()], []),
        ([status(), status(message="other words")], []),
        (
            [status("Progressing", resources={"File/a": resource("Pending")}), status(resources={"File/a": resource()})],
            ["pi-01/web File/a Pending → Ready", "pi-01/web Progressing → Converged generation 3"],
        ),
        (
            [status(), status(resources={"File/a": resource()})],
            ["pi-01/web File/a Ready"],
        ),
        (
            [status(resources={"File/a": resource()}), status()],
            ["pi-01/web File/a Ready → gone"],
        ),
        (
            [status(), status("Rejected", rejected=REFUSED)],
            [
                "pi-01/web rejected generation 4 UnknownField: scores[0].x: UnknownField",
                "pi-01/web Converged → Rejected generation 3",
            ],
        ),
        ([status("Rejected", rejected=REFUSED), status("Rejected", rejected=REFUSED)], []),
        ([status(), status(paused=PAUSE)], [f"pi-01/web paused until {SINCE}"]),
        ([status(paused=PAUSE), status()], ["pi-01/web resumed"]),
        ([status(), None], ["pi-01/web its status is gone"]),
        ([None], ["pi-01/web its status is gone"]),
        ([None, None], []),
        ([status(), b"\xff"], ["pi-01/web its status can't be read NotUtf8"]),
        ([b"\xff", b"\xff"], []),
        ([b"\xff", status()], ["pi-01/web Converged generation 3"]),
    ],
)  # fmt: skip
def test_events_of_statuses(told: list[Any], lines: list[str]) -> None:
    assert after(*told) == lines


def test_the_same_entry_again_has_no_event() -> None:
    log, seen = EventLog(), entry(status("Failed"), 7)
    assert len(log.feed(seen)) == 1
    assert log.feed(seen) == []


def test_a_device_falls_silent_once_and_is_heard_again_once() -> None:
    log = EventLog()
    assert log.feed(beat(NOW)) == []
    assert log.look(NOW + STALE_AFTER) == []
    late = NOW + STALE_AFTER + timedelta(seconds=1)
    assert [(item.event, item.at) for item in log.look(late)] == [("silent", NOW + STALE_AFTER)]
    assert log.look(late + timedelta(hours=1)) == []
    assert log.feed(beat(NOW)) == []  # the same beat, read again
    assert [item.event for item in log.feed(beat(late, 2))] == ["heard"]
    assert log.feed(beat(late, 3)) == []
    assert [item.event for item in log.look(late + timedelta(hours=1))] == ["silent"]
    assert log.feed(Entry(HEARTBEAT, "heartbeat.pi-01", None, 9, NOW)) == []
    assert log.look(late + timedelta(hours=9)) == []


def test_a_reboot_and_another_agent_are_events() -> None:
    info = device().info
    assert info is not None
    log = EventLog()
    key = "info.pi-01"
    other = info.model_copy(update={"boot_id": "other", "agent_version": "0.2.0"})
    assert log.feed(Entry(INFO, key, info.canonical(), 1, NOW)) == []
    assert log.feed(Entry(INFO, key, b"{", 2, NOW)) == []
    found = log.feed(Entry(INFO, key, other.canonical(), 3, NOW))
    assert words(found) == ["pi-01 rebooted", "pi-01 agent 0.1.0 → 0.2.0"]


PHASES = st.sampled_from(["Ready", "Degraded", "Failed", "Pending"])
STATUSES = st.builds(
    lambda phases: status("Progressing", resources={k: resource(v) for k, v in phases.items()}),
    st.dictionaries(st.sampled_from(["File/a", "File/b", "File/c"]), PHASES),
)


@given(st.lists(STATUSES, min_size=1, max_size=6))
def test_the_events_of_resources_lead_from_the_first_to_the_last(told: list[Any]) -> None:
    """Whoever follows the events knows the phases, without a look at the statuses."""
    log = EventLog()
    log.feed(entry(told[0], 1))
    phases = {key: item.phase for key, item in told[0].resources.items()}
    for revision, value in enumerate(told[1:], 2):
        for event in log.feed(entry(value, revision)):
            if event.event == "resource":
                assert phases.get(event.resource, "") == event.before
                phases[event.resource] = event.after
                if event.after == "gone":
                    del phases[event.resource]
        assert phases == {key: item.phase for key, item in value.resources.items()}


def test_what_a_device_says_never_reaches_a_terminal_as_more_than_text() -> None:
    nasty = "\x1b[2J\x9b1m\r\n\u202e"
    key = f"File/{nasty}"
    told = status("Failed", reason=nasty, message=nasty, resources={key: resource("Failed", nasty)})
    log = EventLog()
    found = log.feed(entry(told, 1))
    assert len(found) == 2
    for event in found:
        assert event_line(event).plain.isprintable()
        assert json.loads(json.dumps(event.as_json()))["reason"] == nasty
