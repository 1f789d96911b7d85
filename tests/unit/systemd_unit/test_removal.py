"""The way back: what came with us goes, what was there before is as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.kinds.systemd_unit.removal import removal
from harmony_agent.topology.units import MASK, Unit
from scores.systemd_unit import SystemdUnit
from tests.unit.systemd_unit.bench import NAME, ONCE, SLEEP, Bench, system, web

SYS = "sys.service"


async def prepared(
    *, active: bool, enabled: bool = False, masked: bool = False, content: str = SLEEP
) -> Bench:
    bench = Bench()
    bench.units.vendor[SYS] = content
    if active:
        await bench.units.start(SYS)
    if enabled:
        bench.units.enabled.add(SYS)
    if masked:
        bench.units.disk[SYS] = MASK
        await bench.units.reload("")
    bench.units.held.clear()
    bench.units.calls.clear()
    return bench


def state(bench: Bench) -> tuple[str, str, dict[str, str]]:
    loaded = bench.units.loaded.get(SYS)
    active = loaded.active if loaded else "inactive"
    return active, bench.units._file_state(SYS), bench.units.disk


SPECS: dict[str, dict[str, Any]] = {
    "nothing": {"state": "none"},
    "running": {},
    "stopped": {"state": "stopped"},
    "enabled": {"enabled": True},
    "disabled": {"enabled": False, "state": "none"},
    "dropin": {"dropins": {"a.conf": "[Service]\nNice=1\n"}},
    "content": {"content": SLEEP + "#\n"},
    "masked": {"masked": True, "state": "stopped"},
    "unmasked": {"masked": False, "state": "none"},
    "all": {"content": SLEEP + "#\n", "dropins": {"a.conf": "[Unit]\n"}, "enabled": True},
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    ("active", "enabled"), [(True, True), (True, False), (False, True), (False, False)]
)
async def test_a_unit_of_the_system_is_as_it_was(spec: str, active: bool, enabled: bool) -> None:
    bench = await prepared(active=active, enabled=enabled)
    before = state(bench)
    done = await bench.want(system(**SPECS[spec], adopt=True))
    assert isinstance(done.plan, Converged), done.plan
    bench.store.unset(SYS)
    done = await bench.settle(SYS)
    assert done.plan == Converged()
    assert state(bench) == before
    assert bench.store.record(SYS) is None
    assert bench.units.kept == {}


async def test_what_is_adopted_and_then_let_go_leaves_no_copy() -> None:
    bench = Bench()
    bench.units.disk[NAME] = SLEEP
    await bench.want(web(content=SLEEP + "#\n", adopt=True, on_remove="orphan"))
    assert bench.units.kept[NAME]
    await bench.want(None)
    assert bench.units.disk == {NAME: SLEEP + "#\n"}
    assert bench.units.kept == {}


async def test_a_mask_of_before_is_put_back() -> None:
    bench = await prepared(active=False, masked=True)
    await bench.want(system(adopt=True, masked=False, state="none"))
    assert bench.units.disk == {}
    bench.store.unset(SYS)
    await bench.settle(SYS)
    assert bench.units.disk == {SYS: MASK}


async def test_a_mask_that_content_replaced_is_put_back() -> None:
    bench = await prepared(active=False, masked=True)
    await bench.want(system(adopt=True, content=SLEEP))
    bench.store.unset(SYS)
    await bench.settle(SYS)
    assert bench.units.disk == {SYS: MASK}


async def test_a_mask_until_the_next_boot_goes_too() -> None:
    bench = await prepared(active=False)
    await bench.want(system(masked=True, adopt=True))
    bench.units.disk.clear()
    bench.units.masked_runtime.add(SYS)
    bench.store.unset(SYS)
    await bench.settle(SYS)
    assert not bench.units.masked_runtime


async def test_a_file_that_a_mask_replaced_is_put_back() -> None:
    bench = Bench()
    bench.units.disk[SYS] = SLEEP
    await bench.units.start(SYS)
    await bench.want(system(masked=True, state="stopped", adopt=True))
    assert bench.units.disk == {SYS: MASK}
    bench.store.unset(SYS)
    await bench.settle(SYS)
    assert bench.units.disk == {SYS: SLEEP}
    assert bench.units.loaded[SYS].active == "active"


async def test_what_was_enabled_until_the_next_boot_by_hand_is_disabled() -> None:
    bench = await prepared(active=False)
    await bench.want(system(enabled=True))
    bench.units.enabled.clear()
    bench.units.enabled_runtime.add(SYS)
    bench.store.unset(SYS)
    await bench.settle(SYS)
    assert not bench.units.enabled_runtime


@pytest.mark.parametrize("runtime", [False, True])
async def test_what_came_with_us_goes(runtime: bool) -> None:
    bench = Bench()
    await bench.want(web(enabled=True, dropins={"a.conf": "[Unit]\n"}))
    if runtime:
        bench.units.enabled.clear()
        bench.units.enabled_runtime.add(NAME)
    bench.units.calls.clear()
    done = await bench.want(None)
    assert done.plan == Converged()
    assert bench.units.calls == [
        "stop web.service",
        "disable web.service",
        "remove web.service",
        "remove web.service.d/a.conf",
        "reload",
    ]
    assert bench.store.record(NAME) is None
    assert await bench.kind.observe(NAME) is None


async def test_a_failure_is_forgotten() -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.exits(NAME, code=1)
    await bench.want(None)
    assert bench.units.calls[-1] == "reset-failed web.service"


async def test_stopping_is_waited_for() -> None:
    bench = Bench()
    await bench.want(web(content=SLEEP + "ExecStop=hang\n"))
    assert bench.said(await bench.want(None)) == ("Progressing", "Deactivating")
    assert NAME in bench.units.disk
    bench.units.loaded[NAME].job = ""
    bench.units.exits(NAME)
    assert (await bench.settle()).plan == Converged()
    assert bench.units.disk == {}


async def test_only_what_is_ours_goes() -> None:
    bench = Bench()
    await bench.want(web(dropins={"a.conf": "[Unit]\n"}))
    bench.units.disk[f"{NAME}.d/hand.conf"] = "[Unit]\n"
    bench.units.disk["other.service"] = SLEEP
    await bench.want(None)
    assert sorted(bench.units.disk) == ["other.service", f"{NAME}.d/hand.conf"]


async def test_without_record_or_unit_there_is_nothing_to_do() -> None:
    bench = Bench()
    assert removal(None, Unit(NAME), NAME, "/units", "b") == Converged()
    bench.store.set_desired(web())
    record = bench.store.claim(NAME, {}, {"unit:web.service"})
    assert removal(record, None, NAME, "/units", "b") == Converged()


async def test_what_was_kept_and_is_lost_is_removed() -> None:
    bench = Bench()
    bench.units.disk[NAME] = SLEEP + "#\n"
    await bench.want(web(adopt=True))
    bench.units.kept.clear()
    await bench.want(None)
    assert bench.units.disk == {}


async def test_what_was_put_back_already_is_left_alone() -> None:
    bench = Bench()
    bench.units.disk[NAME] = SLEEP + "#\n"
    await bench.want(web(adopt=True))
    bench.store.unset(NAME)

    def die(action: Any) -> None:
        if type(action).__name__ == "Release":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await bench.once(before=die)
    calls = list(bench.units.calls)
    await bench.settle()
    assert bench.units.calls == [*calls, "drop-kept web.service"]


async def test_after_the_release_a_persons_edit_is_theirs() -> None:
    bench = Bench()
    bench.units.disk[NAME] = SLEEP + "#\n"
    await bench.want(web(adopt=True))
    record = replace(bench.record(), facts={**bench.record().facts, "released": True})
    bench.store.put(record)
    bench.store.unset(NAME)
    bench.units.disk[NAME] = SLEEP + "# edited\n"
    await bench.settle()
    assert bench.units.disk[NAME] == SLEEP + "# edited\n"


RAN = {"active": True, "file_state": "disabled", "fragment": "/usr/lib/units/sys.service"}


@pytest.mark.parametrize(
    ("facts", "seen", "expected"),
    [
        ({}, {"active_state": "active"}, Converged()),
        ({}, {"load_state": "not-found"}, Converged()),
        ({}, {"load_state": "masked"}, Converged()),
        ({"started": "former", "run": "old"}, {"invocation": "new"}, Converged()),
        (
            {"started": "former", "run": "old"},
            {"invocation": "old", "condition": False},
            Converged(),
        ),
        (
            {"started": "former", "run": "old"},
            {"invocation": "old", "assertion": False},
            Converged(),
        ),
        (
            {"started": "former", "run": "old"},
            {"invocation": "old", "active_state": "failed"},
            "Start",
        ),
        ({"started": "former", "run": "old"}, {"invocation": "old"}, "Start"),
        ({}, {}, "Start"),
        ({}, {"active_state": "deactivating"}, "Deactivating"),
    ],
)
async def test_what_ran_before_is_started_once(
    facts: dict[str, Any], seen: dict[str, Any], expected: Any
) -> None:
    bench = Bench()
    spec = SystemdUnit(name=SYS)
    bench.store.set_desired(spec)
    all_facts = {"former": RAN, "touched": ["state"], **facts}
    record = bench.store.claim(SYS, all_facts, bench.kind.claims(spec))
    unit = Unit(SYS, load_state="loaded", unit_file_state="disabled")
    plan = removal(record, replace(unit, **seen), SYS, "/units", "b")
    if isinstance(plan, Act):
        assert [type(action).__name__ for action in plan.actions] == [expected]
    elif isinstance(plan, Wait):
        assert plan.reason == expected
    else:
        assert plan == expected


async def test_a_oneshot_that_is_over_goes() -> None:
    bench = Bench()
    await bench.want(web(content=ONCE))
    await bench.want(None)
    assert bench.units.disk == {}


async def test_what_was_let_go_of_and_taken_without_adopt_goes_with_its_links() -> None:
    bench = Bench()
    await bench.want(web(enabled=True, on_remove="orphan"))
    await bench.want(None)
    assert (bench.units.disk, bench.units.enabled) == ({NAME: SLEEP}, {NAME})
    calls = list(bench.units.calls)
    await bench.want(web(enabled=True))
    assert bench.units.calls == calls
    await bench.want(None)
    assert (bench.units.disk, bench.units.enabled) == ({}, set())


async def test_what_was_let_go_of_and_adopted_stays_with_its_links_and_its_run() -> None:
    bench = Bench()
    await bench.want(web(enabled=True, on_remove="orphan"))
    await bench.want(None)
    run = bench.units.loaded[NAME].invocation
    await bench.want(web(enabled=True, adopt=True))
    await bench.want(None)
    assert (bench.units.disk, bench.units.enabled) == ({NAME: SLEEP}, {NAME})
    assert bench.units.loaded[NAME].invocation == run
    assert bench.units.kept == {}
