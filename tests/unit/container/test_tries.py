"""`restart_tries`: how often in a row what ends by itself is run again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Wait
from tests.unit.container.bench import Bench, web


async def ends(bench: Bench, code: int = 1, after: float = 1) -> Any:
    bench.containers.now += timedelta(seconds=after)
    bench.containers.exits("web", code)
    return await bench.settle()


async def spent(restart: str = "always", code: int = 1) -> Bench:
    """A bench whose container has had its two tries."""
    bench = Bench()
    await bench.made(web(restart=restart, restart_tries=2))
    for _ in range(2):
        assert await ends(bench, code) == Converged()
    plan = await ends(bench, code)
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason) == ("Failed", "TriesSpent")
    assert "2 tries" in plan.message
    bench.containers.calls.clear()
    return bench


@pytest.mark.parametrize(("restart", "code"), [("always", 1), ("always", 0), ("on-failure", 1)])
async def test_then_it_stays_ended(restart: str, code: int) -> None:
    bench = await spent(restart, code)
    for act in (bench.restart_agent, bench.reboot):
        act()
        assert isinstance(await bench.settle(), Wait)
    assert bench.done() == []


async def test_it_stays_ended_also_where_its_container_was_removed() -> None:
    bench = await spent()
    await bench.containers.remove(bench.containers.get("web").id)
    assert isinstance(await bench.settle(), Wait)
    assert bench.containers.named("web") is None


async def test_ten_minutes_of_running_begin_a_new_row() -> None:
    bench = Bench()
    await bench.made(web(restart_tries=2))
    for after in (1, 1, 700, 1):
        assert await ends(bench, after=after) == Converged()
    assert bench.facts()["tries"] == 2
    assert isinstance(await ends(bench), Wait)


@pytest.mark.parametrize(
    "fields", [{"restart_tries": 3}, {}, {"restart_tries": 2, "hostname": "h"}]
)
async def test_more_tries_or_another_spec_run_it_again(fields: dict[str, Any]) -> None:
    bench = await spent()
    bench.want(web(**fields))
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "running"


async def test_a_change_that_it_restarts_on_begins_a_new_row() -> None:
    bench = Bench()
    await bench.made(web(restart_tries=1), restart_token="1")
    assert await ends(bench) == Converged()
    assert isinstance(await ends(bench), Wait)
    bench.want(web(restart_tries=1), restart_token="2")
    assert await bench.settle() == Converged()
    assert bench.facts().get("tries") is None
    assert await ends(bench) == Converged()


async def test_without_a_bound_it_goes_on() -> None:
    bench = Bench()
    await bench.made(web())
    for _ in range(20):
        assert await ends(bench) == Converged()
