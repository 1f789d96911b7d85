"""Passes over a unit in memory: what is done, in which order, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.changes import is_change
from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.kinds.systemd_unit.facts import read
from harmony_agent.topology.units import MASK, OTHER, UNREADABLE, Unit
from scores.systemd_unit import SystemdUnit
from tests.fakes.drive import Cut
from tests.fakes.units import FakeUnits
from tests.unit.systemd_unit.bench import NAME, ONCE, SLEEP, Bench, system, web

READY = ("Ready", "")
DROPINS = {"10-a.conf": "[Service]\nNice=5\n"}
DROPIN = f"{NAME}.d/10-a.conf"
HANGS = "[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n"


async def test_files_links_reload_start_in_this_order() -> None:
    bench = Bench()
    await bench.want(web(dropins=DROPINS, enabled=True))
    assert bench.units.calls == [
        "write web.service",
        "write web.service.d/10-a.conf",
        "enable web.service",
        "reload",
        "start web.service",
    ]


async def test_mask_stops_what_runs() -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.calls.clear()
    assert (
        bench.said(await bench.want(SystemdUnit(name=NAME, masked=True, state="stopped"))) == READY
    )
    assert bench.units.calls == [
        "remove web.service",
        "mask web.service",
        "reload",
        "stop web.service",
    ]


@pytest.mark.parametrize(
    ("break_it", "fields", "calls"),
    [
        (lambda u: u.disk.pop(NAME), ("content",), ["write web.service", "reload"]),
        (lambda u: u.disk.update({NAME: "x"}), ("content",), ["write web.service", "reload"]),
        (lambda u: u.disk.update({NAME: MASK}), ("content",), ["write web.service", "reload"]),
        (lambda u: u.disk.update({DROPIN: "x"}), ("dropins",), ["write web.service.d/10-a.conf", "reload"]),
        (lambda u: u.enabled.clear(), ("enabled",), ["enable web.service", "reload"]),
        (lambda u: u.exits(NAME), ("state",), ["start web.service"]),
        (lambda u: u.exits(NAME, code=1), ("state",), ["start web.service"]),
    ],
)  # fmt: skip
async def test_drift_names_the_field_and_is_repaired_by_least(
    break_it: Any, fields: Any, calls: list[str]
) -> None:
    bench = Bench()
    await bench.want(web(dropins=DROPINS, enabled=True))
    bench.units.calls.clear()
    break_it(bench.units)
    plan = bench.kind.plan(
        NAME, bench.store.desired(NAME), bench.store.record(NAME), await bench.kind.observe(NAME)
    )
    assert isinstance(plan, Act)
    assert plan.fields == fields
    assert bench.said(await bench.settle()) == READY
    assert bench.units.calls == calls
    bench.units.calls.clear()
    assert bench.said(await bench.settle()) == READY
    assert bench.units.calls == []


async def test_drift_that_was_loaded_costs_a_restart_even_across_a_crash() -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.disk[NAME] = SLEEP + "Nice=9\n"
    await bench.units.reload("")
    bench.units.calls.clear()

    def die(action: Any) -> None:
        if type(action).__name__ == "Restart":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await bench.once(before=die)
    assert bench.units.calls == ["write web.service", "reload"]
    bench.restart_agent()
    await bench.settle()
    assert bench.units.calls == ["write web.service", "reload", "restart web.service"]


async def test_what_is_not_set_is_not_watched() -> None:
    bench = Bench()
    await bench.want(web(state="none"))
    bench.units.enabled.add(NAME)
    bench.units.calls.clear()
    assert bench.said(await bench.settle()) == READY
    await bench.units.start(NAME)
    assert bench.said(await bench.settle()) == READY
    assert bench.units.calls == ["start web.service"]


@pytest.mark.parametrize(
    ("fields", "minded"),
    [({"state": "none"}, False), ({"state": "none", "masked": False}, True), ({}, True),
     ({"state": "stopped", "enabled": True}, True), ({"state": "stopped", "enabled": False}, False)],
)  # fmt: skip
async def test_a_mask_is_minded_where_it_is_against_the_spec(
    fields: dict[str, Any], minded: bool
) -> None:
    bench = Bench()
    bench.units.vendor["sys.service"] = SLEEP
    await bench.want(system(**fields))
    bench.units.disk["sys.service"] = MASK
    await bench.settle("sys.service")
    assert ("sys.service" in bench.units.disk) is not minded


async def test_a_mask_until_the_next_boot() -> None:
    bench = Bench()
    bench.units.vendor["sys.service"] = SLEEP
    await bench.want(system())
    bench.units.masked_runtime.add("sys.service")
    assert bench.said(await bench.settle("sys.service")) == READY
    assert not bench.units.masked_runtime


async def test_a_mask_that_is_not_ours_to_take_is_said() -> None:
    bench = Bench()
    bench.units.vendor["sys.service"] = SLEEP
    bench.units.masked_for_all.add("sys.service")
    error = await bench.failing(system(adopt=True))
    assert isinstance(error, Transient)
    assert (error.reason, error.phase) == ("UnitMasked", "Blocked")


@pytest.mark.parametrize("runtime", [False, True])
async def test_disabled_is_held(runtime: bool) -> None:
    bench = Bench()
    await bench.want(web(enabled=False))
    (bench.units.enabled_runtime if runtime else bench.units.enabled).add(NAME)
    done = await bench.settle()
    assert done.fields == ["enabled"]
    assert not bench.units.enabled
    assert not bench.units.enabled_runtime


async def test_enabled_until_the_next_boot_is_not_enabled() -> None:
    bench = Bench()
    await bench.want(web(enabled=True))
    bench.units.enabled.clear()
    bench.units.enabled_runtime.add(NAME)
    assert (await bench.settle()).fields == ["enabled"]
    assert NAME in bench.units.enabled


async def test_a_reload_that_was_cut_off_after_enabling_is_made_up() -> None:
    bench = Bench()
    await bench.want(web(enabled=True))
    bench.units.loaded[NAME].file_state = "disabled"
    done = await bench.settle()
    assert [type(action).__name__ for action in done.actions] == ["Reload"]


@pytest.mark.parametrize(
    ("file_state", "load_state"), [("enabled", "masked"), ("masked", "loaded")]
)
async def test_a_reload_that_was_cut_off_after_masking_is_made_up(
    file_state: str, load_state: str
) -> None:
    bench = Bench()
    spec = SystemdUnit(name=NAME, masked=file_state == "masked", state="none")
    bench.store.set_desired(spec)
    bench.store.claim(NAME, {}, bench.kind.claims(spec))
    files = {NAME: MASK} if file_state == "masked" else {}
    seen = Unit(NAME, files=files, unit_file_state=file_state, load_state=load_state)
    plan = bench.kind.plan(NAME, bench.store.desired(NAME), bench.store.record(NAME), seen)
    assert isinstance(plan, Act)
    assert [type(action).__name__ for action in plan.actions] == ["Reload"]


@pytest.mark.parametrize(
    ("specs", "restarts"),
    [
        ([web(), web(content=SLEEP + "#\n")], 1),
        ([web(), web(dropins=DROPINS)], 1),
        ([web(dropins=DROPINS), web()], 1),
        ([web(), web(enabled=True)], 0),
        ([web(enabled=True), web(enabled=False)], 0),
        ([web(), web(adopt=True)], 0),
        ([web(), web(state="none"), web()], 0),
    ],
)
async def test_only_files_cost_a_restart(specs: list[SystemdUnit], restarts: int) -> None:
    bench = Bench()
    for spec in specs:
        assert bench.said(await bench.want(spec)) == READY
    assert bench.units.calls.count("restart web.service") == restarts


async def test_restart_on_restarts_once_for_each_change() -> None:
    bench = Bench()
    spec = web()
    await bench.want(spec)
    for token, restarts in (("a", 0), ("a", 0), ("b", 1), ("b", 1), ("c", 2)):
        if token == "a":  # the dependency is new: the spec that names it is claimed
            spec = web(restart_on=["File/a"])
        await bench.want(spec, restart_token=token)
        assert bench.units.calls.count("restart web.service") == restarts, token
    await bench.want(web())
    assert bench.units.calls.count("restart web.service") == 2


async def test_reload_on() -> None:
    bench = Bench()
    spec = web(content=SLEEP + "ExecReload=/bin/true\n")
    await bench.want(spec, reload_token="a")
    await bench.want(spec, reload_token="b")
    await bench.settle()
    assert bench.units.calls.count("reload-unit web.service") == 1
    bench.units.results[NAME] = "failed"
    bench.store.set_desired(spec, reload_token="c")
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert caught.value.reason == "UnitReloadFailed"
    await bench.settle()
    assert bench.units.calls.count("reload-unit web.service") == 3
    bench.units.loaded[NAME].job = "reload"
    assert bench.said(await bench.want(spec, reload_token="d")) == ("Progressing", "JobQueued")


async def test_reload_on_of_what_cannot_reload_restarts() -> None:
    bench = Bench()
    await bench.want(web(), reload_token="a")
    await bench.want(web(), reload_token="b")
    assert bench.units.calls[-1] == "restart web.service"
    await bench.settle()
    assert bench.units.calls.count("restart web.service") == 1


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"active_state": "activating"}, ("Progressing", "Activating")),
        ({"active_state": "activating", "result": "exit-code"}, ("Degraded", "AutoRestart")),
        ({"active_state": "deactivating"}, ("Progressing", "Deactivating")),
        ({"active_state": "inactive", "job": "start"}, ("Progressing", "JobQueued")),
        ({"active_state": "failed", "job": "start"}, ("Progressing", "JobQueued")),
        (
            {"active_state": "active", "job": "restart", "invocation": "old"},
            ("Progressing", "JobQueued"),
        ),
        ({"active_state": "active"}, READY),
        ({"active_state": "reloading"}, READY),
        ({"active_state": "refreshing"}, READY),
        ({"active_state": "inactive", "condition": False}, ("Blocked", "ConditionFailed")),
        (
            {"active_state": "inactive", "condition": True, "assertion": False},
            ("Blocked", "AssertFailed"),
        ),
        ({"active_state": "inactive", "load_state": "bad-setting"}, ("Failed", "UnitInvalid")),
    ],
)
async def test_states_on_the_way(seen: dict[str, Any], said: tuple[str, str]) -> None:
    """The unit was started for this spec; `old` is the run from before."""
    bench = Bench()
    await bench.want(web())
    unit = await bench.kind.observe(NAME)
    assert unit is not None
    facts = {**bench.record().facts, "run": "old"}
    bench.store.claim(NAME, facts)
    plan = bench.kind.plan(
        NAME,
        bench.store.desired(NAME),
        bench.store.record(NAME),
        replace(unit, **{"invocation": "new", **seen}),
    )
    assert isinstance(plan, Converged | Wait)
    assert (plan.phase, plan.reason if isinstance(plan, Wait) else "") == said


@pytest.mark.parametrize(
    ("seen", "again"),
    [
        ({"active_state": "failed", "result": "start-limit-hit"}, True),
        ({"active_state": "inactive", "ended": True}, True),
        ({"active_state": "inactive", "invocation": ""}, True),
        ({"active_state": "inactive"}, False),
        ({"active_state": "inactive", "condition": False, "rested": True}, False),
        ({"active_state": "inactive", "assertion": False, "rested": True}, False),
    ],
)
async def test_what_ended_by_itself_is_paced(seen: dict[str, Any], again: bool) -> None:
    bench = Bench()
    await bench.want(web())
    unit = await bench.kind.observe(NAME)
    assert unit is not None
    plan = bench.kind.plan(
        NAME, bench.store.desired(NAME), bench.store.record(NAME), replace(unit, **seen)
    )
    assert isinstance(plan, Act)
    assert (plan.is_restart, plan.fields) == (again, ("state",))


async def test_a_new_spec_of_what_failed_is_not_paced() -> None:
    bench = Bench()
    bench.store.set_desired(web(content="[Service]\nExecStart=/bin/false\n"))
    await bench.once()
    bench.store.set_desired(web())
    unit = await bench.kind.observe(NAME)
    plan = bench.kind.plan(NAME, bench.store.desired(NAME), bench.store.record(NAME), unit)
    assert isinstance(plan, Act)
    assert not plan.is_restart
    assert bench.said(await bench.settle()) == READY


async def test_what_hangs_gives_way_to_new_files_and_to_nothing_else() -> None:
    bench = Bench()
    assert bench.said(await bench.want(web(content=HANGS))) == ("Progressing", "Activating")
    bench.units.calls.clear()
    assert bench.said(await bench.settle()) == ("Progressing", "Activating")
    assert bench.units.calls == []
    assert bench.said(await bench.want(web())) == READY


async def test_a_queued_job_gives_way_to_new_files() -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.exits(NAME)
    bench.units.loaded[NAME].job = "start"
    bench.store.set_desired(web(content=SLEEP + "#\n"))
    await bench.once()
    assert bench.units.calls[-1] == "start web.service"


@pytest.mark.parametrize("result", ["dependency", "canceled", "timeout"])
async def test_jobs_that_end_badly_are_errors(result: str) -> None:
    bench = Bench()
    bench.units.results[NAME] = result
    error = await bench.failing(web())
    assert error.reason == ("DependencyFailed" if result == "dependency" else "JobFailed")
    assert not isinstance(error, Terminal)


async def test_a_oneshot_runs_once_for_each_spec() -> None:
    bench = Bench()
    assert bench.said(await bench.want(web(content=ONCE))) == ("Completed", "")
    bench.restart_agent()
    assert bench.said(await bench.settle()) == ("Completed", "")
    assert bench.said(await bench.want(web(content=ONCE, enabled=False))) == ("Completed", "")
    assert bench.units.calls.count("start web.service") == 1
    assert bench.said(await bench.want(web(content=ONCE + "Nice=1\n"))) == ("Completed", "")
    assert bench.units.calls.count("start web.service") == 2
    await bench.want(web(content=ONCE + "Nice=1\n", state="stopped"))
    assert bench.said(await bench.want(web(content=ONCE + "Nice=1\n"))) == ("Completed", "")
    assert bench.units.calls.count("start web.service") == 3


async def test_a_completed_oneshot_that_a_timer_runs_again_stays_completed() -> None:
    bench = Bench()
    await bench.want(web(content=ONCE))
    unit = await bench.kind.observe(NAME)
    assert unit is not None
    assert bench.kind.plan(
        NAME,
        bench.store.desired(NAME),
        bench.store.record(NAME),
        replace(unit, active_state="activating"),
    ) == Converged("Completed")


@pytest.mark.parametrize(("logged", "starts"), [(True, 1), (False, 2)])
async def test_a_oneshot_that_ended_unseen_is_completed_if_the_log_says_so(
    logged: bool, starts: int
) -> None:
    bench = Bench()
    assert bench.said(await bench.want(web(content=HANGS))) == ("Progressing", "Activating")
    bench.units.loaded[NAME].job = ""
    bench.units.held.clear()
    bench.units.exits(NAME)
    if not logged:
        bench.units.log.clear()
    assert bench.said(await bench.settle()) == (
        ("Completed", "") if logged else ("Progressing", "Activating")
    )
    assert bench.units.calls.count("start web.service") == starts


async def test_a_oneshot_that_is_seen_to_end_is_completed() -> None:
    bench = Bench()
    await bench.want(web(content=HANGS))
    bench.units.loaded[NAME].job = ""
    bench.units.exits(NAME)
    assert bench.said(await bench.settle()) == ("Completed", "")
    assert bench.units.calls.count("start web.service") == 1


async def test_stopping() -> None:
    bench = Bench()
    await bench.want(web(content=SLEEP + "ExecStop=hang\n"))
    stopped = web(content=SLEEP + "ExecStop=hang\n", state="stopped")
    assert bench.said(await bench.want(stopped)) == ("Progressing", "Deactivating")
    bench.units.loaded[NAME].active = "active"
    assert bench.said(await bench.settle()) == ("Progressing", "Deactivating")  # its job is known
    bench.units.loaded[NAME].job = ""
    bench.units.exits(NAME, code=1)
    assert bench.said(await bench.settle()) == READY  # failed doesn't run
    bench.units.loaded[NAME].job = "start"
    await bench.once()
    assert bench.units.calls[-1] == "stop web.service"


@pytest.mark.parametrize("place", [NAME, f"{NAME}.d", f"{NAME}.d/10-a.conf"])
async def test_what_is_no_file_is_never_written_over(place: str) -> None:
    bench = Bench()
    bench.units.disk[place] = OTHER
    assert bench.said(await bench.want(web(dropins=DROPINS, adopt=True))) == (
        "Blocked",
        "PlaceOccupied",
    )
    masked = SystemdUnit(name=NAME, masked=True, adopt=True)
    if place == NAME:
        assert bench.said(await bench.want(masked)) == ("Blocked", "PlaceOccupied")
    assert bench.units.calls == []


async def test_what_isnt_there_is_waited_for() -> None:
    bench = Bench()
    assert bench.said(await bench.want(system(dropins=DROPINS))) == ("Blocked", "UnitNotFound")
    assert bench.said(await bench.want(SystemdUnit(name="x@.service"))) == (
        "Blocked",
        "UnitNotFound",
    )
    bench.units.vendor["sys.service"] = SLEEP
    assert bench.said(await bench.settle("sys.service")) == READY


async def test_a_unit_without_a_file_is_a_unit() -> None:
    bench = Bench()
    bench.store.set_desired(SystemdUnit(name="some.slice"))
    seen = Unit("some.slice", load_state="loaded")
    plan = bench.kind.plan(
        "some.slice", bench.store.desired("some.slice"), bench.store.record("some.slice"), seen
    )
    assert isinstance(plan, Act)
    assert [type(action).__name__ for action in plan.actions] == ["Start"]


async def test_a_file_that_was_written_and_never_loaded_is_loaded() -> None:
    bench = Bench()
    await bench.want(web())
    unit = await bench.kind.observe(NAME)
    assert unit is not None
    for seen in (replace(unit, fragment=""), replace(unit, fragment="/usr/lib/units/web.service")):
        plan = bench.kind.plan(NAME, bench.store.desired(NAME), bench.store.record(NAME), seen)
        assert isinstance(plan, Act)
        assert [type(action).__name__ for action in plan.actions] == ["Reload"]


async def test_a_vendors_template_is_no_place_to_write_over() -> None:
    bench = Bench()
    bench.units.vendor["x@.service"] = SLEEP
    template = SystemdUnit(name="x@.service", content=SLEEP)
    assert bench.said(await bench.want(template)) == ("Blocked", "OwnershipConflict")
    assert bench.said(await bench.want(SystemdUnit(name="x@.service", enabled=True))) == READY


async def test_not_enableable_is_said_after_all_else() -> None:
    bench = Bench()
    spec = web(content="[Service]\nExecStart=/bin/sleep infinity\n", enabled=True)
    assert bench.said(await bench.want(spec)) == ("Failed", "NotEnableable")
    assert bench.units.loaded[NAME].active == "active"


@pytest.mark.parametrize(
    ("state", "way_on"),
    [("static", "give it an [Install] section"), ("generated", "`update-rc.d`"),
     ("alias", "own name"), ("indirect", "Also="), ("transient", "leave enabled out")],
)  # fmt: skip
async def test_the_way_on_fits_what_cannot_be_enabled(state: str, way_on: str) -> None:
    bench = Bench()
    await bench.want(web(enabled=True))
    unit = await bench.kind.observe(NAME)
    assert unit is not None
    seen = replace(unit, unit_file_state=state, loaded_file_state=state)
    plan = bench.kind.plan(NAME, bench.store.desired(NAME), bench.store.record(NAME), seen)
    assert isinstance(plan, Wait)
    assert plan.reason == "NotEnableable"
    assert way_on in plan.message


async def test_content_given_up_shows_the_vendors_again() -> None:
    bench = Bench()
    bench.units.vendor["sys.service"] = SLEEP
    await bench.want(system(content=SLEEP + "#\n", adopt=True))
    assert bench.said(await bench.want(system())) == READY
    assert bench.units.disk == {}
    assert bench.units.calls[-2:] == ["reload", "restart sys.service"]
    await bench.want(web())
    assert bench.said(await bench.want(SystemdUnit(name=NAME))) == ("Blocked", "UnitNotFound")


async def test_a_file_that_comes_under_a_claim_later_is_somebodys() -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.disk[f"{NAME}.d/10-a.conf"] = "[Service]\nNice=9\n"
    await bench.units.reload("")
    assert bench.said(await bench.want(web(dropins=DROPINS))) == ("Blocked", "OwnershipConflict")
    await bench.want(web(dropins=DROPINS, adopt=True))
    assert bench.units.disk[f"{NAME}.d/10-a.conf"] == DROPINS["10-a.conf"]
    await bench.want(web())
    assert bench.units.disk[f"{NAME}.d/10-a.conf"] == "[Service]\nNice=9\n"
    await bench.want(None)
    assert bench.units.disk == {f"{NAME}.d/10-a.conf": "[Service]\nNice=9\n"}
    assert bench.units.kept == {}


async def test_facts_hold_no_content() -> None:
    bench = Bench()
    bench.units.disk[NAME] = "[Service]\nExecStart=/bin/sleep secret\n"
    await bench.want(web(content=SLEEP + "Environment=KEY=secret\n", dropins=DROPINS, adopt=True))
    text = str(bench.record()) + str(bench.store.noted)
    assert "secret" not in text
    assert "Nice" not in text


def test_facts_of_another_version_are_read() -> None:
    bench = Bench()
    bench.store.set_desired(web())
    record = bench.store.claim(
        NAME, {"started": "x", "later": 1, "former": {"active": True, "more": 2}}
    )
    facts = read(record)
    assert (facts.started, facts.former.active) == ("x", True)
    assert read(None).started == ""


def test_the_fake_shows_templates_as_never_loaded() -> None:
    units = FakeUnits()
    units.disk["x@.service"] = SLEEP
    assert units.loaded == {}


async def test_a_file_that_cannot_be_read_is_drift_of_its_field_and_replaced() -> None:
    bench = Bench()
    await bench.want(web(dropins={"a.conf": "[Unit]\n"}))
    for place, field in ((NAME, "content"), (f"{NAME}.d/a.conf", "dropins")):
        bench.units.disk[place] = UNREADABLE
        done = await bench.once()
        assert (done.plan, done.fields) == (Converged(), [field])
        assert bench.units.disk[place] != UNREADABLE


async def test_a_file_that_cannot_be_read_could_not_be_put_back() -> None:
    bench = Bench()
    bench.units.disk[NAME] = UNREADABLE
    assert bench.said(await bench.want(web(adopt=True))) == ("Blocked", "AccessDenied")
    assert bench.units.calls == []


@pytest.mark.parametrize(
    ("by_hand", "field"),
    [({f"{NAME}.d/theirs.conf": "[Unit]\n"}, "dropins"), ({"": ""}, "")],
)
async def test_what_others_add_is_loaded_and_named(by_hand: dict[str, str], field: str) -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.calls.clear()
    bench.units.disk |= by_hand
    done = await bench.once()
    assert done.fields == ([field] if field else [])
    assert bench.units.calls == (["reload"] if field else [])


async def test_a_reload_by_others_is_nothing_to_us() -> None:
    bench = Bench()
    await bench.want(web(enabled=True))
    for _ in range(20):
        await bench.units.reload("")
        bench.units.calls.clear()
        assert (await bench.once()).actions == []
    assert bench.units.calls == []


async def test_what_is_enabled_for_all_users_blocks_and_names_the_link() -> None:
    bench = Bench()
    bench.units.vendor["sys.service"] = SLEEP
    bench.units.enabled_for_all.add("sys.service")
    done = await bench.want(system(enabled=False, state="none"))
    assert bench.said(done) == ("Blocked", "EnabledElsewhere")
    assert "/etc/sys.service" in done.plan.message  # type: ignore[union-attr]
    assert bench.units.calls == []


STATES: dict[str, dict[str, bool]] = {
    "masked": {"masked": True},
    "enabled and masked": {"enabled": True, "masked": True},
    "runtime": {"enabled_runtime": True},
    "masked until the next boot": {"masked_runtime": True},
    "all": {"enabled": True, "enabled_runtime": True, "masked_runtime": True},
}


@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("before", STATES)
async def test_links_are_put_back_as_they_were(before: str, rebooted: bool) -> None:
    bench = Bench()
    units, marks = bench.units, STATES[before]
    units.vendor["sys.service"] = SLEEP
    sets = {name: getattr(units, name) for name in ("enabled", "enabled_runtime", "masked_runtime")}
    for name in marks.keys() & sets.keys():
        sets[name].add("sys.service")
    units.disk |= {"sys.service": MASK} if "masked" in marks else {}
    await units.reload("")
    disk = dict(units.disk)
    done = await bench.want(system(content=SLEEP, enabled=True, adopt=True))
    assert isinstance(done.plan, Converged)
    if rebooted:
        units.boot = "later"
        bench.restart_agent()
        sets["enabled_runtime"].clear()
        sets["masked_runtime"].clear()
    bench.store.unset("sys.service")
    await bench.settle("sys.service")
    lasting = {name for name in marks if name == "enabled" or not rebooted} - {"masked"}
    assert {name for name, among in sets.items() if among} == lasting
    assert units.disk == disk


async def _next(bench: Bench, **seen: Any) -> tuple[str, bool]:
    """The reason of the next step, and if it is a change for those that restart on this unit."""
    unit = await bench.kind.observe(NAME)
    assert unit is not None
    desired, record = bench.store.desired(NAME), bench.store.record(NAME)
    plan = bench.kind.plan(NAME, desired, record, replace(unit, **seen))
    assert isinstance(plan, Act)
    return plan.actions[-1].reason, is_change(plan)


async def test_a_restart_that_was_cut_is_no_change_for_others() -> None:
    bench = Bench()
    await bench.want(web(), restart_token="1")
    restart = bench.units.restart

    async def cut(_name: str) -> str:
        raise Cut

    bench.units.restart = cut  # type: ignore[method-assign]
    with pytest.raises(Cut):
        await bench.want(web(), restart_token="2")
    bench.units.restart = restart  # type: ignore[method-assign]
    bench.restart_agent()
    assert await _next(bench) == ("a restart was cut short", False)
    assert bench.said(await bench.settle()) == READY
    assert bench.units.calls.count("restart web.service") == 1


async def test_what_still_starts_is_restarted_for_others_and_says_so() -> None:
    bench = Bench()
    await bench.want(web(), restart_token="1")
    bench.store.set_desired(web(), restart_token="2")
    starts = {"active_state": "activating"}
    assert await _next(bench, **starts) == ("a resource of restart_on changed", False)


async def test_that_a_oneshot_has_ended_is_no_change_for_others() -> None:
    bench = Bench()
    await bench.want(web(content=HANGS))
    bench.units.loaded[NAME].job = ""
    bench.units.held.clear()
    bench.units.exits(NAME)
    assert await _next(bench) == ("it ran to its end", False)
