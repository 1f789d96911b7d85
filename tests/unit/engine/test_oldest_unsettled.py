"""The age of what isn't settled, whatever the wall clock does."""

from __future__ import annotations

from datetime import UTC, datetime

from harmony_agent.core.resources import Key
from harmony_agent.engine.report.heartbeat import OldestUnsettled
from scores.names import format_time
from scores.status import ResourcePhase, ResourceStatus
from tests.fakes.clock import FakeClock
from tests.unit.core.make import resource

KEY, OTHER = Key("File", "a"), Key("File", "b")


def at(wall: float, phase: ResourcePhase = "Degraded") -> ResourceStatus:
    return resource(phase, since=format_time(datetime.fromtimestamp(wall, UTC)))


async def test_a_clock_that_is_set_moves_no_age() -> None:
    clock = FakeClock()
    unsettled = OldestUnsettled(clock)
    statuses = {KEY: at(clock.wall)}
    assert unsettled.oldest(statuses) == 0
    for jump in (-1_796_000_000, 1_796_000_000, 315_000_000):
        clock.wall += jump
        await clock.advance(10)
    assert unsettled.oldest(statuses) == 30


async def test_another_unsettled_phase_begins_nothing_anew() -> None:
    clock = FakeClock()
    unsettled = OldestUnsettled(clock)
    unsettled.oldest({KEY: at(clock.wall, "Progressing")})
    await clock.advance(20)
    assert unsettled.oldest({KEY: at(clock.wall, "Degraded"), OTHER: at(clock.wall)}) == 20
    assert unsettled.oldest({KEY: at(clock.wall, "Ready"), OTHER: at(clock.wall)}) == 0
    await clock.advance(5)
    assert unsettled.oldest({KEY: at(clock.wall), OTHER: at(clock.wall)}) == 5
    assert unsettled.oldest({}) == 0


async def test_what_was_so_before_the_agent_started_counts_where_the_clock_is_right() -> None:
    clock = FakeClock()
    before = {KEY: at(clock.wall - 100)}
    assert OldestUnsettled(clock).oldest(before) == 100
    clock.synced = False
    assert OldestUnsettled(clock).oldest(before) == 0
