"""What is of our making and what isn't, where a File comes to a place later; and Files that wait for
one another.
"""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Wait
from harmony_agent.core.dependencies import Leaving, in_the_way
from harmony_agent.core.resources import Key
from tests.fakes.drive import Cut
from tests.unit.file.world import World

THEIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "file": ({"content": b"same"}, {"content": "same"}),
    "link": ({"type": "symlink", "target": "t", "mode": 0o777}, {"type": "symlink", "target": "t"}),
    "directory": ({"type": "directory"}, {"type": "directory"}),
}


def cut(_action: object) -> None:
    raise Cut


@pytest.mark.parametrize("what", THEIRS)
@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("then", [None, "other"])
async def test_what_came_where_absence_was_wanted_stays(
    what: str, adopt: bool, then: str | None
) -> None:
    world, (node, wanted) = World(), THEIRS[what]
    await world.converge(type="absent")
    world.files.set("/srv/a", **node)
    before = world.files.things["/srv/a"]
    await world.converge(**wanted, adopt=adopt)
    assert world.files.things["/srv/a"] == before
    if then is not None:
        await world.converge(content=then, adopt=adopt)
    await world.remove()
    assert shape(world.files.things["/srv/a"]) == shape(before)


def shape(node: Any) -> tuple[Any, ...]:
    return node.type, node.content, node.target, node.mode


@pytest.mark.parametrize("what", THEIRS)
async def test_what_stands_where_a_file_moves_to_stays(what: str) -> None:
    world, (node, wanted) = World(), THEIRS[what]
    await world.converge(path="/srv/b", content="one")
    world.files.set("/srv/a", **node)
    before = world.files.things["/srv/a"]
    await world.converge(**wanted)
    await world.remove()
    assert set(world.files.things) >= {"/srv/a"}
    assert shape(world.files.things["/srv/a"]) == shape(before)
    assert "/srv/b" not in world.files.things


async def test_what_we_made_goes_though_the_agent_was_killed_before_it_said_so() -> None:
    world = World()
    await world.converge(type="absent")
    world.want(content="one")
    with pytest.raises(Cut):
        await world.settle(before=cut)
    await world.converge(content="one")
    await world.remove()
    assert "/srv/a" not in world.files.things


async def test_a_place_whose_claim_was_given_up_is_not_ours() -> None:
    """Somebody took ours away, we moved on, and they put theirs there: theirs stays."""
    world = World()
    await world.converge(content="one")
    world.files.drop("/srv/a")
    await world.converge(path="/srv/b", content="one")
    world.files.set("/srv/a", b"theirs")
    await world.settle()
    assert world.content("/srv/a") == b"theirs"
    await world.remove()
    assert world.content("/srv/a") == b"theirs"


async def waits_for_itself(world: World) -> tuple[World, Wait]:
    """`a` goes, and waits for `b` to come into its directory. Returns what `a` waits for."""
    world.store.unset("a")
    world.want("b", path="/srv/d/x", content="one")
    done = await world.settle("a")
    assert isinstance(done.plan, Wait)
    assert "File/b" in done.plan.message
    return world, done.plan


async def ends(world: World) -> None:
    """`b` waits for nothing that waits for `b`, and both get on."""
    record, desired = world.store.record("a"), world.store.desired("b")
    assert record is not None
    assert desired is not None
    observed = await world.kind.observe("b")
    taken = world.kind.taken("b", desired, observed)
    leaving = [] if "a" in taken else [record]
    assert in_the_way(world.kind.claims(desired.spec), Key("File", "b"), Leaving(leaving)) == []
    for name in ("b", "a"):
        assert (await world.settle(name)).plan == Converged()
    assert world.store.record("a") is None
    assert world.content("/srv/d/x") == b"one"
    await world.remove("b")
    assert "/srv/d/x" not in world.files.things


async def test_two_do_not_wait_for_each_other_where_one_claimed_and_never_put() -> None:
    world = World()
    await world.converge("a", path="/srv/d", type="directory")
    world.want("b", path="/srv/d/y", content="never")
    world.want("a", path="/srv/d/x", content="one")
    with pytest.raises(Cut):
        await world.settle("a", cut)
    world.restart()
    await waits_for_itself(world)
    await ends(world)


async def test_two_do_not_wait_for_each_other_where_a_place_is_given_up_and_its_claim_is_not() -> (
    None
):
    world = World()
    await world.converge("a", path="/srv/d", type="directory")
    world.want("b", path="/srv/d/y", content="never")
    world.want("a", path="/srv/d/x", content="one")
    await world.settle("a")
    world.store.unset("a")
    await world.settle("a")
    assert "/srv/d/x" not in world.files.things
    await waits_for_itself(world)
    await ends(world)


async def test_who_takes_a_place_is_not_waited_for_once_the_claim_is_gone() -> None:
    world = World()
    await world.converge("a", path="/srv/p", type="absent")
    await world.converge("a", path="/srv/q", type="directory")
    await world.converge("c", path="/srv/p", content="one")
    await world.remove("a")
    assert world.content("/srv/p") == b"one"
    await world.remove("c")
