"""Paths, names, contents and types of Files that change places: the folder is what the last
generation wants, no more.

The whole engine with the real adapter on a real folder; what others had there comes through as it
was.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.contract.folder import Folder

Wants = Mapping[str, tuple[str, str]]
"""name -> (path below the root, what: ``dir``, ``absent``, ``-> target`` or a content)"""


def scores(folder: Folder, wants: Wants, **more: Any) -> list[dict[str, Any]]:
    """The Scores of a generation."""
    return [folder.file(name, at, **fields_of(what), **more) for name, (at, what) in wants.items()]


def fields_of(what: str) -> dict[str, Any]:
    if what == "absent":
        return {"type": "absent"}
    if what == "dir":
        return {"type": "directory", "parents": True}
    if what.startswith("-> "):
        return {"type": "symlink", "target": what[3:], "parents": True}
    return {"content": what, "parents": True}


def expected(foreign: Mapping[str, str], wants: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What is in the folder once all of this is wanted."""
    found = dict(foreign)
    for at, what in wants:
        found.pop(at, None)
        if what != "absent":
            found |= dict.fromkeys(above(at), "dir") | {at: what}
    return found


def above(at: str) -> list[str]:
    return [at[:index] for index, char in enumerate(at) if char == "/"]


def possible(foreign: Mapping[str, str], wants: Iterable[tuple[str, str]]) -> bool:
    """Whether a file system can hold all of it at once."""
    places = dict(wants)
    for at in places:
        if any(places.get(up, foreign.get(up, "dir")) != "dir" for up in above(at)):
            return False
    return not any(up in places and places[up] != "dir" for at in foreign for up in above(at))


async def converge(folder: Folder, generation: int, wants: Wants, deployment: str = "web") -> None:
    folder.publish(
        generation, *scores(folder, wants, adopt=True), deployment=deployment, allow_prune=99
    )
    await folder.told("Converged", generation, deployment)


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Examples are small, and each is a whole life of a device: to shrink them takes minutes."""
NAMES = ("a", "b", "c")
paths = st.sampled_from(["p", "q", "d", "d/x", "d/e/y", "p/z"])
whats = st.sampled_from(["one", "two", "dir", "dir", "-> one", "absent"])


@st.composite
def generations(draw: st.DrawFn, foreign: Mapping[str, str]) -> list[Wants]:
    """A few manifests, each of which can be reached."""
    one = st.dictionaries(st.sampled_from(NAMES), st.tuples(paths, whats), max_size=3)
    one = one.filter(lambda wants: len({at for at, _ in wants.values()}) == len(wants))
    return draw(
        st.lists(
            one.filter(lambda wants: possible(foreign, wants.values())), min_size=2, max_size=4
        )
    )


def lives(wanted: list[Wants], foreign: Mapping[str, str], steps: int = 0) -> None:
    """One after another, killed once ahead of that step; then all of it is taken off."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Folder(Path(directory))
        for at, what in foreign.items():
            folder.place(at, what)

        async def test() -> None:
            await folder.start()
            folder.knife.at(steps)
            for number, wants in enumerate([*wanted, {}], 1):
                folder.publish(number, *scores(folder, wants, adopt=True), allow_prune=99)
                await folder.until(
                    lambda: folder.knife.fell or _is(folder, "Converged", number),  # noqa: B023
                    120,
                )
                if folder.knife.fell:
                    await folder.restart()
                await folder.told("Converged", number)
                await folder.until(
                    lambda: folder.snapshot() == expected(foreign, wants.values()),  # noqa: B023
                    30,
                )
            assert folder.kept() == []
            assert not folder.engine.state.records

        folder.run(test())


def _is(folder: Folder, phase: str, generation: int) -> bool:
    said = folder.said()
    return (said.get("phase"), said.get("generation")) == (phase, generation)


@settings(max_examples=40, deadline=None, phases=PHASES)
@given(wanted=generations({}), steps=st.integers(0, 60))
@example(wanted=[{"b": ("d/x", "dir")}, {"a": ("d/x", "absent")}, {}], steps=21)
@example(wanted=[{"a": ("p", "one"), "b": ("d", "dir")}, {"a": ("d/x", "absent")}], steps=0)
@example(
    wanted=[{"a": ("p", "one"), "b": ("q", "one")}, {"a": ("d", "one"), "b": ("p", "one")}], steps=0
)
@example(
    wanted=[
        {"c": ("d", "dir"), "b": ("q", "one"), "a": ("d/x", "absent")},
        {"a": ("p", "dir")},
        {"c": ("d/x", "one")},
        {},
    ],
    steps=0,
)
def test_the_folder_is_what_the_last_generation_wants(wanted: list[Wants], steps: int) -> None:
    lives(wanted, {}, steps)


FOREIGN = {"p": "theirs", "q": "-> theirs"}


@settings(max_examples=40, deadline=None, phases=PHASES)
@given(wanted=generations(FOREIGN), steps=st.integers(0, 60))
def test_what_was_adopted_comes_back_whoever_had_it_last(wanted: list[Wants], steps: int) -> None:
    lives(wanted, FOREIGN, steps)


@pytest.mark.parametrize("order", list(itertools.permutations("pqr")))
def test_resources_exchange_their_paths_in_one_generation(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    folder = Folder(tmp_path)

    async def test() -> None:
        await folder.start()
        await converge(folder, 1, {name: (at, name) for name, at in zip(NAMES, "pqr", strict=True)})
        inode = {at: (folder.root / at).stat().st_ino for at in "pqr"}
        moved = {name: (at, name) for name, at in zip(NAMES, order, strict=True)}
        folder.publish(2, *scores(folder, moved))  # without adopt: all of it is ours
        await folder.told("Converged", 2)
        assert folder.snapshot() == {at: name for name, (at, _) in moved.items()}
        assert folder.kept() == []
        assert {at for at in "pqr" if (folder.root / at).stat().st_ino == inode[at]} == {
            at for at, before in zip(order, "pqr", strict=True) if at == before
        }
        folder.publish(3, allow_prune=99)
        await folder.told("Converged", 3)
        assert folder.snapshot() == {}

    folder.run(test())


BASE = {"base": ("d", "dir"), "child": ("d/x", "one")}
DIRECTORIES: dict[str, tuple[list[dict[str, tuple[str, str]]], dict[str, str]]] = {
    "a directory with others' content moves": (
        [{"base": ("d", "dir")}, {"base": ("e", "dir")}],
        {"d": "dir", "d/theirs": "theirs", "e": "dir"},
    ),
    "a directory with others' content is wanted no more": (
        [{"base": ("d", "dir"), "z": ("q", "one")}, {"z": ("q", "one")}],
        {"d": "dir", "d/theirs": "theirs", "q": "one"},
    ),
    "a base moves with its child": (
        [BASE, {"base": ("e", "dir"), "child": ("e/x", "one")}],
        {"e": "dir", "e/x": "one"},
    ),
    "a base is wanted no more, its child is": (
        [BASE, {"child": ("d/x", "one")}],
        {"d": "dir", "d/x": "one"},
    ),
    "a base is replaced by a file, and its child moves": (
        [BASE, {"base": ("d", "two"), "child": ("e", "one")}],
        {"d": "two", "e": "one"},
    ),
    "a file becomes a directory with a File in it": (
        [{"base": ("d", "one")}, {"base": ("d", "dir"), "child": ("d/x", "one")}],
        {"d": "dir", "d/x": "one"},
    ),
    "a file moves into a directory of its own name": (
        [{"child": ("d", "one")}, {"base": ("d", "dir"), "child": ("d/x", "one")}],
        {"d": "dir", "d/x": "one"},
    ),
    "a directory becomes the file that was in it": (
        [BASE, {"child": ("d", "one")}],
        {"d": "one"},
    ),
}


@pytest.mark.parametrize("after", [False, True], ids=["in any order", "the child after its base"])
@pytest.mark.parametrize("case", DIRECTORIES)
def test_directories_that_move_change_or_go(case: str, after: bool, tmp_path: Path) -> None:
    """Nothing waits for ever, nothing of others' goes, and nothing of ours is left over once all is
    taken off.
    """
    folder, (wanted, end) = Folder(tmp_path), DIRECTORIES[case]

    async def test() -> None:
        await folder.start()
        for number, wants in enumerate(wanted, 1):
            made = scores(folder, wants)
            if after and {"base", "child"} <= wants.keys():
                made = [
                    {**one, "after": ["File/base"]} if one["name"] == "child" else one
                    for one in made
                ]
            folder.publish(number, *made, allow_prune=99)
            await folder.told("Converged", number)
            if number == 1 and "d/theirs" in end:
                folder.place("d/theirs", "theirs")
        await folder.until(lambda: folder.snapshot() == end, 30)
        assert not folder.kept()
        folder.publish(len(wanted) + 1, allow_prune=99)
        await folder.told("Converged", len(wanted) + 1)
        left = {"d": "dir", "d/theirs": "theirs"} if "d/theirs" in end else {}
        await folder.until(lambda: folder.snapshot() == left, 30)

    folder.run(test())


@pytest.mark.parametrize("drift", ["enforce", "report"])
def test_a_place_that_another_wants_is_not_released_by_its_old_owner(
    drift: str, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)

    async def test() -> None:
        await folder.start()
        folder.publish(1, *scores(folder, {"a": ("p", "one"), "b": ("p2", "one")}, drift=drift))
        await folder.told("Converged", 1)
        folder.publish(2, *scores(folder, {"a": ("p3", "one"), "b": ("p", "one")}, drift=drift))
        await folder.told("Converged", 2)
        await asyncio.sleep(60)
        assert folder.snapshot() == {"p": "one", "p3": "one"}

    folder.run(test())


def test_a_directory_with_others_content_goes_from_one_deployment_to_another(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)

    async def test() -> None:
        await folder.start()
        folder.publish(1, *scores(folder, {"d": ("d", "dir"), "z": ("q", "one")}), deployment="a")
        await folder.told("Converged", 1, "a")
        folder.place("d/theirs", "theirs")
        folder.publish(1, *scores(folder, {"e": ("d", "dir")}), deployment="b")
        folder.publish(2, *scores(folder, {"z": ("q", "one")}), deployment="a")
        await folder.told("Converged", 2, "a")
        await folder.told("Converged", 1, "b")
        assert folder.snapshot() == {"d": "dir", "d/theirs": "theirs", "q": "one"}

    folder.run(test())


@settings(max_examples=25, deadline=None, phases=PHASES)
@given(
    ones=st.permutations(["p", "q", "d/x", "d/y"]), others=st.permutations(["p", "q", "d/x", "d/y"])
)
def test_two_deployments_exchange_their_paths(ones: list[str], others: list[str]) -> None:
    """Each has two; the second is admitted as soon as the first has let go."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Folder(Path(directory))

        async def test() -> None:
            await folder.start()
            for number, paths in enumerate((ones, [], others), 1):
                for deployment, own in (("a", paths[:2]), ("b", paths[2:])):
                    wants = {
                        f"{deployment}{i}": (at, f"{at} of {deployment}")
                        for i, at in enumerate(own)
                    }
                    folder.publish(
                        number, *scores(folder, wants), deployment=deployment, allow_prune=99
                    )
                for deployment in ("a", "b"):
                    await folder.told("Converged", number, deployment)
                wanted = [
                    *((at, f"{at} of a") for at in paths[:2]),
                    *((at, f"{at} of b") for at in paths[2:]),
                ]
                await folder.until(lambda: folder.snapshot() == expected({}, wanted), 30)  # noqa: B023

        folder.run(test())
