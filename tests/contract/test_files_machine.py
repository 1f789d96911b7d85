"""Files of two deployments that come, change, are let go of and go, with the agent killed at any
step: whatever wasn't made by us is there at the end as it was.

A state machine over the whole engine with the real adapter on a real folder. What `on_remove:
orphan` leaves is somebody's from then on, and is held to the same.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.contract.folder import Folder
from tests.contract.test_files_exchange import fields_of

PATHS = ("p", "q", "d/x", "d/y")
NAMES = {"web": ("a", "b"), "shop": ("c", "e")}
FOREIGN = st.sampled_from([None, "theirs", "-> theirs", "others"])
WHATS = st.sampled_from(["one", "two", "-> one", "absent"])
KNIFE = st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13, 21])
"""Ahead of which step the agent is killed; 0 is never."""


@dataclass(frozen=True)
class Wanted:
    """One File of a manifest, and what stood at its path when it was taken over."""

    at: str
    what: str
    orphan: bool
    before: str | None


class Files(RuleBasedStateMachine):
    """The model: what stands at each path, whose it is, and what there was before."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.folder = Folder(Path(self.directory.name))
        self.foreign: dict[str, str] = {}
        self.wants: dict[str, dict[str, Wanted]] = {"web": {}, "shop": {}}
        self.generations = {"web": 0, "shop": 0}

    def do(self, work: Any) -> None:
        self.folder.loop.run_until_complete(work)

    @initialize(before=st.fixed_dictionaries(dict.fromkeys(PATHS, FOREIGN)))
    def begin(self, before: dict[str, str | None]) -> None:
        self.foreign = {at: what for at, what in before.items() if what is not None}
        for at, what in self.foreign.items():
            self.folder.place(at, what)
        self.do(self.folder.start())

    @rule(
        deployment=st.sampled_from(["web", "shop"]),
        order=st.permutations(PATHS),
        whats=st.tuples(WHATS, WHATS),
        orphans=st.tuples(st.booleans(), st.booleans()),
        count=st.integers(0, 2),
        knife=KNIFE,
    )
    def publish(
        self,
        deployment: str,
        order: list[str],
        whats: tuple[str, str],
        orphans: tuple[bool, bool],
        count: int,
        knife: int,
    ) -> None:
        """The next generation of a deployment; with `count` 0 it wants nothing."""
        other = self.wants["shop" if deployment == "web" else "web"]
        taken = {one.at for one in other.values()}
        free = [at for at in order if at not in taken]
        wanted = {
            name: Wanted(at, what, orphan and what != "absent", None)
            for name, at, what, orphan in zip(NAMES[deployment], free, whats, orphans, strict=False)
        }
        self.reach(deployment, dict(list(wanted.items())[:count]), knife)

    @rule(deployment=st.sampled_from(["web", "shop"]), knife=KNIFE)
    def change(self, deployment: str, knife: int) -> None:
        """Other content at the same paths."""
        wants = self.wants[deployment]
        turned = {
            name: replace(one, what="two" if one.what == "one" else "one")
            for name, one in wants.items()
        }
        self.reach(deployment, turned, knife)

    @rule(knife=KNIFE)
    def hand_over(self, knife: int) -> None:
        """What one deployment lets go of is the other's, which puts back what it was given."""
        if not self.wants["web"] or self.wants["shop"]:
            return
        given = [replace(one, orphan=one.what != "absent") for one in self.wants["web"].values()]
        self.reach("web", dict(zip(NAMES["web"], given, strict=False)), 0)
        self.reach("web", {}, knife)
        taken = [replace(one, what="two", orphan=False) for one in given]
        self.reach("shop", dict(zip(NAMES["shop"], taken, strict=False)), knife)

    def reach(self, deployment: str, wants: dict[str, Wanted], knife: int) -> None:
        """Publish, kill the agent once, and wait for it; then the model is at the same point."""
        old = self.wants[deployment]
        stays = {one.at: one for one in old.values()}
        left = {at: one for at, one in stays.items() if at not in {w.at for w in wants.values()}}
        gone = {one.at for name, one in old.items() if name not in wants}
        for at, one in left.items():
            if one.orphan and at in gone:  # one that only moves puts back what was there
                self.foreign[at] = one.what
            elif one.before is not None:
                self.foreign[at] = one.before
        for name, one in old.items():
            if name not in wants and one.orphan:  # what it leaves passes to nobody: it is adopted
                stays[one.at] = replace(one, before=one.what)
        wants = {
            name: replace(one, before=stays[one.at].before if one.at in stays else self.foreign.pop(one.at, None))
            for name, one in wants.items()
        }  # fmt: skip
        self.wants[deployment] = wants
        self.generations[deployment] += 1
        number = self.generations[deployment]
        scores = [
            self.folder.file(
                name,
                one.at,
                **fields_of(one.what),
                adopt=True,
                on_remove="orphan" if one.orphan else "delete",
            )
            for name, one in wants.items()
        ]
        self.do(self.pass_by(deployment, number, scores, knife))

    async def pass_by(
        self, deployment: str, number: int, scores: list[dict[str, Any]], knife: int
    ) -> None:
        folder = self.folder
        folder.knife.at(knife)
        folder.publish(number, *scores, deployment=deployment, allow_prune=99)

        def there() -> bool:
            said = folder.said(deployment)
            return (said.get("phase"), said.get("generation")) == ("Converged", number)

        await folder.until(lambda: folder.knife.fell or there(), 120)
        if folder.knife.fell:
            await folder.restart()
        folder.knife.at(0)
        await folder.told("Converged", number, deployment)
        for _ in range(30):
            if self.files() == self.expected():
                break
            await asyncio.sleep(1)
        assert self.files() == self.expected()

    def files(self) -> dict[str, str]:
        """What stands in the folder, but for directories."""
        return {at: what for at, what in self.folder.snapshot().items() if what != "dir"}

    def expected(self) -> dict[str, str]:
        """What ought to stand there."""
        ours = {one.at: one.what for wants in self.wants.values() for one in wants.values()}
        return {at: what for at, what in (self.foreign | ours).items() if what != "absent"}

    @invariant()
    def nothing_of_others_is_lost(self) -> None:
        assert self.files() == self.expected()

    def teardown(self) -> None:
        try:
            if hasattr(self.folder, "plane"):
                for deployment in self.wants:
                    self.reach(deployment, {}, 0)
                assert self.files() == self.expected()
                assert self.folder.kept() == []
                assert not self.folder.engine.state.records
        finally:
            self.do(self.folder.stop())
            self.folder.loop.close()
            self.directory.cleanup()


Files.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=8,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    print_blob=True,
)
TestFiles = Files.TestCase


def test_what_one_orphans_is_somebodys_to_the_next_at_its_path() -> None:
    life, order = Files(), list(PATHS)
    life.begin({"p": "theirs"})
    life.publish("web", order, ("two", "one"), (True, False), 1, 0)
    life.reach("web", {"b": Wanted("p", "two", orphan=False, before=None)}, 0)
    life.teardown()
    assert life.foreign == {"p": "two"}
