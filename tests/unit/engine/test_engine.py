"""The engine whole, in memory: what a narrower configuration, a lost state, a hung look and a
defect make of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.core.resources import Key
from harmony_agent.topology.control_plane import Unreachable
from scores.canonical import digest
from scores.keys import ACTUAL, DESIRED
from scores.manifest import FieldError
from tests.unit.engine.world import DEVICE, LINEAGE, World, file


@pytest.fixture
def world() -> World:
    return World()


def test_orphan_is_said_in_time_though_the_resource_still_waits(world: World) -> None:
    async def test() -> None:
        await world.start()
        world.publish(1, file("a"), file("b"))
        await world.told("Converged", 1)
        world.files.before = _fails("b")
        world.publish(
            2, file("a", content="2", after=["File/b"], on_remove="orphan"), file("b", content="2")
        )
        await world.until(lambda: world.status("File/a").phase == "Pending")
        world.publish(3, removed=True)
        world.files.before = lambda _call, _name: None
        await world.told("Removed", 3)
        assert world.disk == {"/srv/a": b"1"}

    world.run(test())


def _fails(name: str) -> Any:
    def before(call: str, of: str) -> None:
        if call == "apply" and of == name:
            raise Transient("IoError", "cannot write", delay=1.0)

    return before


def test_a_deployment_gets_the_path_that_another_moved_away_from(world: World) -> None:
    async def test() -> None:
        await world.start()
        world.publish(1, file("a", "/srv/one"))
        await world.told("Converged", 1)
        world.publish(1, file("b", "/srv/one"), deployment="db")
        await world.told("Rejected", None, "db")
        world.files.disk.pop("/srv/one")
        world.publish(2, file("a", "/srv/two"))
        await world.told("Converged", 1, "db")

    world.run(test())


def test_a_kind_that_is_allowed_no_more_is_said_of_what_leaves_too(world: World) -> None:
    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        await world.stop()
        world._kinds = lambda _engine: {}
        await world.start()
        await world.until(lambda: world.status("File/a").reason == "KindNotAllowed")
        world.publish(2, removed=True)
        await world.told("Removing", 2)
        assert (world.said()["reason"], world.disk) == ("KindNotAllowed", {"/srv/a": b"1"})
        await world.stop()
        world._kinds = None
        await world.start()
        await world.told("Removed", 2)
        assert world.disk == {}

    world.run(test())


def test_what_the_configuration_forbids_since_is_not_done(world: World) -> None:
    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        await world.stop()
        world.disk["/srv/a"] = b"drifted"
        await world.start()
        world.engine.kinds["File"].admit = lambda spec: [FieldError("path", "PathOutsideRoots")]
        await world.until(lambda: world.status("File/a").reason == "PathOutsideRoots")
        assert (world.status("File/a").phase, world.disk) == ("Blocked", {"/srv/a": b"drifted"})

    world.run(test())


def test_a_manifest_that_an_earlier_life_accepted_is_admitted_anew(world: World) -> None:
    """The state directory is lost and the roots are others: that its digest is known allows
    nothing.
    """

    async def test() -> None:
        await world.start()
        data = world.publish(1, file("a", "/etc/a"))
        status = {"lineage": LINEAGE, "generation": 1, "digest": digest(data)}
        world.plane.set(ACTUAL, f"{DEVICE}.web", str(status).replace("'", '"').encode())
        await world.told("Rejected", 1)
        assert world.said()["reason"] == "PathOutsideRoots"
        assert world.disk == {}

    world.run(test())


@pytest.mark.parametrize(
    "rubbish", [b'{"resources":[]}', b'{"resources":{"File/a":[]}}', b"[" * 100_000, b"[]", b"0"]
)
def test_rubbish_in_actual_state_is_overwritten(world: World, rubbish: bytes) -> None:
    async def test() -> None:
        await world.start()
        world.plane.set(ACTUAL, f"{DEVICE}.web", rubbish)
        world.publish(1, file("a"))
        await world.told("Converged", 1)

    world.run(test())


def test_a_key_that_went_while_it_could_not_be_judged_is_not_judged_later(world: World) -> None:
    async def test() -> None:
        await world.start()
        await world.until(lambda: world.engine.intake.lost is None)
        unreachable = True

        def fail(call: str) -> None:
            if call == "get" and unreachable:
                raise Unreachable("there is no connection")

        world.plane.fail = fail
        world.publish(1, file("a"))
        await world.until(lambda: world.engine.acceptance.undecided)
        del world.plane.entries[DESIRED][f"{DEVICE}.web"]
        world.plane.refresh()
        await world.until(lambda: not world.engine.acceptance.undecided, 10)
        unreachable = False
        await asyncio.sleep(60)
        assert (world.disk, world.ledger.stored) == ({}, {})

    world.run(test())


def test_a_defect_in_reading_desired_state_ends_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        await world.start()
        await world.until(lambda: world.engine.intake.lost is None)
        read, defects = world.plane._read, 2

        async def broken() -> Any:
            nonlocal defects
            defects -= 1
            if defects >= 0:
                raise KeyError("unforeseen")
            return await read()

        world.plane._read = broken  # type: ignore[method-assign]
        world.plane.refresh()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        assert "the reading of desired state: a defect of the agent: KeyError" in caplog.text

    world.run(test())


def test_what_could_not_be_looked_at_is_looked_at_as_soon_as_its_kind_can_be(world: World) -> None:
    """A pass that failed in the outage waits for up to a minute; the first look that succeeds ends
    that.
    """

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)

        def silent(call: str, _name: str) -> None:
            if call != "apply":
                raise Transient("PodmanUnreachable", "no answer", phase="Unknown")

        world.files.before = silent
        world.engine.queue.add(Key("File", "a"))
        await asyncio.sleep(550)  # it tries again every minute by now, and did so 6 s ago
        assert world.status("File/a").phase == "Unknown"
        world.files.before = lambda _call, _name: None
        await world.until(lambda: world.status("File/a").phase == "Ready", 10.5)

    world.run(test())


def test_a_newer_spec_that_came_during_the_look_is_all_that_is_done(world: World) -> None:
    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        world.files.writes.clear()
        look, looking, go_on = world.files.observe, asyncio.Event(), asyncio.Event()

        async def observe(name: str) -> bytes | None:
            seen = await look(name)
            looking.set()
            await go_on.wait()
            return seen

        world.engine.kinds["File"].observe = observe
        world.publish(2, file("a", content="2"))
        await looking.wait()
        world.publish(3, removed=True)
        await world.until(lambda: Key("File", "a") not in world.engine.state.desired)
        world.publish(4, file("a", content="1"))
        await world.until(lambda: Key("File", "a") in world.engine.state.desired)
        go_on.set()
        await world.told("Converged", 4)
        assert world.files.writes == []

    world.run(test())


def test_a_new_spec_is_planned_by_what_was_seen_last_and_looked_at_when_it_is_done(
    world: World,
) -> None:
    """Where the kind says that this will do: then a change costs one look, not two."""

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        calls: list[str] = []
        world.files.before = lambda call, _name: calls.append(call)
        world.files.remembered["a"] = b"1"
        world.publish(2, file("a", content="2"))
        await world.told("Converged", 2)
        assert [call for call in calls if call != "relist"] == ["apply", "observe"]
        assert world.disk == {"/srv/a": b"2"}

    world.run(test())


def test_that_it_is_as_wanted_is_never_said_without_a_look(world: World) -> None:
    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        world.files.remembered["a"] = b"2"  # which it isn't
        world.publish(2, file("a", content="2"))
        await world.told("Converged", 2)
        assert world.disk == {"/srv/a": b"2"}

    world.run(test())


def test_what_is_worked_on_for_long_is_said_to_be_so_again_after_an_outage(world: World) -> None:
    """An image that doesn't come, and a list that once was not answered: Unknown ends with the
    outage, not the pull.
    """

    async def test() -> None:
        await world.start()
        world.files.gates["a"] = anyio.Event()
        world.publish(1, file("a"))
        await world.until(lambda: world.engine.queue.working(Key("File", "a")))
        world.files.before = _unlisted
        await world.until(lambda: world.status("File/a").phase == "Unknown")
        world.files.before = lambda _call, _name: None
        await world.until(lambda: world.status("File/a").phase == "Progressing", 10.5)
        world.files.gates["a"].set()
        await world.told("Converged", 1)

    world.run(test())


def test_what_is_found_to_be_worked_on_is_not_unknown_meanwhile(world: World) -> None:
    """Its kind can't be listed, but it itself can be looked at."""

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        world.files.before = _unlisted
        await world.until(lambda: world.status("File/a").phase == "Unknown")
        world.files.gates["a"] = anyio.Event()
        world.disk["/srv/a"] = b"by hand"
        world.engine.queue.add(Key("File", "a"))
        await world.until(lambda: world.status("File/a").phase == "Progressing", 5)
        world.files.before = lambda _call, _name: None
        world.files.gates["a"].set()
        await world.told("Converged", 1)

    world.run(test())


def _unlisted(call: str, _name: str) -> None:
    if call == "relist":
        raise Transient("PodmanUnreachable", "no answer", phase="Unknown")


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_wanted_again_while_it_is_taken_off_has_not_drifted(
    world: World, killed: bool
) -> None:
    """It was the agent that took it away: there is nothing to report, nor a reason to leave it
    so.
    """

    async def test() -> None:
        await world.start()
        world.publish(1, file("a", drift="report"), file("b"))
        await world.told("Converged", 1)
        apply, gone, go_on = world.files.apply, asyncio.Event(), asyncio.Event()

        async def slow(action: Any) -> None:
            await apply(action)
            gone.set()
            await go_on.wait()

        world.engine.kinds["File"].apply = slow
        world.publish(2, file("b"))
        await gone.wait()
        assert "/srv/a" not in world.disk
        world.publish(3, file("a", drift="report"), file("b"))
        await world.until(lambda: Key("File", "a") in world.engine.state.desired)
        if killed:
            await world.stop()
            await world.start()
        go_on.set()
        await world.told("Converged", 3)
        assert world.disk["/srv/a"] == b"1"
        assert world.status("File/a").drift is None

    world.run(test())


def refusing(world: World) -> list[float]:
    """From now on nothing may be done to a file; when that was tried."""
    refused: list[float] = []

    def refuse(call: str, _name: str) -> None:
        if call == "apply":
            refused.append(world.loop.passed)
            raise Terminal("OnlyByDependency", "refused")

    world.files.before = refuse
    return refused


def test_a_removal_that_was_refused_is_tried_again(world: World) -> None:
    """There is no spec that could change; neither need anything else, nor the agent start anew."""

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        refused = refusing(world)
        world.publish(2, removed=True)
        await world.until(lambda: len(refused) > 10, 600)
        assert (world.status("File/a").phase, world.status("File/a").reason) == (
            "Degraded",
            "OnlyByDependency",
        )
        assert refused[-1] - refused[-2] > 50
        assert (await _shown(world))["phase"] == "Removing"
        world.files.before = lambda _call, _name: None
        await world.told("Removed", 2)
        assert world.disk == {}

    world.run(test())


def test_events_bring_a_refused_removal_forward_but_make_no_hot_loop_of_it(world: World) -> None:
    """Its own attempts may be what the events come from."""

    async def test() -> None:
        key = Key("File", "a")
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        refused: list[float] = []

        def refuse(call: str, _name: str) -> None:
            if call == "apply":
                refused.append(world.loop.passed)
                assert len(refused) < 1000
                world.engine.queue.add(key)
                raise Terminal("OnlyByDependency", "refused")

        world.files.before = refuse
        world.publish(2, removed=True)
        await world.until(lambda: world.status("File/a").reason == "OnlyByDependency")
        began, before = world.loop.passed, len(refused)
        await asyncio.sleep(100)
        assert (
            (world.loop.passed - began) / 10
            < len(refused) - before
            < (world.loop.passed - began) / 4
        )
        world.files.before = lambda _call, _name: None
        began = world.loop.passed
        await world.told("Removed", 2)
        assert world.loop.passed - began < 6

    world.run(test())


def test_an_event_has_a_refused_removal_tried_at_once(world: World) -> None:
    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        refused = refusing(world)
        world.publish(2, removed=True)
        await world.until(lambda: len(refused) > 10 and world.loop.passed - refused[-1] > 10, 600)
        before, began = len(refused), world.loop.passed
        world.engine.queue.add(Key("File", "a"))
        await world.until(lambda: len(refused) > before)
        assert refused[-1] - began < 0.5

    world.run(test())


async def _shown(world: World) -> dict[str, Any]:
    await asyncio.sleep(2)
    return world.said()


def test_a_repair_that_fails_is_no_repair_and_shows_the_drift_meanwhile(world: World) -> None:
    """However often it fails, nobody undoes it: once the cause is gone it is repaired at the next
    try.
    """
    failing = True

    def before(call: str, _name: str) -> None:
        if call == "apply" and failing:
            raise Transient("NoSpace", "cannot write /srv/a: the file system is full", delay=1.0)

    async def test() -> None:
        nonlocal failing
        failing = False
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        failing, world.files.before = True, before
        world.disk["/srv/a"] = b"by hand"
        await world.until(lambda: world.status("File/a").reason == "NoSpace")
        await asyncio.sleep(60)
        shown = world.status("File/a")
        assert shown.reason == "NoSpace"
        assert shown.drift is not None
        assert (shown.drift.count, shown.drift.fields) == (0, ["content"])
        failing = False
        await world.until(lambda: world.status("File/a").phase == "Ready", 3)
        assert world.status("File/a").drift is not None
        assert world.status("File/a").drift.count == 1  # type: ignore[union-attr]

    world.run(test())
