"""A bind shows what was at its source when the container was started: a File that was replaced since
is taken up by one restart, or told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged
from harmony_agent.kinds.container.actions import Restart
from harmony_agent.topology.containers import Image
from scores.container import Container
from tests.fakes.drive import Cut
from tests.unit.container.bench import IMAGE, Bench, web

CONF = "/srv/web.conf"
BOUND: dict[str, Any] = {"mounts": [{"type": "bind", "source": CONF, "target": "/etc/web.conf"}]}


async def bench_with(inode: str = "1:10", *, ours: bool = True, **fields: Any) -> Bench:
    bench = Bench()
    bench.env_files.inodes[CONF] = inode
    if ours:
        bench.store.others.add(f"path:{CONF}")
    await bench.made(web(**BOUND, **fields))
    return bench


async def test_a_file_that_was_replaced_is_taken_up_by_one_restart() -> None:
    bench = await bench_with()
    ident = bench.containers.get("web").id
    bench.env_files.inodes[CONF] = "1:11"
    result = await bench.once()
    assert (result.fields, result.plan) == (["mounts"], Converged())
    assert bench.done() == ["restart web"]
    assert bench.containers.get("web").id == ident
    for _ in range(2):
        bench.restart_agent()
        assert await bench.settle() == Converged()
    assert bench.done() == ["restart web"]
    assert (await bench.kind.relist())["web"].stale == ()


async def test_the_relist_sees_it() -> None:
    bench = await bench_with()
    before = await bench.kind.relist()
    bench.env_files.inodes[CONF] = "1:11"
    assert (await bench.kind.relist())["web"].stale == (CONF,)
    assert before["web"].stale == ()


@pytest.mark.parametrize("now", ["1:10", None])
async def test_what_is_the_same_or_cannot_be_seen_changes_nothing(now: str | None) -> None:
    bench = await bench_with()
    if now is None:
        del bench.env_files.inodes[CONF]
    assert await bench.settle() == Converged()
    assert bench.done() == []


async def test_a_source_that_is_no_file_of_ours_is_its_owners() -> None:
    bench = await bench_with(ours=False)
    bench.env_files.inodes[CONF] = "1:11"
    assert await bench.settle() == Converged()
    assert bench.done() == []


async def test_what_an_agent_of_before_started_is_left_alone() -> None:
    bench = await bench_with()
    facts = bench.facts()
    del facts["binds"]
    bench.store.claim("web", facts)
    bench.env_files.inodes[CONF] = "1:11"
    assert await bench.settle() == Converged()
    assert bench.done() == []


async def test_one_that_does_not_run_gets_it_at_its_start() -> None:
    bench = await bench_with(state="stopped")
    bench.env_files.inodes[CONF] = "1:11"
    assert await bench.settle() == Converged()
    bench.want(web(**BOUND))
    assert await bench.settle() == Converged()
    assert bench.done() == ["start web"]


async def test_a_restart_for_another_reason_takes_it_up_as_well() -> None:
    bench = await bench_with()
    bench.want(web(**BOUND), restart_token="1")
    await bench.settle()
    bench.containers.calls.clear()
    bench.want(web(**BOUND), restart_token="2")
    bench.env_files.inodes[CONF] = "1:11"
    assert await bench.settle() == Converged()
    assert bench.done() == ["restart web"]


async def test_a_restart_that_was_cut_is_made_once_more() -> None:
    bench = await bench_with()
    bench.env_files.inodes[CONF] = "1:11"
    restart = bench.containers.restart

    async def die(ident: str, grace: int) -> None:
        raise Cut

    bench.containers.restart = die  # type: ignore[method-assign]
    with pytest.raises(Cut):
        await bench.once()
    bench.containers.restart = restart  # type: ignore[method-assign]
    bench.restart_agent()
    assert await bench.settle() == Converged()
    assert bench.done() == ["restart web"]


async def test_it_is_drift_which_is_paced_and_may_only_be_told() -> None:
    bench = await bench_with()
    bench.env_files.inodes[CONF] = "1:11"
    record, desired = bench.store.record("web"), bench.store.desired("web")
    plan = bench.kind.plan("web", desired, record, await bench.kind.observe("web"))
    assert isinstance(plan, Act)
    assert (plan.drift, plan.is_restart, plan.fields) == (True, False, ("mounts",))
    (action,) = plan.actions
    assert isinstance(action, Restart)
    assert CONF in action.reason


async def test_a_look_over_all_identifies_binds_and_asks_for_images_once() -> None:
    bench = await bench_with()
    for name in ("web", "b", "c"):
        await bench.made(Container(name=name, image=IMAGE, pull="never", **BOUND))
    asked: list[str] = []
    identified: list[Collection[str]] = []
    look, identify = bench.containers.image, bench.env_files.identify

    async def image_of(name: str) -> Image | None:
        asked.append(name)
        return await look(name)

    async def identify_all(paths: Collection[str]) -> Mapping[str, str | None]:
        identified.append(set(paths))
        return await identify(paths)

    bench.containers.image = image_of  # type: ignore[method-assign]
    bench.env_files.identify = identify_all  # type: ignore[method-assign]
    assert set(await bench.kind.relist()) == {"web", "b", "c"}
    assert (asked, identified) == ([IMAGE], [{CONF}])
