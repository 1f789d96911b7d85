"""File, through the engine's pass, on a device in memory: what a Score wants is there, stays so,
and goes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.file import FileReconciler
from harmony_agent.kinds.file.actions import (
    BackUp,
    Drop,
    MakeParents,
    Put,
    Release,
    SetAttributes,
    Sweep,
)
from harmony_agent.topology.files import MAX_READ, PathError, PathQuery, PathState
from scores.canonical import digest
from scores.file import File, ObjectRef
from scores.manifest import FieldError
from tests.fakes.drive import Cut
from tests.unit.file.world import World, reasons


@pytest.fixture
def world() -> World:
    made = World()
    made.files.set("/srv/there")  # so that the root has a neighbour that must never change
    return made


# -- made, changed, drifted, removed


async def test_a_file_is_made_changed_repaired_and_removed(world: World) -> None:
    await world.converge(content="one\n", mode="0600")
    assert (world.content("/srv/a"), world.files.things["/srv/a"].mode) == (b"one\n", 0o600)
    result = await world.converge(content="two\n", mode="0640")
    assert [type(action) for action in result.actions] == [Put]
    world.files.set("/srv/a", b"by hand", mode=0o777)
    result = await world.settle()
    assert result.fields == ["content", "mode"]
    assert world.content("/srv/a") == b"two\n"
    await world.remove()
    assert set(world.files.things) == {"/srv/there"}


@pytest.mark.parametrize(
    ("fields", "by_hand", "differ", "action", "reason"),
    [
        ({"content": "x"}, {"content": b"y"}, ["content"], Put, "content differs"),
        (
            {"content_base64": "/w=="},
            {"content": b"\xff\xff"},
            ["content_base64"],
            Put,
            "content_base64 differs",
        ),
        (
            {"content": "x", "mode": "0600"},
            {"content": b"x", "mode": 0o644},
            ["mode"],
            SetAttributes,
            "mode differs",
        ),
        (
            {"content": "x", "owner": "www"},
            {"content": b"x"},
            ["owner"],
            SetAttributes,
            "owner differs",
        ),
        (
            {"content": "x", "owner": "33", "group": "www"},
            {"content": b"x"},
            ["owner", "group"],
            SetAttributes,
            "owner and group differ",
        ),
        ({"content": "x"}, {"type": "directory"}, ["type"], Put, "a directory is there"),
        ({"content": "x"}, {"type": "other"}, ["type"], Put, "no regular file is there"),
        ({"type": "directory"}, {"content": b"x"}, ["type"], Put, "a file is there"),
        (
            {"type": "directory", "mode": "0700"},
            {"type": "directory", "mode": 0o755},
            ["mode"],
            SetAttributes,
            "mode differs",
        ),
        (
            {"type": "symlink", "target": "t"},
            {"type": "symlink", "target": "u"},
            ["target"],
            Put,
            "target differs",
        ),
        (
            {"type": "symlink", "target": "t", "group": "www"},
            {"type": "symlink", "target": "t"},
            ["group"],
            Put,
            "group differs",
        ),
        (
            {"type": "absent"},
            {"type": "symlink", "target": "u"},
            ["type"],
            Drop,
            "a symbolic link is there",
        ),
    ],
)
async def test_each_field_that_the_score_sets_is_repaired(
    world: World,
    fields: dict[str, str],
    by_hand: dict[str, object],
    differ: list[str],
    action: type,
    reason: str,
) -> None:
    await world.converge(**fields)
    world.files.set("/srv/a", **by_hand)  # type: ignore[arg-type]
    result = await world.settle()
    assert result.fields == differ
    assert [(type(step), step.reason) for step in result.actions] == [(action, reason)]
    assert result.plan == Converged()
    await world.idle()


async def test_what_the_score_does_not_set_is_not_looked_at(world: World) -> None:
    await world.converge(content="x")
    world.files.set("/srv/a", b"x", mode=0o400, uid=7, gid=8)
    await world.idle()
    await world.converge(content="y")
    assert (world.files.things["/srv/a"].mode, world.files.things["/srv/a"].uid) == (0o400, 7)


async def test_a_file_that_was_deleted_comes_back(world: World) -> None:
    await world.converge(content="x")
    world.files.drop("/srv/a")
    result = await world.settle()
    assert (result.fields, world.content("/srv/a")) == (["type"], b"x")


async def test_content_from_an_object_store(world: World) -> None:
    content = b"\0" * 250_000
    world.objects.contents["b", "big"] = content
    await world.converge(object=ObjectRef(bucket="b", name="big", digest=digest(content)))
    assert world.content("/srv/a") == content
    world.files.set("/srv/a", b"")
    assert (await world.settle()).fields == ["object"]


async def test_an_object_of_another_digest_changes_nothing(world: World) -> None:
    world.objects.contents["b", "big"] = b"wrong"
    world.want(object=ObjectRef(bucket="b", name="big", digest=digest(b"right")))
    with pytest.raises(Transient, match="cannot write") as caught:
        await world.settle()
    assert caught.value.reason == "DigestMismatch"
    assert "/srv/a" not in world.files.things


async def test_absent_is_so_without_a_change(world: World) -> None:
    result = await world.converge(type="absent", path="/srv/no/such/parent")
    assert result.actions == []
    await world.remove()


@pytest.mark.parametrize(
    "order",
    [
        ("file", "directory", "symlink", "absent", "file"),
        ("symlink", "file", "absent", "directory", "file"),
    ],
)
async def test_a_spec_may_change_its_type(world: World, order: tuple[str, ...]) -> None:
    fields = {"file": {"content": "x"}, "symlink": {"target": "t"}, "directory": {}, "absent": {}}
    for kind in order:
        await world.converge(type=kind, **fields[kind])
        found = world.files.things.get("/srv/a")
        assert (found.type if found else "absent") == kind
    await world.remove()
    assert set(world.files.things) == {"/srv/there"}


# -- not ours


async def test_what_is_not_ours_is_left_alone(world: World) -> None:
    world.files.set("/srv/a", b"theirs")
    world.want(content="ours")
    assert await world.blocked() == "OwnershipConflict"
    assert world.store.record("a") is None
    await world.remove()
    assert world.content("/srv/a") == b"theirs"


async def test_what_already_is_as_wanted_is_ours_without_a_change(world: World) -> None:
    world.files.set("/srv/a", b"same")
    before = world.files.things["/srv/a"]
    await world.converge(content="same")
    assert (world.files.things["/srv/a"], world.files.changes) == (before, [])
    await world.remove()
    assert "/srv/a" not in world.files.things


async def test_what_appears_before_the_first_write_is_left_alone(world: World) -> None:
    def appear(_action: object) -> None:
        world.files.set("/srv/a", b"theirs")

    world.want(content="ours")
    with pytest.raises(Transient) as caught:
        await world.settle(before=appear)
    assert caught.value.reason == "ChangedMeanwhile"
    assert await world.blocked() == "OwnershipConflict"
    await world.remove()
    assert world.content("/srv/a") == b"theirs"


async def test_what_appears_where_absence_was_wanted_is_removed_as_drift_but_not_on_removal(
    world: World,
) -> None:
    await world.converge(type="absent")
    world.files.set("/srv/a", b"again")
    assert (await world.settle()).fields == ["type"]
    world.files.set("/srv/a", b"again")
    await world.remove()
    assert world.content("/srv/a") == b"again"


async def test_what_stands_where_absence_was_wanted_is_not_ours_for_the_next_spec(
    world: World,
) -> None:
    await world.converge(type="absent")
    world.files.set("/srv/a", b"theirs")
    world.want(content="ours")
    assert await world.blocked() == "OwnershipConflict"


async def test_a_directory_that_holds_something_is_never_removed(world: World) -> None:
    await world.converge(type="directory")
    world.files.set("/srv/a/kept", b"theirs")
    world.want(content="x")
    assert await world.blocked() == "DirectoryNotEmpty"
    world.files.drop("/srv/a/kept")
    await world.remove()
    assert "/srv/a" not in world.files.things


async def test_a_directory_that_holds_something_is_let_go_of(world: World) -> None:
    await world.converge(type="directory")
    world.files.set("/srv/a/kept", b"theirs")
    before = dict(world.files.things)
    result = await world.remove()
    assert ["holds what isn't this File's" in action.reason for action in result.actions] == [True]
    assert world.files.things == before


# -- adopt


@pytest.mark.parametrize(
    "former",
    [
        {"content": b"theirs", "mode": 0o4755, "uid": 33, "gid": 0},
        {"type": "symlink", "target": "elsewhere", "uid": 33},
        {"type": "directory", "mode": 0o2775, "gid": 33},
        {"content": b"x", "mode": 0o600},
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"content": "x", "mode": "0644"},
        {"type": "directory", "mode": "0755"},
        {"type": "symlink", "target": "t"},
        {"type": "absent"},
    ],
)
async def test_what_is_adopted_comes_back(
    world: World, former: dict[str, object], fields: dict[str, str]
) -> None:
    world.files.set("/srv/a", **former)  # type: ignore[arg-type]
    before = world.files.things["/srv/a"]
    await world.converge(adopt=True, **fields)
    await world.converge(adopt=True, content="another spec")
    world.files.set("/srv/a", b"drift")
    await world.settle()
    await world.remove()
    after = world.files.things["/srv/a"]
    assert (after.type, after.content, after.target) == (before.type, before.content, before.target)
    assert (after.uid, after.gid) == (before.uid, before.gid)
    assert after.mode == before.mode or after.type == "symlink"
    assert world.files.formers == {}


async def test_what_is_adopted_and_then_let_go_leaves_no_copy(world: World) -> None:
    world.files.set("/srv/a", b"theirs")
    await world.converge(adopt=True, content="ours", on_remove="orphan")
    assert len(world.files.formers) == 1
    await world.remove()
    assert world.files.things["/srv/a"].content == b"ours"
    assert world.files.formers == {}


async def test_let_go_and_wanted_again_before_its_record_is_forgotten(world: World) -> None:
    """The agent is killed in between: what was let go is what stands there now, and the copy isn't
    missed.
    """
    world.files.set("/srv/a", b"theirs")
    await world.converge(content="ours", adopt=True, on_remove="orphan")
    await world.kind.release("a")
    assert world.files.formers == {}
    world.restart()
    await world.converge(content="newer", adopt=True)
    await world.remove()
    assert world.content("/srv/a") == b"ours"


@pytest.mark.parametrize("content", ["ours", "newer"])
async def test_what_was_given_back_is_its_owner_s_though_the_agent_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """Also for what is wanted next, and also where its owner changed it before."""
    world.files.set("/srv/a", b"theirs")
    await world.converge(content="ours", adopt=True)
    world.store.unset("a")

    async def cut(_former: str) -> None:
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(world.files, "forget", cut)
        with pytest.raises(Cut):
            await world.settle()
    world.files.set("/srv/a", b"edited since")
    world.restart()
    world.want(content="newest")
    assert await world.blocked() == "OwnershipConflict"
    await world.converge(content=content, adopt=True)
    await world.remove()
    assert (world.content("/srv/a"), world.files.formers) == (b"edited since", {})


@pytest.mark.parametrize("call", ["note", "back_up"])
async def test_a_newer_state_of_what_is_adopted_is_kept_though_the_agent_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A copy of an older state stands under the very name at that moment."""
    world.files.set("/srv/a", b"theirs")
    world.want(content="ours", adopt=True)
    with pytest.raises(Cut):
        await world.settle(before=cut_before(Put))
    world.files.set("/srv/a", b"theirs, newer")
    whose = world.store if call == "note" else world.files
    done = getattr(whose, call)

    async def cut(*args: Any) -> None:
        if call == "note":
            await done(*args)
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(whose, call, cut)
        with pytest.raises(Cut):
            await world.settle()
    world.restart()
    assert (await world.settle()).plan == Converged()
    assert world.content("/srv/a") == b"ours"
    await world.remove()
    assert world.content("/srv/a") == b"theirs, newer"


async def test_what_went_away_before_it_was_kept_is_not_missed(world: World) -> None:
    world.files.set("/srv/a", b"theirs")
    world.want(type="absent", adopt=True)
    with pytest.raises(Cut):
        await world.settle(before=cut_before(BackUp))
    world.files.drop("/srv/a")
    world.restart()
    await world.converge(type="absent")
    world.files.set("/srv/a", b"drift")
    assert (await world.settle()).plan == Converged()
    assert "/srv/a" not in world.files.things
    await world.remove()


async def test_what_became_as_wanted_before_it_was_kept_is_what_comes_back(world: World) -> None:
    world.files.set("/srv/a", b"theirs")
    world.want(content="ours", adopt=True)
    with pytest.raises(Cut):
        await world.settle(before=cut_before(BackUp))
    world.files.set("/srv/a", b"ours")
    world.restart()
    assert (await world.settle()).plan == Converged()
    await world.converge(content="newer")
    await world.remove()
    assert world.content("/srv/a") == b"ours"


def cut_before(action: type[Any]) -> Callable[[Any], None]:
    """For `settle`: the agent is killed ahead of the first action of this type."""

    def before(next_one: Any) -> None:
        if isinstance(next_one, action):
            raise Cut

    return before


async def test_a_directory_that_is_adopted_keeps_what_it_holds(world: World) -> None:
    world.files.set("/srv/a", type="directory", mode=0o2775, gid=33)
    world.files.set("/srv/a/theirs")
    result = await world.converge(type="directory", mode="0755", adopt=True)
    assert [type(action) for action in result.actions] == [SetAttributes]
    result = await world.remove()
    assert (world.files.things["/srv/a"].mode, world.files.things["/srv/a"].gid) == (0o2775, 33)
    assert "/srv/a/theirs" in world.files.things


async def test_a_link_that_appears_under_an_adopting_score_comes_back(world: World) -> None:
    world.want(content="ours", adopt=True)
    world.files.fail(Transient("NoSpace", "full"))
    with pytest.raises(Transient):
        await world.settle()
    world.files.set("/srv/a", type="symlink", target="t")
    assert [type(action) for action in (await world.settle()).actions] == [BackUp, Put]
    await world.remove()
    assert world.files.things["/srv/a"].target == "t"


async def test_what_is_adopted_and_as_wanted_is_kept_all_the_same(world: World) -> None:
    world.files.set("/srv/a", b"same")
    before = world.files.things["/srv/a"]
    result = await world.converge(content="same", adopt=True)
    assert ([type(action) for action in result.actions], world.files.things["/srv/a"]) == (
        [BackUp],
        before,
    )
    await world.converge(content="other", adopt=True)
    await world.remove()
    assert world.content("/srv/a") == b"same"


async def test_a_copy_that_is_gone_is_made_again_while_it_can(world: World) -> None:
    world.files.set("/srv/a", b"same")
    await world.converge(content="same", adopt=True)
    world.files.formers.clear()
    assert [type(action) for action in (await world.settle()).actions] == [BackUp]
    await world.idle()


async def test_a_copy_that_is_gone_is_not_made_of_what_was_put_since(world: World) -> None:
    world.files.set("/srv/a", b"theirs")
    await world.converge(content="ours", adopt=True)
    world.files.formers.clear()
    await world.idle()
    assert (world.content("/srv/a"), world.files.formers) == (b"ours", {})


async def test_what_came_in_place_of_an_adopted_link_before_the_first_write_is_left_alone(
    world: World,
) -> None:
    world.files.set("/srv/a", type="symlink", target="/srv/there")
    world.want(content="ours", adopt=True)
    with pytest.raises(Cut):
        await world.settle(before=cut_before(Put))
    world.files.set("/srv/a", b"somebody else's")
    world.restart()
    await world.remove()
    assert world.content("/srv/a") == b"somebody else's"


async def test_what_its_owner_removed_with_its_copy_before_the_first_write_is_not_missed(
    world: World,
) -> None:
    world.files.set("/srv/a", b"theirs")
    world.want(content="ours", adopt=True)
    with pytest.raises(Cut):
        await world.settle(before=cut_before(Put))
    world.files.drop("/srv/a")
    world.files.formers.clear()
    world.restart()
    await world.remove()
    assert "/srv/a" not in world.files.things


async def test_what_appears_under_an_adopting_score_is_kept_as_well(world: World) -> None:
    world.want(content="ours", adopt=True)
    done: list[object] = []

    def appear(action: object) -> None:
        if not done:
            world.files.set("/srv/a", b"theirs", mode=0o400)
        done.append(action)

    with pytest.raises(Transient):
        await world.settle(before=appear)
    result = await world.settle()
    assert [type(action) for action in result.actions] == [BackUp, Put]
    await world.remove()
    assert (world.content("/srv/a"), world.files.things["/srv/a"].mode) == (b"theirs", 0o400)


async def test_a_newer_state_of_what_is_adopted_is_kept_anew(world: World) -> None:
    world.files.set("/srv/a", b"one")
    world.want(content="ours", adopt=True)

    def edit(action: object) -> None:
        if isinstance(action, Put):
            world.files.set("/srv/a", b"two")
            raise Cut

    with pytest.raises(Cut):
        await world.settle(before=edit)
    await world.settle()
    await world.remove()
    assert world.content("/srv/a") == b"two"


async def test_what_was_kept_before_adopt_was_taken_back_is_kept_all_the_same(world: World) -> None:
    world.files.set("/srv/a", b"theirs")
    world.want(content="ours", adopt=True)

    def cut(action: object) -> None:
        raise Cut

    with pytest.raises(Cut):
        await world.settle(before=cut)
    world.want(content="ours")
    await world.settle()
    assert world.content("/srv/a") == b"ours"
    await world.remove()
    assert world.content("/srv/a") == b"theirs"


@pytest.mark.parametrize(
    ("former", "reason"),
    [
        ({"type": "other"}, "FormerUnsupported"),
        ({"type": "symlink", "target": "\udcff"}, "FormerUnsupported"),
        ({"content": b"\0" * (MAX_READ + 1)}, "FormerTooLarge"),
    ],
)
async def test_what_cannot_be_kept_is_not_adopted(
    world: World, former: dict[str, object], reason: str
) -> None:
    world.files.set("/srv/a", **former)  # type: ignore[arg-type]
    world.want(content="ours", adopt=True)
    assert await world.blocked() == reason
    await world.remove()
    assert "/srv/a" in world.files.things


async def test_removal_waits_where_the_copy_is_gone(world: World) -> None:
    world.files.set("/srv/a", b"theirs")
    await world.converge(content="ours", adopt=True)
    kept = dict(world.files.formers)
    world.files.formers.clear()
    world.store.unset("a")
    assert await world.blocked() == "FormerLost"
    world.files.drop("/srv/a")
    assert await world.blocked() == "FormerLost"
    world.files.formers.update(kept)
    await world.remove()
    assert world.content("/srv/a") == b"theirs"


async def test_removal_waits_where_something_else_took_the_place_of_what_was_dropped(
    world: World,
) -> None:
    world.files.set("/srv/a", b"theirs")
    await world.converge(type="absent", adopt=True)
    world.files.set("/srv/a", b"another's")
    world.store.unset("a")
    assert await world.blocked() == "OwnershipConflict"
    world.files.drop("/srv/a")
    await world.remove()
    assert world.content("/srv/a") == b"theirs"


@pytest.mark.parametrize("change", ["same", "edited", "gone"])
async def test_removal_before_anything_was_done_leaves_what_is_there(
    world: World, change: str
) -> None:
    world.files.set("/srv/a", b"theirs")
    world.want(content="ours", adopt=True)

    def cut(_action: object) -> None:
        raise Cut

    with pytest.raises(Cut):
        await world.settle(before=cut)
    if change == "edited":
        world.files.set("/srv/a", b"edited")
    elif change == "gone":
        world.files.drop("/srv/a")
    before = dict(world.files.things)
    await world.remove()
    assert world.files.things == before


# -- parents


async def test_parents_are_made_and_go_with_the_last_that_needs_them(world: World) -> None:
    result = await world.converge("a", path="/srv/web/x/a", content="a", parents=True)
    assert [type(action) for action in result.actions] == [MakeParents, Put]
    await world.converge("b", path="/srv/web/x/b", content="b", parents=True)
    await world.remove("a")
    assert "/srv/web/x/b" in world.files.things
    await world.remove("b")
    assert set(world.files.things) == {"/srv/there"}


async def test_a_parent_that_was_there_or_holds_something_stays(world: World) -> None:
    world.files.set("/srv/web", type="directory")
    await world.converge(path="/srv/web/x/y/a", content="a", parents=True)
    world.files.set("/srv/web/x/theirs")
    await world.remove()
    assert set(world.files.things) == {"/srv/there", "/srv/web", "/srv/web/x", "/srv/web/x/theirs"}


async def test_a_parent_that_another_file_wants_stays(world: World) -> None:
    await world.converge("a", path="/srv/web/a", content="a", parents=True)
    world.want("d", path="/srv/web", type="directory")
    await world.remove("a")
    assert world.files.things["/srv/web"].type == "directory"
    await world.settle("d")
    await world.remove("d")
    assert "/srv/web" not in world.files.things


async def test_a_parent_that_others_were_about_to_need_goes_with_the_last_of_them(
    world: World,
) -> None:
    await world.converge("a", path="/srv/web/a", content="a", parents=True)
    world.want("b", path="/srv/web/b", content="b")
    await world.converge("a", path="/srv/elsewhere", content="a")  # b isn't there yet, but wanted
    assert "/srv/web" in world.files.things
    await world.converge("b", path="/srv/web/b", content="b")
    await world.remove("a")
    assert "/srv/web" in world.files.things
    await world.remove("b")
    assert set(world.files.things) == {"/srv/there"}


async def test_a_parent_outlives_the_record_that_named_it(world: World) -> None:
    await world.converge("a", path="/srv/web/a", content="a", parents=True)
    world.want("b", path="/srv/web/b", content="b")
    await world.remove("a")
    await world.settle("b")
    await world.remove("b")
    assert set(world.files.things) == {"/srv/there"}


async def test_parents_that_were_recorded_but_not_made_are_made_after_a_crash(world: World) -> None:
    world.want(path="/srv/web/x/a", content="a", parents=True)
    world.files.fail(Transient("NoSpace", "full"))
    with pytest.raises(Transient):
        await world.settle()
    world.restart()
    await world.settle()
    assert len(world.store.noted) == 1
    await world.remove()
    assert set(world.files.things) == {"/srv/there"}


async def test_a_missing_parent_is_waited_for(world: World) -> None:
    world.want(path="/srv/web/a", content="a")
    result = await world.settle()
    assert isinstance(result.plan, Wait)
    assert (result.plan.reason, result.plan.phase, result.plan.seconds) == (
        "ParentMissing",
        "Degraded",
        1.0,
    )
    world.files.set("/srv/web", type="directory")
    assert (await world.settle()).plan == Converged()


# -- another path


async def test_a_file_moves_new_before_old(world: World) -> None:
    await world.converge(path="/srv/old/a", content="x", parents=True)
    result = await world.converge(path="/srv/new/a", content="x", parents=True)
    assert [type(action) for action in result.actions] == [MakeParents, Put, Release]
    assert set(world.files.things) == {"/srv/there", "/srv/new", "/srv/new/a"}
    record = world.store.record("a")
    assert record is not None
    assert record.claims == {"path:/srv/new/a"}
    await world.remove()
    assert set(world.files.things) == {"/srv/there"}


async def test_what_was_adopted_comes_back_when_the_file_moves(world: World) -> None:
    world.files.set("/srv/old", b"theirs")
    await world.converge(path="/srv/old", content="x", adopt=True)
    await world.converge(path="/srv/new", content="x", adopt=True)
    assert world.content("/srv/old") == b"theirs"
    assert world.files.formers == {}
    world.files.set("/srv/old", b"theirs still")
    await world.remove()
    assert world.content("/srv/old") == b"theirs still"


@pytest.mark.parametrize(("old", "new"), [("/srv/x", "/srv/x/y"), ("/srv/x/y", "/srv/x")])
async def test_a_file_moves_into_or_onto_its_old_path(world: World, old: str, new: str) -> None:
    await world.converge(path=old, content="x", parents=True)
    await world.converge(path=new, content="x", parents=True)
    assert world.content(new) == b"x"
    await world.remove()
    assert set(world.files.things) == {"/srv/there"}


@pytest.mark.parametrize("holds", [True, False])
async def test_a_directory_gives_up_its_place_before_it_moves_into_it(
    world: World, holds: bool
) -> None:
    await world.converge(path="/srv/x", type="directory")
    if holds:
        world.files.set("/srv/x/theirs")
    result = await world.converge(path="/srv/x/y", type="directory", parents=True)
    assert isinstance(result.actions[0], Release)
    await world.remove()
    theirs = {"/srv/x", "/srv/x/theirs"} if holds else set()
    assert set(world.files.things) == {"/srv/there", *theirs}


async def test_a_file_that_moves_there_and_back_while_the_agent_is_killed(world: World) -> None:
    await world.converge(path="/srv/one", content="x")
    world.want(path="/srv/two", content="x")

    def cut(action: object) -> None:
        if isinstance(action, Release):
            raise Cut

    with pytest.raises(Cut):
        await world.settle(before=cut)
    world.restart()
    await world.converge(path="/srv/one", content="x")
    assert set(world.files.things) == {"/srv/there", "/srv/one"}


async def test_moving_onto_somebody_elses_file_leaves_both(world: World) -> None:
    world.files.set("/srv/two", b"theirs")
    await world.converge(path="/srv/one", content="x")
    world.want(path="/srv/two", content="x")
    assert await world.blocked() == "OwnershipConflict"
    assert world.content("/srv/one") == b"x"


# -- troubles


@pytest.mark.parametrize("reason", ["SymlinkInPath", "NotADirectory", "PermissionDenied"])
async def test_what_cannot_be_looked_at_is_waited_for(world: World, reason: str) -> None:
    world.files.troubles["/srv/a"] = PathError(reason, "cannot")
    world.want(content="x")
    assert await world.blocked() == reason
    assert world.kind.detail(world.store.record("a"), await world.kind.observe("a")) is None
    del world.files.troubles["/srv/a"]
    await world.converge(content="x")
    world.files.troubles["/srv/a"] = PathError(reason, "cannot")
    world.store.unset("a")
    if reason == "NotADirectory":  # then nothing of ours can be there
        await world.remove()
    else:
        assert await world.blocked() == reason


async def test_a_path_through_a_file_is_absent(world: World) -> None:
    world.files.set("/srv/a")
    await world.converge("b", path="/srv/a/b", type="absent")
    await world.remove("b")


async def test_a_place_that_was_never_reached_is_let_go(world: World) -> None:
    world.want(content="x")
    world.files.fail(Transient("NoSpace", "full"))
    with pytest.raises(Transient):
        await world.settle()
    world.files.troubles["/srv/a"] = PathError("SymlinkInPath", "cannot")
    await world.remove()


async def test_an_unknown_account_is_waited_for(world: World) -> None:
    world.want(content="x", owner="nobody-here")
    assert await world.blocked() == "UnknownOwner"
    world.want(content="x", group="nobody-here")
    assert await world.blocked() == "UnknownOwner"


async def test_what_a_killed_agent_left_unfinished_is_swept(world: World) -> None:
    await world.converge(content="x")
    world.files.leftovers.add("/srv/a")
    result = await world.settle()
    assert [type(action) for action in result.actions] == [Sweep]
    world.files.leftovers.add("/srv/a")
    await world.remove()
    assert world.files.leftovers == set()


async def test_what_is_unfinished_goes_also_where_nothing_was_made(world: World) -> None:
    world.want(content="x")
    world.files.fail(Transient("NoSpace", "full"))
    with pytest.raises(Transient):
        await world.settle()
    world.files.leftovers.add("/srv/a")
    await world.remove()
    assert world.files.leftovers == set()


async def test_only_the_last_intents_of_many_are_remembered(world: World) -> None:
    for number in range(40):
        world.want(content=str(number))
        world.files.fail(Transient("NoSpace", "full"))
        with pytest.raises(Transient):
            await world.settle()
    record = world.store.record("a")
    assert record is not None
    assert len(record.facts["places"][0]["intents"]) == 32


async def test_what_stands_is_ours_however_many_specs_were_claimed_since_and_never_put(
    world: World,
) -> None:
    """Generations that come faster than a pass."""
    for number in range(60):
        spec = world.want(content=str(number))
        desired, observed = world.store.desired("a"), await world.kind.observe("a")
        assert desired is not None
        world.store.claim(
            "a",
            world.kind.facts(desired, world.store.record("a"), observed),
            world.kind.claims(spec),
        )
        if number == 0:
            plan = world.kind.plan("a", desired, world.store.record("a"), observed)
            assert isinstance(plan, Act)
            for action in plan.actions:
                await world.kind.apply(action)
    assert world.content("/srv/a") == b"0"
    assert (await world.settle()).plan == Converged()
    assert world.content("/srv/a") == b"59"


# -- the rest of the protocol


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"path": "/srv/a"}, []),
        ({"path": "/srv"}, [FieldError("path", "PathOutsideRoots")]),
        ({"path": "/srvx/a"}, [FieldError("path", "PathOutsideRoots")]),
        ({"path": "/etc/shadow"}, [FieldError("path", "PathOutsideRoots")]),
        ({"path": "/srv/agent"}, [FieldError("path", "PathForbidden")]),
        ({"path": "/srv/agent/ledger"}, [FieldError("path", "PathForbidden")]),
        ({"path": "/srv/agents"}, []),
        ({"path": "/srv/.harmony-0~"}, [FieldError("path", "PathForbidden")]),
        ({"path": "/srv/.harmony-0~/a"}, [FieldError("path", "PathForbidden")]),
        ({"path": "/srv/a", "mode": "4755"}, [FieldError("mode", "SetuidRefused")]),
        ({"path": "/srv/a", "mode": "2755"}, [FieldError("mode", "SetuidRefused")]),
        ({"path": "/srv/a", "mode": "1755"}, []),
    ],
)
def test_what_this_device_forbids(
    world: World, fields: dict[str, Any], errors: list[FieldError]
) -> None:
    assert list(world.kind.admit(File(name="a", content="", **fields))) == errors


def test_what_a_configuration_may_allow() -> None:
    world = World(roots=("/",), forbidden=("/var/lib/agent/",), allow_setuid=True)
    assert list(world.kind.admit(File(name="a", content="", path="/a", mode="6755"))) == []
    above = File(name="a", type="directory", path="/var/lib")
    assert list(world.kind.admit(above)) == [FieldError("path", "PathForbidden")]


@pytest.mark.parametrize(
    ("by_hand", "expected"),
    [
        (None, ("Absent", None, None, None, None)),
        ({"content": b"x", "uid": 0}, ("PresentAt", digest(b"x"), "0644", "root", "agent")),
        ({"type": "directory", "mode": 0o700, "gid": 4}, ("Directory", None, "0700", "agent", "4")),
        ({"type": "symlink", "target": "t"}, ("Symlink", None, None, "agent", "agent")),
        ({"type": "other"}, ("PresentAt", None, "0644", "agent", "agent")),
    ],
)
async def test_the_status_shows_what_is_there(
    world: World, by_hand: dict[str, object] | None, expected: tuple[str | None, ...]
) -> None:
    world.want(content="x")
    if by_hand is not None:
        world.files.set("/srv/a", **by_hand)  # type: ignore[arg-type]
    detail = world.kind.detail(world.store.record("a"), await world.kind.observe("a"))
    assert detail is not None
    assert (detail.state, detail.digest, detail.mode, detail.owner, detail.group) == expected


def test_the_status_of_nothing(world: World) -> None:
    detail = world.kind.detail(world.store.record("a"), None)
    assert detail is not None
    assert detail.state == "Absent"


async def test_no_content_in_an_action_or_in_the_ledger(world: World) -> None:
    world.want(content="s3cret")
    plan = world.kind.plan(
        "a", world.store.desired("a"), world.store.record("a"), await world.kind.observe("a")
    )
    assert reasons(plan) == ["nothing is there"]
    assert "s3cret" not in repr(plan)
    await world.settle()
    assert "s3cret" not in repr(world.store.record("a"))
    world.want("b", content_base64="czNjcmV0")
    plan = world.kind.plan(
        "b", world.store.desired("b"), world.store.record("b"), await world.kind.observe("b")
    )
    assert "czNjcmV0" not in repr(plan)


async def test_a_plan_without_an_observation_is_one_of_absence(world: World) -> None:
    world.want(content="x")
    assert reasons(
        world.kind.plan("a", world.store.desired("a"), world.store.record("a"), None)
    ) == ["nothing is there"]
    assert world.kind.plan("a", None, world.store.record("a"), None) == Converged()
    assert (
        world.kind.facts(world.store._desired["a"], world.store.record("a"), None)["places"][0][
            "path"
        ]
        == "/srv/a"
    )


async def test_a_relist_shows_the_same_object_where_nothing_changed(world: World) -> None:
    await world.converge("a", content="x")
    world.want("b", content="y")
    first = await world.kind.relist()
    assert set(first) == {"a", "b"}
    second = await world.kind.relist()
    assert second["a"] is first["a"]
    world.store.unset("a")
    assert (await world.kind.relist())["a"] is second["a"]
    world.files.drop("/srv/a")
    assert set(await world.kind.relist()) == {"b"}
    await world.settle("a")
    assert set(await world.kind.relist()) == {"b"}
    assert (await world.kind.observe("a")) is None


async def test_events_name_the_files_of_a_path(world: World) -> None:
    await world.converge("a", content="x")
    await world.converge("d", type="directory")
    await world.converge("e", type="directory")
    world.store.unset("d")
    await world.kind.relist()
    changed: list[str] = []
    task = asyncio.create_task(world.kind.watch(changed.append))
    await asyncio.sleep(0)
    world.files.set("/srv/a", b"y")
    assert changed == ["a"]
    world.files.set("/srv/d/x")
    world.files.set("/srv/e/x")
    assert changed == ["a", "d"]  # d goes once it is empty; what e holds is of no interest
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_was_seen_last_holds_until_an_event_or_until_there_is_more_to_look_at(
    world: World,
) -> None:
    await world.converge("a", content="x")
    task = asyncio.create_task(world.kind.watch(lambda _name: None))
    await asyncio.sleep(0)
    assert world.kind.cached("a") == await world.kind.observe("a")
    world.want("a", content="y")
    assert world.kind.cached("a") is not None
    world.files.set("/srv/a", b"z")
    assert world.kind.cached("a") is None
    seen = await world.kind.observe("a")
    assert world.kind.cached("a") is seen is not None
    world.want("a", content="y", owner="root")
    assert world.kind.cached("a") is None
    world.want("a", path="/srv/b", content="y")
    assert world.kind.cached("a") is None
    assert world.kind.cached("b") is None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_relist_saw_otherwise_is_not_what_was_seen_last(world: World) -> None:
    await world.converge("a", content="x")
    assert world.kind.cached("a") is not None
    world.files.set("/srv/a", b"y")  # and nobody listens to events
    await world.kind.relist()
    assert world.kind.cached("a") is None


async def test_an_event_during_the_look_makes_what_it_shows_doubtful(world: World) -> None:
    await world.converge("a", content="x")
    task = asyncio.create_task(world.kind.watch(lambda _name: None))
    await asyncio.sleep(0)
    look = world.files.stat_exact

    async def slow(spot: PathQuery) -> PathState:
        found = await look(spot)
        world.files.set("/srv/a", b"y")
        return found

    world.files.stat_exact = slow  # type: ignore[method-assign]
    await world.kind.observe("a")
    assert world.kind.cached("a") is None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_descriptors_are_let_go_of(world: World) -> None:
    await world.kind.close()
    assert world.files.closed


def test_claims(world: World) -> None:
    assert world.kind.claims(File(name="a", path="/srv/x", content="")) == {"path:/srv/x"}
    assert FileReconciler.kind == "File"
    assert isinstance(
        world.kind.plan(
            "a", world.store.set_desired(File(name="a", path="/srv/a", content="")), None, None
        ),
        Act,
    )


async def test_nothing_is_remembered_of_names_that_are_gone(world: World) -> None:
    for number in range(20):
        await world.converge(f"n{number}", path=f"/srv/d{number}/a", content="1", parents=True)
        await world.remove(f"n{number}")
        await world.kind.relist()
    surveys, sightings = world.kind._index, world.kind._cache
    assert {
        *surveys._known,
        *surveys._names,
        *surveys._makers,
        *surveys._unclaimed,
        *sightings.states,
        *sightings._looks,
        *sightings._stirred,
    } == set()
