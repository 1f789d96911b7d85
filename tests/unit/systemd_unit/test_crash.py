"""Cut anywhere: ahead of any action and inside it, later passes end where an uncut one does, and
nothing runs twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_agent.core.actions import Converged
from scores.systemd_unit import SystemdUnit
from tests.fakes.drive import Cut
from tests.unit.systemd_unit.bench import NAME, ONCE, SLEEP, Bench, web

DROPIN = {"a.conf": "[Service]\nNice=1\n"}
SPECS: list[SystemdUnit] = [
    web(),
    web(content=SLEEP + "Nice=2\n"),
    web(dropins=DROPIN, enabled=True),
    web(dropins={"a.conf": "[Unit]\n", "b.conf": "[Unit]\n"}, enabled=False),
    web(state="stopped"),
    web(state="none"),
    web(content=ONCE),
    SystemdUnit(name=NAME, masked=True),
    SystemdUnit(name=NAME, masked=True, state="stopped", adopt=True),
    web(adopt=True, enabled=True),
]
BEFORE = ("nothing", "vendor", "file", "running", "masked")
BY_HAND = ("stop", "edit", "delete", "mask", "enable", "disable", "reload", "fail", "crash")


class CutCalls(list[str]):
    """Kills the agent ahead of the change number `at`: after what was noted for it, before its
    effect.
    """

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def append(self, line: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Cut
        super().append(line)


async def before(bench: Bench, what: str) -> None:
    match what:
        case "vendor":
            bench.units.vendor[NAME] = SLEEP + "# vendor\n"
        case "file" | "running":
            bench.units.disk[NAME] = SLEEP + "# mine\n"
            bench.units.disk[f"{NAME}.d/a.conf"] = "# mine\n"
        case "masked":
            bench.units.disk[NAME] = "link:/dev/null"
    if what == "running":
        await bench.units.start(NAME)
        bench.units.held.clear()


async def by_hand(bench: Bench, what: str) -> None:
    units = bench.units
    calls = units.calls
    units.calls = []
    loaded = units.loaded.get(NAME)
    match what:
        case "stop" | "fail" if loaded is not None:
            units.exits(NAME, code=int(what == "fail"))
        case "edit" if units.disk.get(NAME, "link:").startswith("["):
            units.disk[NAME] += "# edited\n"
        case "delete":
            units.disk.pop(NAME, None)
        case "mask":
            units.disk[NAME] = "link:/dev/null"
        case "enable" if NAME in units.disk:
            units.enabled.add(NAME)
        case "disable":
            units.enabled.discard(NAME)
        case "reload":
            await units.reload("")
        case "crash":
            bench.restart_agent()
    units.calls = calls


def picture(bench: Bench) -> Any:
    loaded = bench.units.loaded.get(NAME)
    active = loaded.active if loaded else "inactive"
    return dict(bench.units.disk), set(bench.units.enabled), active, dict(bench.units.kept)


@settings(max_examples=300, deadline=None)
@given(
    start=st.sampled_from(BEFORE),
    specs=st.lists(st.sampled_from(SPECS), min_size=1, max_size=3),
    hands=st.lists(st.sampled_from(BY_HAND), max_size=3),
    remove=st.booleans(),
    cut=st.integers(0, 6),
)
def test_a_cut_changes_nothing_in_the_end(
    start: str, specs: list[SystemdUnit], hands: list[str], remove: bool, cut: int
) -> None:
    asyncio.run(
        _cut_changes_nothing(
            start, [spec.model_copy(update={"adopt": True}) for spec in specs], hands, remove, cut
        )
    )


async def _cut_changes_nothing(
    start: str, specs: list[SystemdUnit], hands: list[str], remove: bool, cut: int
) -> None:
    ends = []
    for at in (10**6, cut):
        bench = Bench()
        await before(bench, start)
        for spec in specs[:-1]:
            await bench.want(spec)
        for hand in hands:
            await by_hand(bench, hand)
        bench.store.set_desired(specs[-1])
        bench.units.calls = CutCalls(at)
        await _survive(bench)
        if remove:
            bench.store.unset(NAME)
            bench.units.calls = CutCalls(at)
            await _survive(bench)
            assert bench.store.record(NAME) is None
        ends.append(picture(bench))
        bench.units.calls = []
        again = await bench.settle()
        assert isinstance(again.plan, Converged), again.plan
        assert bench.units.calls == []
    assert ends[0] == ends[1]


async def _survive(bench: Bench) -> None:
    try:
        await bench.settle()
    except Cut:
        bench.units.calls = []
        bench.restart_agent()
        await bench.settle()


@pytest.mark.parametrize("at", range(8))
async def test_nothing_is_started_or_restarted_twice(at: int) -> None:
    bench = Bench()
    await bench.want(web())
    runs = bench.units.loaded[NAME].invocation
    counted: list[str] = []
    bench.units.calls = CutCalls(at)
    bench.store.set_desired(web(content=SLEEP + "Nice=2\n", dropins=DROPIN), restart_token="t")
    try:
        await bench.settle()
    except Cut:
        counted += bench.units.calls
        bench.units.calls = []
        bench.restart_agent()
        await bench.settle()
    counted += bench.units.calls
    assert counted.count("restart web.service") == 1
    assert bench.units.loaded[NAME].invocation != runs


@given(start=st.sampled_from(BEFORE), spec=st.sampled_from(SPECS))
@settings(max_examples=60, deadline=None)
def test_without_adopt_nothing_foreign_is_disturbed(start: str, spec: SystemdUnit) -> None:
    async def run() -> None:
        bench = Bench()
        await before(bench, start)
        was = picture(bench)
        done = await bench.want(spec.model_copy(update={"adopt": False}))
        if start != "nothing" and not isinstance(done.plan, Converged):
            assert bench.said(done) == ("Blocked", "OwnershipConflict")
            assert picture(bench) == was
        bench.store.unset(NAME)
        await bench.settle()
        if start == "running":
            assert picture(bench) == was

    asyncio.run(run())
