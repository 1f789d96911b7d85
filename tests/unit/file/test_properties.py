"""What must hold for any File, whatever stood there before and wherever the agent is killed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import Transient
from tests.fakes.drive import Cut
from tests.fakes.files import Thing
from tests.unit.file.world import World

modes = st.sampled_from([None, "0600", "0644", "1755"])
accounts = st.sampled_from([None, "root", "www", "33", "1000"])
contents = st.sampled_from(["", "x", "y", "a\0b"])
paths = st.sampled_from(["/srv/a", "/srv/b", "/srv/d/a", "/srv/d/e/a", "/srv/d"])
targets = st.sampled_from(["t", "/etc/passwd"])


def specs() -> st.SearchStrategy[dict[str, Any]]:
    both = {"path": paths, "adopt": st.just(True)}
    owned = {"owner": accounts, "group": accounts, "parents": st.just(True)}
    return st.one_of(
        st.fixed_dictionaries({**both, **owned, "content": contents, "mode": modes}),
        st.fixed_dictionaries({**both, **owned, "type": st.just("directory"), "mode": modes}),
        st.fixed_dictionaries({**both, **owned, "type": st.just("symlink"), "target": targets}),
        st.fixed_dictionaries({**both, "type": st.just("absent")}),
    )


def formers() -> st.SearchStrategy[dict[str, Any]]:
    numbers = {"uid": st.sampled_from([0, 33]), "gid": st.sampled_from([0, 33])}
    bits = {"mode": st.sampled_from([0o600, 0o755])}
    return st.one_of(
        st.fixed_dictionaries({**numbers, **bits, "content": st.sampled_from([b"", b"x", b"z"])}),
        st.fixed_dictionaries({**numbers, **bits, "type": st.just("directory")}),
        st.fixed_dictionaries({**numbers, "type": st.just("symlink"), "target": targets}),
    )


def tree(world: World) -> dict[str, Thing]:
    """The things without their marks and without the mode that a link doesn't have."""
    return {
        path: Thing(
            t.type, 0, 0 if t.type == "symlink" else t.mode, t.uid, t.gid, t.content, t.target
        )
        for path, t in world.files.things.items()
    }


class Killer:
    """Kills the agent ahead of one action, counted over all passes."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _action: object) -> None:
        self.left -= 1
        if self.left == 0:
            raise Cut


async def settle(world: World, killer: Killer) -> None:
    """Passes until nothing is left to do; killed agents come back."""
    for _ in range(8):
        try:
            result = await world.settle(before=killer)
        except Cut:
            world.restart()
            continue
        assert result.plan == Converged(), result.plan
        return
    raise AssertionError("no end")


@given(
    before=st.dictionaries(paths.filter(lambda p: p != "/srv/d"), formers(), max_size=2),
    wanted=st.lists(specs(), min_size=1, max_size=3),
    at=st.integers(0, 12),
)
@example(
    before={},
    wanted=[
        {"path": "/srv/d/a", "adopt": True, "type": "absent"},
        {"path": "/srv/d", "adopt": True, "parents": True, "type": "symlink", "target": "t"},
    ],
    at=0,
)
def test_converges_and_leaves_all_as_it_was(
    before: dict[str, dict[str, Any]], wanted: list[dict[str, Any]], at: int
) -> None:
    """Specs one after another over things of others, killed once: each is reached, and removal
    gives all back.
    """

    async def run() -> None:
        world = World()
        for path, former in before.items():
            if not any(
                path.startswith(f"{other}/") or other.startswith(f"{path}/")
                for other in before
                if other != path
            ):
                world.files.set(path, **former)
        held = [path for path in world.files.things if path.startswith("/srv/d/")]
        first, killer = tree(world), Killer(at)
        for fields in wanted:
            if fields["path"] == "/srv/d" and held and fields.get("type") != "directory":
                continue  # it would wait for the directory to be empty, rightly
            world.want(**fields)
            await settle(world, killer)
            await world.idle()
        world.store.unset("a")
        await settle(world, killer)
        assert tree(world) == first
        assert (world.files.formers, world.files.leftovers) == ({}, set())

    asyncio.run(run())


@given(
    link=st.booleans(),
    wanted=st.lists(specs(), min_size=1, max_size=3),
    at=st.integers(0, 4),
    full=st.booleans(),
)
def test_what_is_not_ours_never_changes(
    link: bool, wanted: list[dict[str, Any]], at: int, full: bool
) -> None:
    """It stands there from the start, or appears ahead of any action while nothing is there: it
    stays as it is.
    """

    async def run() -> None:
        world = World()
        theirs: list[Thing] = []
        left = at

        def appear(_action: object = None) -> None:
            nonlocal left
            left -= 1
            if left <= 0 and not theirs and "/srv/a" not in world.files.things:
                world.files.set(
                    "/srv/a", b"theirs", type="symlink" if link else "file", target="theirs"
                )
                theirs.append(world.files.things["/srv/a"])

        if at == 0:
            appear()
        if full:
            world.files.fail(Transient("NoSpace", "full"))
        for index, fields in enumerate(wanted):
            if index and fields.get("type") == "absent":
                continue  # wanted absent once more, whatever has appeared is drift
            world.want(**{**fields, "path": "/srv/a", "adopt": False})
            for _ in range(3):
                with suppress(Transient):
                    await world.settle(before=appear)
        assert not theirs or world.files.things["/srv/a"] == theirs[0]
        world.store.unset("a")
        with suppress(Transient):
            await world.settle()
        assert not theirs or world.files.things["/srv/a"] == theirs[0]

    asyncio.run(run())
