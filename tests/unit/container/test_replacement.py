"""An update that can't be made or started: what ran goes on, or comes back, wherever the agent is
killed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.container.payload import retired_name
from scores.container import Container
from tests.fakes.containers import Made
from tests.fakes.drive import Cut
from tests.unit.container.bench import Bench, web

PORTS = [{"host_port": 8080, "container_port": 80}, {"host_port": 53, "container_port": 53}]


async def failure(bench: Bench) -> Transient:
    with pytest.raises(Transient) as caught:
        await bench.once()
    return caught.value


def untouched(bench: Bench, old: Made) -> None:
    """It is the only one, as it was."""
    assert list(bench.containers.made.values()) == [old]
    assert (old.name, old.state) == ("web", "running")


def bad_command(bench: Bench) -> Container:
    bench.containers.missing_commands.add("/bin/nope")
    return web(command=["/bin/nope"])


def bad_network(bench: Bench) -> Container:
    bench.containers.refuse("create", "unable to find network with name or ID nope", times=2)
    return web(network="nope")


def bad_image(bench: Bench) -> Container:
    return Container(name="web", image="localhost/other", pull="never")


def taken_port(bench: Bench) -> Container:
    bench.containers.refuse("init", "rootlessport listen tcp 0.0.0.0:8080: bind: in use", times=2)
    return web(ports=PORTS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (bad_command, "StartFailed"),
        (bad_network, "CreateFailed"),
        (bad_image, "ImageMissing"),
        (taken_port, "StartFailed"),
    ],
)
async def test_what_runs_is_not_touched(change: Callable[[Bench], Container], reason: str) -> None:
    bench = Bench()
    old = await bench.made(web())
    run = old.started
    bench.want(change(bench))
    for _ in range(2):
        assert (await failure(bench)).reason == reason
        untouched(bench, old)
    assert old.started == run
    assert not any(call[0] == "stop" for call in bench.containers.calls)
    bench.want(web(hostname="good"))
    assert await bench.settle() == Converged()
    assert [one.name for one in bench.containers.made.values()] == ["web"]
    assert "retired" not in bench.facts()


async def test_a_trial_leaves_the_ports_to_what_runs() -> None:
    bench = Bench()
    await bench.made(web(ports=PORTS[:1]))
    asked: list[dict[str, Any]] = []
    create = bench.containers.create

    async def recorded(payload: Any) -> str:
        asked.append(payload)
        return await create(payload)

    bench.containers.create = recorded  # type: ignore[method-assign]
    bench.want(web(ports=PORTS))
    assert await bench.settle() == Converged()
    trial, made = asked
    assert [port["host_port"] for port in trial["portmappings"]] == [53]
    assert [port["host_port"] for port in made["portmappings"]] == [8080, 53]
    assert "io.harmony.trial" not in made["labels"]


def refuse(operation: str) -> Callable[[Bench], None]:
    """The rehearsal went well; the same fails right behind it."""

    def refusing(bench: Bench) -> None:
        real, engine = getattr(bench.containers, operation), bench.containers

        async def call(*arguments: Any) -> Any:
            name = arguments[0]["name"] if operation == "create" else engine.made[arguments[0]].name
            retired = any(".retired-" in one.name for one in engine.made.values())
            if name == "web" and retired:
                engine.refuse(operation, "no")
            return await real(*arguments)

        setattr(engine, operation, call)

    return refusing


async def passes(bench: Bench, most: int = 4) -> None:
    """Passes as the engine makes them; an init container ends badly meanwhile."""
    for _ in range(most):
        try:
            result = await bench.once()
        except Transient:
            continue
        for one in list(bench.containers.made.values()):
            if ".init-" in one.name and one.state == "running":
                bench.containers.exits(one.name, 3)
        if isinstance(result.plan, Converged):
            return


def bad_init(_bench: Bench) -> None:
    """The init container does it by itself."""


@pytest.mark.parametrize("at", [None, *range(24)])
@pytest.mark.parametrize(
    ("how", "fields"),
    [
        (refuse("create"), {"hostname": "h"}),
        (refuse("start"), {"hostname": "h"}),
        (bad_init, {"init_containers": [{"name": "a"}]}),
    ],
)
async def test_what_ran_comes_back_wherever_the_agent_is_killed(
    how: Callable[[Bench], None], fields: dict[str, Any], at: int | None
) -> None:
    bench = Bench()
    old = await bench.made(web())
    how(bench)
    bench.want(web(**fields))
    kill(bench, at)
    for _ in range(4):
        try:
            await passes(bench)
        except Cut:
            bench.restart_agent()
    strays = [one for one in bench.containers.made.values() if one is not old]
    for one in strays:  # an init container that is on its way to its bad end
        assert ".init-" in one.name or one.name == "web", one.name
    while (old.name, old.state) != ("web", "running"):
        await passes(bench, 1)
        strays = strays[1:] if strays else pytest.fail("it doesn't come back")
    assert bench.facts()["id"] == old.id
    bench.want(web())
    assert await bench.settle() == Converged()
    untouched(bench, old)


@pytest.mark.parametrize("at", range(24))
async def test_an_update_that_is_cut_anywhere_is_made_once(at: int) -> None:
    bench = Bench()
    old = await bench.made(web())
    bench.want(web(hostname="h"))
    kill(bench, at)
    for _ in range(2):
        try:
            await passes(bench)
        except Cut:
            bench.restart_agent()
    (new,) = bench.containers.made.values()
    assert new is not old
    assert (new.name, new.state) == ("web", "running")
    assert bench.done().count("start web") == 1


@pytest.mark.parametrize("at", range(16))
async def test_a_container_that_is_let_go_of_amid_an_update_is_one(at: int) -> None:
    bench = Bench()
    old = await bench.made(web(on_remove="orphan"))
    bench.want(web(on_remove="orphan", hostname="h"))
    kill(bench, at)
    try:
        await passes(bench, 1)
    except Cut:
        bench.restart_agent()
    bench.store.unset("web")
    await bench.once()
    (left,) = bench.containers.made.values()
    assert left.name == "web"
    assert left is not old or left.state == "running"
    assert bench.store.record("web") is None


async def test_an_adopted_one_is_set_aside_only_for_what_can_be_made() -> None:
    bench = Bench()
    theirs = bench.containers.foreign("web")
    bench.containers.missing_commands.add("/bin/nope")
    bench.want(web(adopt=True, command=["/bin/nope"]))
    assert (await failure(bench)).reason == "StartFailed"
    assert (theirs.name, theirs.state) == ("web", "running")
    bench.want(web(adopt=True))
    assert await bench.settle() == Converged()
    assert theirs.state == "exited"


async def test_a_migration_that_ended_and_comes_back_is_not_run_again() -> None:
    bench = Bench()
    old = await bench.made(web(restart="never"))
    bench.containers.exits("web", 0)
    await bench.settle()
    bench.containers.missing_commands.add("/bin/nope")
    bench.want(web(restart="never", command=["/bin/nope"]))
    await failure(bench)
    bench.reboot()
    bench.want(web(restart="never"))
    bench.containers.calls.clear()
    assert await bench.settle() == Converged("Completed")
    assert "start web" not in bench.done()
    assert list(bench.containers.made) == [old.id]


async def test_the_names_of_what_gives_way_say_whose_it_is() -> None:
    assert retired_name("web", "a" * 64) == "web.retired-" + "a" * 12


def kill(bench: Bench, at: int | None) -> None:
    """The agent is killed ahead of its change number `at`, once; None: never."""
    if at is None:
        return
    engine: Any = bench.containers
    change, note, left = engine._change, bench.store.note, [at]

    def count() -> None:
        left[0] -= 1
        if left[0] == -1:
            raise Cut

    def counted(operation: str, *arguments: str) -> None:
        count()
        change(operation, *arguments)

    async def noted(name: str, facts: Any) -> None:
        count()
        await note(name, facts)

    engine._change = counted
    bench.store.note = noted  # type: ignore[method-assign]
