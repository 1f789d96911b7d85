"""One suite over the fake engine and over podman 4.3 and 5.4: what `topology.containers`
promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from harmony_agent.kinds.container.evidence import SETTLED
from harmony_agent.kinds.container.payload import damaged, name_holder
from harmony_agent.topology.containers import ContainerState, EngineRefused
from harmony_agent.topology.images import PullProgress, PullRequest
from tests.contract.containers_world import MISSING_COMMAND, FakeWorld, RealWorld, World
from tests.device.image import SUITES
from tests.device.lab import Lab, missing
from tests.device.machine import Device

SLEEP = ["/bin/sleep", "1000"]
IN_MEMORY = "memory"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if lacks := missing():
        pytest.skip("; ".join(lacks))
    with Lab() as made:
        yield made


@pytest.fixture(
    scope="module",
    params=[IN_MEMORY, *(pytest.param(suite, marks=pytest.mark.device) for suite in SUITES)],
)
def device(request: pytest.FixtureRequest) -> Iterator[Device | None]:
    if request.param == IN_MEMORY:
        yield None
        return
    made = request.getfixturevalue("lab").device(request.param)
    yield made
    made.close()


@pytest.fixture
async def world(device: Device | None) -> AsyncIterator[World]:
    made: World = FakeWorld() if device is None else RealWorld(device)
    yield made
    await made.clean()


def asked(world: World, name: str, *command: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": world.image,
        "entrypoint": list(command or SLEEP),
        "command": [],
        **more,
    }


async def running(world: World, name: str, *command: str, **more: Any) -> str:
    ident = await world.containers.create(asked(world, name, *command, **more))
    await world.containers.start(ident)
    return ident


async def state(world: World, ref: str) -> ContainerState:
    found = await world.containers.inspect(ref)
    assert found is not None
    return found


async def until(
    world: World, ref: str, condition: Callable[[ContainerState], bool]
) -> ContainerState:
    for _ in range(100):
        found = await state(world, ref)
        if condition(found):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"never so: {found}")


async def refusal(call: Any) -> EngineRefused:
    with pytest.raises(EngineRefused) as caught:
        await call
    return caught.value


async def test_version(world: World) -> None:
    assert (await world.containers.version()).split(".")[0] in ("4", "5")


async def test_a_life(world: World) -> None:
    labels = {"io.harmony.device": "pi-01", "team": "x=y"}
    ident = await world.containers.create(asked(world, "web", labels=labels))
    made = await state(world, "web")
    assert (made.id, made.name, made.state, made.started) == (ident, "web", "created", None)
    assert labels.items() <= made.labels.items()
    assert made.image_digest is not None
    await world.containers.start(ident)
    await world.containers.start(ident)
    first = await state(world, ident)
    assert first.state == "running"
    assert first.started is not None
    await world.containers.restart(ident, 0)
    second = await state(world, ident)
    assert second.state == "running"
    assert second.run != first.run
    await world.containers.stop(ident, 0)
    await world.containers.stop(ident, 0)
    stopped = await until(world, ident, lambda now: now.state == "exited")
    assert stopped.run == second.run
    assert stopped.exit_code is not None
    assert stopped.finished is not None
    await world.containers.start(ident)
    await world.containers.remove(ident)
    await world.containers.remove(ident)
    await world.containers.stop(ident, 0)
    assert await world.containers.inspect(ident) is None
    assert await world.containers.inspect("web") is None
    assert (await refusal(world.containers.start(ident))).status == 404


async def test_a_list_has_what_has_all_labels(world: World) -> None:
    both = await running(world, "a", labels={"one": "1", "two": "2"})
    other = await world.containers.create(asked(world, "b", labels={"one": "1"}))
    listed = {one.id: one for one in await world.containers.list({"one": "1"})}
    assert set(listed) == {both, other}
    assert (listed[both].state, listed[other].state) == ("running", "created")
    assert listed[both].pid != 0
    assert [one.name for one in await world.containers.list({"one": "1", "two": "2"})] == ["a"]
    assert await world.containers.list({"one": "2"}) == []


async def test_a_list_shows_every_end_and_start(world: World) -> None:
    ident = await running(world, "web", labels={"l": "1"})

    async def shown() -> Any:
        return (await world.containers.list({"l": "1"}))[0]

    before = await shown()
    assert await shown() == before
    await world.kill("web")
    await until(world, ident, lambda now: now.state == "exited")
    ended = await shown()
    assert (ended.state, ended.exit_code) == ("exited", 137)
    await world.containers.start(ident)
    after = await shown()
    assert after not in (before, ended)
    assert after.state == "running"


async def test_a_name_is_never_taken_for_the_start_of_another(world: World) -> None:
    ident = await world.containers.create(asked(world, "web"))
    for ref in (ident[:12], ident[:2], "we", "w.b", "WEB"):
        assert await world.containers.inspect(ref) is None


async def test_an_end_by_itself(world: World) -> None:
    ident = await running(world, "web", "/bin/false")
    ended = await until(world, ident, lambda now: now.state == "exited")
    assert ended.exit_code == 1
    assert ended.started is not None
    assert ended.finished is not None


async def test_images(world: World) -> None:
    found = await world.containers.image(world.image)
    assert found is not None
    assert found.digest is not None
    assert await world.containers.image("localhost/nope:1") is None
    await refusal(world.containers.create({**asked(world, "web"), "image": "localhost/nope:1"}))
    assert await world.containers.inspect("web") is None


async def test_a_pull_from_nowhere_brings_no_image(world: World) -> None:
    heard: list[PullProgress] = []
    with suppress(EngineRefused):  # or nothing at all is said
        await world.images.pull(PullRequest("127.0.0.1:9/nope:1", 20.0), heard.append)
    assert await world.containers.image("127.0.0.1:9/nope:1") is None
    assert heard == []
    assert await world.images.free() > 0


async def test_an_image_goes_with_its_last_name_and_not_from_under_a_container(
    world: World,
) -> None:
    found = await world.containers.image(world.image)
    assert found is not None
    ident = found.id.removeprefix("sha256:")
    before = {image.id: image for image in await world.images.list()}
    name = before[ident].names[0]
    await world.tag("localhost/second:1")
    tagged = {image.id: image for image in await world.images.list()}[ident]
    assert sorted(tagged.names) == sorted([name, "localhost/second:1"])
    await world.images.remove("localhost/second:1")
    await world.images.remove("localhost/second:1")
    assert {image.id: image for image in await world.images.list()} == before
    await world.containers.create(asked(world, "web"))
    await refusal(world.images.remove(name))
    assert await world.containers.image(world.image) is not None


async def test_a_name_that_is_taken(world: World) -> None:
    first = await world.containers.create(asked(world, "web"))
    refused = await refusal(world.containers.create(asked(world, "web")))
    assert "in use" in refused.text
    assert name_holder(refused.text) in (first, None)
    second = await world.containers.create(asked(world, "other"))
    await refusal(world.containers.rename(second, "web"))
    await world.containers.rename(first, "elsewhere")
    await world.containers.rename(second, "web")
    assert (await state(world, "web")).id == second
    assert (await state(world, "elsewhere")).id == first


async def test_a_name_that_only_the_storage_holds_is_cleared(world: World) -> None:
    old = await world.containers.create(asked(world, "left"))
    await world.forget("left")
    assert await world.containers.inspect("left") is None
    refused = await refusal(world.containers.create(asked(world, "left")))
    assert name_holder(refused.text) == old
    await world.containers.clear_storage(old)
    await world.containers.create(asked(world, "left"))


async def test_a_paused_one_goes_on(world: World) -> None:
    ident = await running(world, "web")
    await world.pause("web")
    assert (await state(world, ident)).state == "paused"
    await world.containers.unpause(ident)
    assert (await state(world, ident)).state == "running"


async def test_a_command_that_does_not_exist(world: World) -> None:
    ident = await world.containers.create(asked(world, "web", MISSING_COMMAND))
    refused = await refusal(world.containers.start(ident))
    assert not damaged(refused.text)
    assert (await state(world, ident)).state == "created"
    await world.containers.stop(ident, 0)
    await world.containers.remove(ident)
    assert await world.containers.inspect(ident) is None


async def test_what_a_start_would_refuse_is_refused_while_it_is_made_ready(world: World) -> None:
    bad = await world.containers.create(asked(world, "bad", MISSING_COMMAND))
    refused = await refusal(world.containers.init(bad))
    assert not damaged(refused.text)
    good = await world.containers.create(asked(world, "good"))
    await world.containers.init(good)
    await world.containers.init(good)
    ready = await state(world, good)
    assert (ready.state, ready.started) == ("created", None)
    await world.containers.start(good)
    assert (await state(world, good)).state == "running"


async def test_ports_of_the_device_are_shown(world: World) -> None:
    ports = [
        {"host_port": 18080, "container_port": 80, "protocol": "tcp", "host_ip": "127.0.0.1"},
        {"host_port": 15353, "container_port": 53, "protocol": "udp", "host_ip": ""},
    ]
    ident = await world.containers.create(asked(world, "web", portmappings=ports))
    for _ in range(2):
        assert (await state(world, ident)).ports == {("tcp", 18080), ("udp", 15353)}
        await world.containers.start(ident)


async def test_a_stop_by_somebody_is_told_from_an_end_by_itself(world: World) -> None:
    """A kill by hand counts as a stop. Podman 4.3 tells by its events alone."""
    telling = not (await world.containers.version()).startswith("4.")
    names = ("ended", "killed", "stopped")
    for name in names:
        await running(world, name, *(["/bin/false"] if name == "ended" else []))
    await world.kill("killed")
    await world.stop("stopped")
    for name in names:
        found = await until(world, name, lambda now: now.state == "exited")
        assert found.stopped is (name != "ended" if telling else None)
        if not telling:
            assert await who_ended(world, found) is (name != "ended")
    await world.containers.start(found.id)
    assert not (await state(world, "stopped")).stopped


async def who_ended(world: World, found: ContainerState) -> bool | None:
    """The answer once it is sure."""
    assert found.finished is not None
    while (stopped := await world.containers.was_stopped(found)) is not True:
        if datetime.now(UTC) - found.finished > SETTLED:
            break
        await asyncio.sleep(0.1)
    return stopped


async def test_an_earlier_stop_says_nothing_of_a_later_run(world: World) -> None:
    ident = await running(world, "web")
    await world.stop("web")
    await until(world, ident, lambda now: now.state == "exited")
    await world.containers.start(ident)
    before = await state(world, ident)
    assert await world.containers.was_stopped(before) in (None, False)
    await world.kill("web")
    killed = await until(world, ident, lambda now: now.state == "exited")
    await wait_for(lambda: world.containers.was_stopped(killed))


async def wait_for(question: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is yes."""
    deadline = asyncio.get_running_loop().time() + 10
    while not await question():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.1)


async def test_exec(world: World) -> None:
    ident = await running(world, "web")
    assert await world.containers.exec(ident, ["/bin/true"], 10.0) == 0
    assert await world.containers.exec(ident, ["/bin/false"], 10.0) == 1
    assert await world.containers.exec(ident, [MISSING_COMMAND], 10.0) == 127


async def test_logs(world: World) -> None:
    ident = await running(world, "web", "/bin/echo", "one", "two")
    await until(world, ident, lambda now: now.state == "exited")
    found = await world.containers.logs(ident, 10, 600)
    assert [line.text for line in found] == ["one two"]
    await world.containers.start(ident)
    await until(world, ident, lambda now: now.state == "exited")
    assert len(await world.containers.logs(ident, 1)) == 1


async def test_what_can_be_changed_is_shown_alike_before_during_and_after_a_run(
    world: World,
) -> None:
    """The kind compares it with what it was right after the creation."""
    check: Mapping[str, Any] = {
        "Test": ["CMD", "/bin/true"],
        "Interval": 10**9,
        "Timeout": 10**9,
        "Retries": 3,
    }
    await world.network("lan")
    bridge: Mapping[str, Any] = {"netns": {"nsmode": "bridge"}, "networks": {"lan": {}}}
    for name, more in {
        "a": {"netns": {"nsmode": "host"}, "healthconfig": check},
        "b": {},
        "c": bridge,
    }.items():
        ident = await world.containers.create(asked(world, name, **more))
        made = await state(world, ident)
        await world.containers.start(ident)
        assert (await state(world, ident)).config == made.config
        await world.containers.stop(ident, 0)
        assert (await state(world, ident)).config == made.config


async def test_health(world: World) -> None:
    check = {"Test": ["CMD", "/bin/true"], "Interval": 10**9, "Timeout": 10**9, "Retries": 3}
    ident = await running(world, "web", healthconfig=check)
    assert (await until(world, ident, lambda now: now.health == "healthy")).state == "running"


async def test_events(world: World) -> None:
    heard: list[tuple[str, str]] = []

    async def listen() -> None:
        async for event in world.containers.events():
            heard.append((event.name, event.labels.get("l", "")))

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.5)
    ident = await running(world, "web", labels={"l": "1"})
    await world.kill("web")
    await until(world, ident, lambda now: now.state == "exited")
    await world.containers.remove(ident)
    for _ in range(600):
        if len(heard) >= 3:
            break
        await asyncio.sleep(0.05)
    listening.cancel()
    await asyncio.wait([listening])
    assert set(heard) == {("web", "1")}
    assert len(heard) >= 3
