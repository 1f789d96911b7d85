"""Probes: what says something of an instance is counted, what says nothing of it is not, and a
defect ends no loop.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from harmony_agent.core.errors import Transient
from harmony_agent.core.resources import Key
from harmony_agent.engine.reconcile.health import Health
from scores.container import Container
from scores.probes import HttpProbe, Probe, TcpProbe
from tests.fakes.virtual import VirtualClock, VirtualLoop

KEY = Key("Container", "web")
SPEC = Container(name="web", image="x", liveness=Probe(exec=["true"], period_seconds=1))


class Answers:
    """A prober and a kind in one: each answer in its turn, the last one for ever. An exception is
    raised.
    """

    def __init__(self, *answers: int | str | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def _next(self) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def http(self, probe: HttpProbe, timeout: float) -> str:
        return str(self._next())

    async def tcp(self, probe: TcpProbe, timeout: float) -> str:
        return str(self._next())

    async def exec_probe(self, name: str, argv: list[str], timeout: float) -> int:
        return int(self._next())


def after(seconds: float, answers: Answers, spec: Container = SPEC) -> bool:
    """Whether the instance is alive after so long."""
    loop = VirtualLoop()
    kinds = cast(Any, {"Container": answers})

    async def probe() -> bool:
        health = Health(answers, kinds, VirtualClock(loop), lambda _key: None)
        running = asyncio.create_task(health.run())
        health.track(KEY, spec, "1", ready_before=False)
        await asyncio.sleep(seconds)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])
        return health.track(KEY, spec, "1", ready_before=False).alive

    try:
        return loop.run_until_complete(probe())
    finally:
        loop.close()


def test_failures_in_a_row_are_death() -> None:
    assert not after(3.5, Answers(1))
    assert after(60, Answers(0))


def test_a_container_that_is_not_there_fails_its_probe() -> None:
    assert not after(3.5, Answers(Transient("NoContainer", "there is none")))
    assert not after(3.5, Answers(Transient("Timeout", "podman answers, the probe doesn't")))


@pytest.mark.parametrize("phase", ["Unknown", "Blocked"])
def test_that_podman_is_away_kills_nothing(phase: Any) -> None:
    """It hung for long: when it is back, what runs is not restarted for that."""
    away = Transient("PodmanUnreachable", "podman does not answer", phase=phase)
    answers = Answers(away)
    assert after(60, answers)
    assert answers.asked > 50


def test_what_says_nothing_does_not_end_a_row_either() -> None:
    away = Transient("PodmanUnreachable", "podman does not answer", phase="Unknown")
    assert not after(5.5, Answers(1, away, 1, away, 1, away))


def test_a_defect_in_a_probe_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    answers = Answers(KeyError("ExitCode"), KeyError("ExitCode"), 0)
    assert after(10, answers)
    assert answers.asked > 8
    assert "a defect of the agent: KeyError" in caplog.text
    http = SPEC.model_copy(update={"liveness": Probe(http=HttpProbe(port=80), period_seconds=1)})
    assert after(10, Answers(RuntimeError("h11"), ""), http)
