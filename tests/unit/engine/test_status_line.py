"""The sentence for `systemctl status`: what it counts and names, and that it is said only when it
differs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from harmony_agent.core.admission import NotAccepted
from harmony_agent.engine.loops import Changes
from harmony_agent.engine.report.status_line import PAUSE, StatusLine, sentence
from harmony_agent.engine.state.lost import Lost as Forgotten
from harmony_agent.topology.control_plane import Lost
from tests.fakes.clock import FakeClock

SINCE = "2026-11-29T17:00:00.000Z"
AWAY = Lost("Unreachable", "no answer")
GONE = Lost("BucketMissing", "the bucket isn't there")


def resources(*phases: str) -> Any:
    return [SimpleNamespace(phase=phase) for phase in phases]


def deployments(*kept: str) -> Any:
    return [
        SimpleNamespace(
            name=f"d{number}", not_accepted=NotAccepted(phase, "X", "x") if phase else None
        )  # type: ignore[arg-type]
        for number, phase in enumerate(kept)
    ]


@pytest.mark.parametrize(
    ("phases", "kept", "lost", "text"),
    [
        ([], [], None, "nothing is wanted of this device yet"),
        (["Ready", "Completed", "Degraded", "Ready"], [""], None, "3 of 4 resources ready"),
        (["Ready"], [], AWAY, f"1 of 1 resources ready; NATS unreachable since {SINCE}"),
        ([], [], GONE, f"nothing is wanted of this device yet; the bucket desired-state is missing since {SINCE}"),
        (["Ready"], ["Held", "", "Fenced"], None, "1 of 1 resources ready; d0 is Held; d2 is Fenced"),
        (["Ready"], ["Held"] * 5, None,
         "1 of 1 resources ready; d0 is Held; d1 is Held; d2 is Held; 2 more deployments are not accepted"),
    ],
)  # fmt: skip
def test_sentence(phases: list[str], kept: list[str], lost: Lost | None, text: str) -> None:
    assert sentence(resources(*phases), deployments(*kept), lost, SINCE) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["web"], "the memory of web was lost"),
        (["d", "b", "a", "c"], "the memory of a, b, c and 1 more was lost"),
    ],
)
def test_lost_memory_is_named(names: list[str], text: str) -> None:
    told = sentence(resources("Ready"), deployments(""), AWAY, SINCE, names)
    assert told == f"1 of 1 resources ready; {text}; NATS unreachable since {SINCE}"


async def test_said_on_change_and_not_more_often_than_once_a_pause() -> None:
    clock = FakeClock()
    book: Any = SimpleNamespace(
        statuses={},
        deployments={},
        lost=Forgotten(),
        changes=Changes(),
        pauses=SimpleNamespace(shown=dict),
    )
    said: list[str] = []
    teller = StatusLine(book, clock, said.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(teller.run)
        await clock.settle()
        assert said == ["nothing is wanted of this device yet"]
        for number in range(100):
            book.statuses[number] = SimpleNamespace(phase="Ready")
            book.changes.tell("web")
            await clock.advance(PAUSE / 20)
        assert len(said) <= 7
        await clock.advance(PAUSE)
        assert said[-1] == "100 of 100 resources ready"
        before = len(said)
        book.changes.tell("web")
        await clock.advance(10 * PAUSE)
        assert len(said) == before
        teller.lost(AWAY, SINCE)
        teller.lost(AWAY, "later")
        await clock.advance(PAUSE)
        assert said[-1].endswith(f"NATS unreachable since {SINCE}")
        teller.lost(None, "")
        await clock.advance(PAUSE)
        assert said[-1] == "100 of 100 resources ready"
        assert clock.sleeping == 0  # idle is idle
        tasks.cancel_scope.cancel()
