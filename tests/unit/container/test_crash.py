"""Cut anywhere: whatever state, spec and moment of a SIGKILL, later passes converge, and nothing is
done twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.kinds.container.plan import plan as decide
from harmony_agent.topology.containers import ContainerState, State
from scores.container import Container
from tests.fakes.drive import Cut
from tests.fakes.store import FakeStore
from tests.unit.container.bench import Bench, web

INIT: dict[str, Any] = {"init_containers": [{"name": "a"}]}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "other": {"hostname": "h", "memory": "64Mi"},
    "stopped": {"state": "stopped"},
    "never": {"restart": "never"},
    "init": INIT,
    "adopting": {"adopt": True, "hostname": "i"},
}
EVENTS = (
    "exit-0",
    "exit-1",
    "pause",
    "rename",
    "remove",
    "reboot",
    "power-cut",
    "lost",
    "limit",
    "agent-restart",
)


class Cutter:
    """Kills the agent ahead of the action number `at`, counted over passes."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _action: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise Cut


def happen(bench: Bench, event: str) -> None:
    made = next(
        (one for one in bench.containers.made.values() if one.id == bench.facts().get("id")), None
    )
    match event:
        case "reboot" | "power-cut":
            bench.reboot(power_cut=event == "power-cut")
        case "agent-restart":
            bench.restart_agent()
        case _ if made is None:
            return
        case "exit-0" | "exit-1":
            if made.state == "running":
                bench.containers.exits(made.name, int(event[-1]))
        case "pause":
            made.state = "paused" if made.state == "running" else made.state
        case "rename":
            made.name = "elsewhere"
        case "remove":
            del bench.containers.made[made.id]
        case "lost":
            made.lost = True
        case "limit":
            made.config["memory"] = "1"


async def settle(bench: Bench) -> Any:
    """Passes to the end; init containers end well meanwhile."""
    for _ in range(12):
        try:
            result = await bench.once()
        except Transient as error:  # an init container that the reboot ended runs again
            if error.reason != "InitFailed":
                raise
            continue
        if isinstance(result.plan, Converged):
            return result.plan
        for one in list(bench.containers.made.values()):
            if ".init-" in one.name and one.state == "running":
                bench.containers.exits(one.name, 0)
        if isinstance(result.plan, Wait) and result.plan.reason == "ExitedNonZero":
            return result.plan
    raise AssertionError(result)


async def cut_once(bench: Bench, at: int) -> None:
    cutter = Cutter(at)
    try:
        for _ in range(3):
            await bench.once(before=cutter)
    except (Cut, Transient):
        pass
    bench.restart_agent()


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(SPECS)), st.sampled_from(EVENTS), st.integers(0, 5)),
        min_size=1,
        max_size=5,
    ),
    foreign=st.booleans(),
)
@example(
    steps=[
        ("never", "exit-0", 3),
        ("never", "exit-0", 1),
        ("adopting", "exit-0", 2),
        ("never", "lost", 0),
    ],
    foreign=False,
)
def test_converges_after_any_cut(steps: list[tuple[str, str, int]], *, foreign: bool) -> None:
    asyncio.run(_converges(steps, foreign=foreign))


async def _converges(steps: list[tuple[str, str, int]], *, foreign: bool) -> None:
    bench = Bench()
    if foreign:
        theirs = bench.containers.foreign("theirs")
    for spec, event, at in steps:
        bench.want(web(**SPECS[spec]))
        await cut_once(bench, at)
        happen(bench, event)
    await settle(bench)
    calls, notes = list(bench.containers.calls), list(bench.store.noted)
    result = await bench.once()
    assert isinstance(result.plan, Converged | Wait)
    assert (bench.containers.calls, bench.store.noted) == (calls, notes), (
        "a second pass does nothing"
    )
    ours = [one.name for one in bench.containers.made.values() if one.name != "theirs"]
    over = isinstance(result.plan, Wait) or result.plan.phase == "Completed"
    assert ours == ["web"] or (over and ours == [])  # what ended for good is not made again
    wanted = bench.store.desired("web").spec  # type: ignore[union-attr]
    if (
        wanted.state == "running"
        and isinstance(result.plan, Converged)
        and result.plan.phase == "Ready"
    ):
        assert bench.containers.get("web").state == "running"
    bench.store.unset("web")
    for at in (0, 1, 5):
        await cut_once(bench, at)
    assert (await bench.once()).plan == Converged()
    assert [one.name for one in bench.containers.made.values()] == (["theirs"] if foreign else [])
    if foreign:
        assert theirs.state in ("running", "exited")


@pytest.mark.parametrize("at", range(6))
async def test_adoption_cut_anywhere_keeps_the_former_one(at: int) -> None:
    bench = Bench()
    theirs = bench.containers.foreign("web")
    bench.want(web(adopt=True))
    await cut_once(bench, at)
    assert await settle(bench) == Converged()
    assert bench.facts()["former"] == {"id": theirs.id, "running": True}
    bench.store.unset("web")
    await cut_once(bench, at)
    assert (await bench.once()).plan == Converged()
    assert (theirs.name, theirs.state) == ("web", "running")
    assert list(bench.containers.made) == [theirs.id]


async def test_cut_inside_the_creation_finds_the_container_by_its_labels() -> None:
    bench = Bench()
    bench.want(web())
    create = bench.containers.create

    async def create_and_die(payload: Any) -> str:
        await create(payload)
        raise Cut

    bench.containers.create = create_and_die  # type: ignore[method-assign]
    with pytest.raises(Cut):
        await bench.once()
    bench.containers.create = create  # type: ignore[method-assign]
    bench.restart_agent()
    made = bench.containers.get("web")
    assert bench.facts()["id"] == ""
    assert await settle(bench) == Converged()
    assert bench.facts()["id"] == made.id
    assert [call[0] for call in bench.containers.calls] == ["create", "start"]


@pytest.mark.parametrize("inside", ["set_aside", "put_back"])
async def test_cut_inside_an_adoption(inside: str) -> None:
    bench = Bench()
    theirs = bench.containers.foreign("web")
    rename = bench.containers.rename

    async def die(ident: str, name: str) -> None:
        raise Cut

    if inside == "put_back":
        await bench.made(web(adopt=True))
        bench.store.unset("web")
    else:
        bench.want(web(adopt=True))
    bench.containers.rename = die  # type: ignore[method-assign]
    with pytest.raises(Cut):
        await bench.once()
    bench.containers.rename = rename  # type: ignore[method-assign]
    bench.restart_agent()
    await settle(bench)
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert (theirs.name, theirs.state) == ("web", "running")


STATES: st.SearchStrategy[State] = st.sampled_from(
    ["created", "running", "paused", "stopping", "exited", "removing", "unknown"]
)


@st.composite
def observed(draw: st.DrawFn) -> Observed | None:
    def container() -> ContainerState:
        return ContainerState(
            id=draw(st.sampled_from(["a" * 64, "b" * 64])),
            name=draw(st.sampled_from(["web", "elsewhere"])),
            state=draw(STATES),
            labels={},
            exit_code=draw(st.sampled_from([None, 0, 1])),
            broken=draw(st.booleans()),
        )

    return draw(
        st.one_of(
            st.none(),
            st.builds(
                Observed,
                main=st.one_of(st.none(), st.builds(container)),
                holder=st.one_of(st.none(), st.builds(container)),
            ),
        )
    )


@given(observed(), st.sampled_from(sorted(SPECS)), st.booleans())
def test_nothing_that_is_not_ours_is_disturbed(
    seen: Observed | None, spec: str, owned: bool
) -> None:
    """Without a record no action may touch what is there, unless it says that it disturbs."""
    store = FakeStore("Container")
    wanted: Container = web(**SPECS[spec])
    desired = store.set_desired(wanted)
    if owned:
        store.claim("web", {}, {"container:web"})
    plan = decide("web", desired, store.record("web"), seen, "boot")
    if isinstance(plan, Act) and not owned:
        harmless = {"EnsureImage", "Rehearse", "Create", "RunInit", "EndInit"}
        assert all(
            action.is_disruptive or type(action).__name__ in harmless for action in plan.actions
        )
    if seen is not None and seen.holder is not None and not wanted.adopt:
        assert isinstance(plan, Wait)
        assert plan.reason == "OwnershipConflict"
