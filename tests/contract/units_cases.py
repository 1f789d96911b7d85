"""What must hold of SystemdUnit on any service manager, as cases that run in a world in memory and
on a real Debian.

A case is a coroutine that takes a world; it asserts, and leaves cleaning up to the world.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import MASK
from scores.systemd_unit import SystemdUnit
from tests.contract.units_world import World, gone, seen, settle, want
from tests.fakes import drive

CASES: dict[str, Callable[[World], Awaitable[None]]] = {}
SLEEP = "[Unit]\nDescription={}\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=default.target\n"
ONCE = "[Service]\nType=oneshot\nExecStart=/bin/true\n"


def case(function: Callable[[World], Awaitable[None]]) -> Callable[[World], Awaitable[None]]:
    """Register a case."""
    CASES[function.__name__] = function
    return function


def web(**fields: object) -> SystemdUnit:
    return SystemdUnit.model_validate(
        {"name": "web.service", "content": SLEEP.format("web"), **fields}
    )


def is_wait(done: drive.Pass, reason: str, phase: str) -> bool:
    return isinstance(done.plan, Wait) and (done.plan.reason, done.plan.phase) == (reason, phase)


@case
async def comes_up_and_a_second_pass_does_nothing(world: World) -> None:
    done = await want(
        world, web(enabled=True, dropins={"10-a.conf": "[Service]\nEnvironment=A=1\n"})
    )
    assert done.plan == Converged("Ready")
    unit = await seen(world, "web.service")
    assert (unit.load_state, unit.active_state, unit.unit_file_state) == (
        "loaded",
        "active",
        "enabled",
    )
    assert not unit.stale
    assert unit.fragment == f"{world.units.directory}/web.service"
    assert unit.loaded_dropins == (f"{world.units.directory}/web.service.d/10-a.conf",)
    assert unit.main_pid > 0
    assert unit.since > 1_600_000_000_000_000
    assert await world.reloads() == 1
    again = await drive.run(world.kind, world.store, "web.service")
    assert (again.plan, again.actions) == (Converged("Ready"), [])
    assert await seen(world, "web.service") == unit
    assert await world.units.list_units(["web.service", "none.service"]) == {"web.service": unit}
    assert await world.reloads() == 1
    detail = world.kind.detail(world.store.record("web.service"), unit)
    assert detail is not None
    assert detail.ready
    assert world.kind.instance(unit) == unit.invocation != ""


@case
async def changes_restart_once_and_enablement_does_not(world: World) -> None:
    await want(world, web())
    first = await seen(world, "web.service")
    await want(world, web(enabled=True))
    assert (await seen(world, "web.service")).invocation == first.invocation
    await want(world, web(content=SLEEP.format("other"), enabled=True))
    second = await seen(world, "web.service")
    assert (second.active_state, second.stale) == ("active", False)
    assert second.invocation != first.invocation
    await want(
        world, web(content=SLEEP.format("other"), dropins={"10-a.conf": "[Service]\nNice=5\n"})
    )
    third = await seen(world, "web.service")
    assert third.invocation != second.invocation
    assert third.unit_file_state == "enabled"  # it was said once, and then not taken back
    await want(world, web(content=SLEEP.format("other"), enabled=False))
    fourth = await seen(world, "web.service")
    assert (fourth.unit_file_state, fourth.loaded_dropins) == ("disabled", ())
    assert "web.service.d/10-a.conf" not in fourth.files


@case
async def every_drift_is_repaired(world: World) -> None:
    spec = web(enabled=True, dropins={"10-a.conf": "[Service]\nNice=5\n"})
    await want(world, spec)
    before = await seen(world, "web.service")

    async def repaired(*fields: str) -> None:
        done = await settle(world, "web.service")
        assert done.plan == Converged("Ready")
        after = await seen(world, "web.service")
        assert after.files == before.files
        assert (after.active_state, after.unit_file_state, after.stale) == (
            "active",
            "enabled",
            False,
        )

    async def drifted(*fields: str) -> None:
        plan = world.kind.plan(
            "web.service",
            world.store.desired("web.service"),
            world.store.record("web.service"),
            await seen(world, "web.service"),
        )
        assert isinstance(plan, Act)
        assert plan.fields == fields
        await repaired()

    await world.systemctl("stop", "web.service")
    await drifted("state")
    await world.put("web.service", SLEEP.format("edited"))
    run = (await seen(world, "web.service")).invocation
    await drifted("content")
    assert (await seen(world, "web.service")).invocation == run  # the edit was never loaded
    await world.put("web.service", SLEEP.format("edited"))
    await world.systemctl("daemon-reload")
    await drifted("content")
    assert (await seen(world, "web.service")).invocation != run
    await world.take("web.service.d/10-a.conf")
    await drifted("dropins")
    await world.systemctl("disable", "web.service")
    await drifted("enabled")
    await world.take("web.service")
    await world.put("web.service", MASK)
    await world.systemctl("daemon-reload")
    await drifted("content", "enabled") if False else await repaired()


@case
async def foreign_dropins_are_left_alone(world: World) -> None:
    await want(world, web(dropins={"10-a.conf": "[Service]\nNice=5\n"}))
    await world.put("web.service.d/99-hand.conf", "[Service]\nNice=6\n")
    done = await settle(world, "web.service")
    assert [action.reason for action in done.actions] in (
        [],
        ["files or links changed"],
    )  # loaded, not undone
    await gone(world, "web.service")
    unit = await seen(world, "web.service")
    assert list(unit.files) == ["web.service.d/99-hand.conf"]


@case
async def removal_leaves_nothing(world: World) -> None:
    await want(world, web(enabled=True, dropins={"10-a.conf": "[Service]\nNice=5\n"}))
    await gone(world, "web.service")
    await world.units.list_units([])
    assert await world.units.look("web.service") is None


@case
async def removal_of_a_failed_unit_forgets_the_failure(world: World) -> None:
    await want(world, web(content="[Service]\nExecStart=/bin/sleep infinity\n"))
    await world.kill("web.service")
    assert (await seen(world, "web.service")).active_state == "failed"
    await gone(world, "web.service")
    assert await world.units.look("web.service") is None


@case
async def removal_when_all_is_gone_by_hand(world: World) -> None:
    await want(world, web(enabled=True))
    await world.systemctl("stop", "web.service")
    await world.take("web.service")
    await world.systemctl("daemon-reload")
    await gone(world, "web.service")
    assert await world.units.look("web.service") is None


@case
async def a_oneshot_completes_and_is_not_run_again(world: World) -> None:
    spec = SystemdUnit(name="once.service", content=ONCE)
    assert (await want(world, spec)).plan == Converged("Completed")
    noted = len(world.store.noted)
    await world.crash()
    again = await settle(world, "once.service")
    assert (again.plan, again.actions, len(world.store.noted)) == (
        Converged("Completed"),
        [],
        noted,
    )
    changed = await want(world, SystemdUnit(name="once.service", content=ONCE + "Nice=5\n"))
    assert changed.plan == Converged("Completed")
    assert len(world.store.noted) == noted + 2


@case
async def a_oneshot_that_ended_while_the_agent_was_dead_is_not_run_again(world: World) -> None:
    content = "[Service]\nType=oneshot\nExecStart=/bin/sleep 0.3\n"

    def die(action: object) -> None:
        if type(action).__name__ == "Note":
            raise drive.Cut

    world.store.set_desired(SystemdUnit(name="once.service", content=content))
    with contextlib.suppress(drive.Cut):
        await drive.run(world.kind, world.store, "once.service", die)
    await world.crash()
    await world.ends("once.service")
    done = await settle(world, "once.service")
    assert done.plan == Converged("Completed")
    assert [type(action).__name__ for action in done.actions] == ["Note"]


@case
async def a_oneshot_that_remains_is_ready(world: World) -> None:
    spec = SystemdUnit(name="once.service", content=ONCE + "RemainAfterExit=yes\n")
    assert (await want(world, spec)).plan == Converged("Ready")


@case
async def what_fails_is_started_again_at_a_pace(world: World) -> None:
    world.store.set_desired(
        SystemdUnit(name="bad.service", content="[Service]\nExecStart=/bin/false\n")
    )
    await drive.run(world.kind, world.store, "bad.service")
    await asyncio.sleep(0.1)
    plan = world.kind.plan(
        "bad.service",
        world.store.desired("bad.service"),
        world.store.record("bad.service"),
        await seen(world, "bad.service"),
    )
    assert isinstance(plan, Act)
    assert plan.is_restart
    for _ in range(3):  # systemd's own limit on starts never stands in the way
        await drive.run(world.kind, world.store, "bad.service")
    assert (await want(world, SystemdUnit(name="bad.service", content=SLEEP))).plan == Converged(
        "Ready"
    )


@case
async def a_killed_process_is_started_again(world: World) -> None:
    await want(world, web())
    before = await seen(world, "web.service")
    await world.kill("web.service")
    failed = await seen(world, "web.service")
    assert failed.active_state == "failed"
    plan = world.kind.plan(
        "web.service", world.store.desired("web.service"), world.store.record("web.service"), failed
    )
    assert isinstance(plan, Act)
    assert (plan.is_restart, plan.fields) == (True, ("state",))
    await settle(world, "web.service")
    after = await seen(world, "web.service")
    assert after.active_state == "active"
    assert after.invocation != before.invocation


@case
async def a_condition_is_named_and_blocks_nothing(world: World) -> None:
    spec = web(
        content="[Unit]\nConditionPathExists=/tmp/harmony-yes\n[Service]\nExecStart=/bin/sleep infinity\n"
    )
    assert is_wait(await want(world, spec), "ConditionFailed", "Blocked")
    unit = await seen(world, "web.service")
    assert (unit.active_state, unit.condition) == ("inactive", False)
    again = await drive.run(world.kind, world.store, "web.service")
    assert again.actions == []
    await world.touch("/tmp/harmony-yes")
    await want(world, web(content=spec.content + "Nice=5\n" if spec.content else ""))
    assert (await seen(world, "web.service")).active_state == "active"


@case
async def an_assertion_is_named(world: World) -> None:
    spec = web(content="[Unit]\nAssertPathExists=/nope\n[Service]\nExecStart=/bin/sleep infinity\n")
    assert is_wait(await want(world, spec), "AssertFailed", "Blocked")


@case
async def a_hanging_start_blocks_nothing_and_gives_way_to_new_content(world: World) -> None:
    world.store.set_desired(web(content="[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n"))
    done = await drive.run(world.kind, world.store, "web.service")
    assert is_wait(done, "Activating", "Progressing")
    assert (await drive.run(world.kind, world.store, "web.service")).actions == []
    assert (await want(world, SystemdUnit(name="two.service", content=SLEEP))).plan == Converged(
        "Ready"
    )
    assert (await want(world, web())).plan == Converged("Ready")


@case
async def removal_of_a_hanging_start(world: World) -> None:
    world.store.set_desired(web(content="[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n"))
    await drive.run(world.kind, world.store, "web.service")
    await gone(world, "web.service")
    assert await world.units.look("web.service") is None


@case
async def a_unit_of_the_system_is_started_and_put_back(world: World) -> None:
    await world.vendor("sys.service", SLEEP.format("vendor"))
    assert (await want(world, SystemdUnit(name="sys.service", enabled=True))).plan == Converged(
        "Ready"
    )
    assert (await seen(world, "sys.service")).unit_file_state == "enabled"
    await gone(world, "sys.service")
    unit = await seen(world, "sys.service")
    assert (unit.active_state, unit.unit_file_state, unit.load_state) == (
        "inactive",
        "disabled",
        "loaded",
    )


@case
async def a_running_unit_of_the_system_is_not_disturbed(world: World) -> None:
    await world.vendor("sys.service", SLEEP.format("vendor"))
    await world.systemctl("enable", "sys.service")
    await world.systemctl("start", "sys.service")
    before = await seen(world, "sys.service")
    for spec in (
        SystemdUnit(name="sys.service", state="stopped"),
        SystemdUnit(name="sys.service", state="none", enabled=False),
        SystemdUnit(name="sys.service", state="none", masked=True),
        SystemdUnit(name="sys.service", dropins={"10-a.conf": "[Service]\nNice=5\n"}),
        SystemdUnit(name="sys.service", content=SLEEP.format("mine")),
    ):
        assert is_wait(await want(world, spec), "OwnershipConflict", "Blocked"), spec
    assert await seen(world, "sys.service") == before
    assert (await want(world, SystemdUnit(name="sys.service"))).plan == Converged("Ready")
    await gone(world, "sys.service")
    assert (await seen(world, "sys.service")).invocation == before.invocation


@case
async def what_was_adopted_is_put_back(world: World) -> None:
    await world.vendor("sys.service", SLEEP.format("vendor"))
    await world.put("sys.service", SLEEP.format("administrator"))
    await world.put("sys.service.d/10-a.conf", "[Service]\nNice=7\n")
    await world.systemctl("daemon-reload")
    await world.systemctl("enable", "sys.service")
    await world.systemctl("start", "sys.service")
    before = await seen(world, "sys.service")
    spec = SystemdUnit(
        name="sys.service",
        content=SLEEP.format("mine"),
        dropins={"10-a.conf": "[Service]\nNice=5\n", "20-b.conf": "[Service]\nNice=4\n"},
        enabled=False,
        adopt=True,
    )
    assert (await want(world, spec)).plan == Converged("Ready")
    mine = await seen(world, "sys.service")
    assert mine.backups == {before.files["sys.service"], before.files["sys.service.d/10-a.conf"]}
    assert mine.unit_file_state == "disabled"
    assert mine.invocation != before.invocation
    await world.crash()
    await gone(world, "sys.service")
    after = await seen(world, "sys.service")
    assert after.files == before.files
    assert (after.unit_file_state, after.active_state, after.backups) == (
        "enabled",
        "active",
        frozenset(),
    )
    assert after.loaded_dropins == before.loaded_dropins
    assert after.invocation != mine.invocation


@case
async def content_hides_a_vendors_unit_until_removal(world: World) -> None:
    await world.vendor("sys.service", SLEEP.format("vendor"))
    hidden = await seen(world, "sys.service")
    spec = SystemdUnit(name="sys.service", content=SLEEP.format("mine"))
    assert is_wait(await want(world, spec), "OwnershipConflict", "Blocked")
    assert (await want(world, spec.model_copy(update={"adopt": True}))).plan == Converged("Ready")
    assert (await seen(world, "sys.service")).fragment == f"{world.units.directory}/sys.service"
    await gone(world, "sys.service")
    unit = await seen(world, "sys.service")
    assert (unit.fragment, unit.active_state) == (hidden.fragment, "inactive")


@case
async def a_mask_is_made_kept_and_taken_back(world: World) -> None:
    await world.vendor("sys.service", SLEEP.format("vendor"))
    spec = SystemdUnit(name="sys.service", masked=True, state="stopped", adopt=True)
    await world.systemctl("start", "sys.service")
    assert (await want(world, spec)).plan == Converged("Ready")
    unit = await seen(world, "sys.service")
    assert (unit.load_state, unit.unit_file_state, unit.active_state) == (
        "masked",
        "masked",
        "inactive",
    )
    await world.systemctl("unmask", "sys.service")
    done = await settle(world, "sys.service")
    assert "masked" in done.fields
    assert (await seen(world, "sys.service")).load_state == "masked"
    await gone(world, "sys.service")
    unit = await seen(world, "sys.service")
    assert (unit.load_state, unit.unit_file_state, unit.active_state) == (
        "loaded",
        "disabled",
        "active",
    )


@case
async def a_mask_by_hand_is_drift(world: World) -> None:
    await world.vendor("sys.service", SLEEP.format("vendor"))
    await want(world, SystemdUnit(name="sys.service", enabled=True))
    await world.systemctl("mask", "sys.service")
    done = await settle(world, "sys.service")
    assert done.plan == Converged("Ready")
    assert "masked" in done.fields
    assert (await seen(world, "sys.service")).unit_file_state == "enabled"


@case
async def a_mask_where_a_file_of_ours_was(world: World) -> None:
    await want(world, web())
    done = await want(world, SystemdUnit(name="web.service", masked=True, state="stopped"))
    assert done.plan == Converged("Ready")
    unit = await seen(world, "web.service")
    assert (unit.files, unit.active_state) == ({"web.service": MASK}, "inactive")
    await gone(world, "web.service")
    assert await world.units.look("web.service") is None


@case
async def a_template_is_installed_and_an_instance_started(world: World) -> None:
    template = SystemdUnit(name="x@.service", content=SLEEP.format("%i"))
    assert (await want(world, template)).plan == Converged("Ready")
    instance = SystemdUnit(name="x@a\\x2db.service")
    if (await world.units.look("x@a\\x2db.service")) is None:
        return  # a manager in memory knows no templates
    assert (await want(world, instance)).plan == Converged("Ready")
    unit = await seen(world, "x@a\\x2db.service")
    assert unit.active_state == "active"
    assert set(await world.units.list_units(["x@.service", "x@a\\x2db.service"])) == {
        "x@.service",
        "x@a\\x2db.service",
    }
    await gone(world, "x@a\\x2db.service")
    await gone(world, "x@.service")
    assert await world.units.look("x@.service") is None
    assert await world.units.look("x@a\\x2db.service") is None


@case
async def units_of_other_types(world: World) -> None:
    specs = [
        SystemdUnit(
            name="tick.timer",
            content="[Timer]\nOnActiveSec=1h\nUnit=web.service\n[Install]\nWantedBy=timers.target\n",
        ),
        SystemdUnit(name="in.path", content="[Path]\nPathExists=/nope\nUnit=web.service\n"),
        SystemdUnit(
            name="in.socket",
            content="[Socket]\nListenStream=/tmp/harmony.sock\nService=web.service\n",
        ),
        SystemdUnit(name="all.target", content="[Unit]\nDescription=all\n"),
        SystemdUnit(name="some.slice", content="[Unit]\nDescription=some\n"),
    ]
    await want(world, web(state="none"))
    for spec in specs:
        assert (await want(world, spec)).plan == Converged("Ready"), spec.name
        assert (await seen(world, spec.name)).active_state == "active", spec.name
        again = await drive.run(world.kind, world.store, spec.name)
        assert again.actions == [], spec.name
    for spec in specs:
        await gone(world, spec.name)
        left = await world.units.look(spec.name)
        assert left is None or (
            spec.name == "some.slice" and left.active_state == "inactive" and not left.files
        )


@case
async def a_burst_has_one_reload(world: World) -> None:
    names = [f"b{number}.service" for number in range(5)]

    async def burst(text: str) -> None:
        for name in names:
            world.store.set_desired(SystemdUnit(name=name, content=SLEEP.format(text)))
        world.kind.batch_begin(names)
        await asyncio.gather(*(settle(world, name) for name in names))

    before = await world.reloads()
    await burst("one")
    first = await world.reloads() - before
    await burst("two")
    await burst("two")
    assert (first, await world.reloads() - before) in (
        (1, 2),
        (5, 10),
    )  # a manager in memory gathers nothing
    for name in names:
        unit = await seen(world, name)
        assert (unit.active_state, unit.stale) == ("active", False)


@case
async def cut_short_between_writing_and_reload(world: World) -> None:
    await want(world, web())
    before = await seen(world, "web.service")
    world.store.set_desired(web(content=SLEEP.format("new")))

    def die(action: object) -> None:
        if type(action).__name__ == "Reload":
            raise drive.Cut

    try:
        await drive.run(world.kind, world.store, "web.service", die)
    except drive.Cut:
        await world.crash()
    await settle(world, "web.service")
    after = await seen(world, "web.service")
    assert not after.stale
    assert after.invocation != before.invocation


@case
async def a_restart_is_not_repeated_after_a_crash(world: World) -> None:
    await want(world, web(), restart_token="one")
    first = await seen(world, "web.service")
    await want(world, web(), restart_token="two")
    second = await seen(world, "web.service")
    assert second.invocation != first.invocation
    await world.crash()
    await settle(world, "web.service")
    assert (await seen(world, "web.service")).invocation == second.invocation


@case
async def many_changes_in_a_row_meet_no_limit_on_starts(world: World) -> None:
    for number in range(8):
        done = await want(world, web(content=SLEEP.format(number)))
        assert [type(action).__name__ for action in done.actions][-1] in ("Start", "Restart"), (
            done.actions
        )
        assert (await seen(world, "web.service")).active_state == "active"
    for _ in range(6):
        await world.systemctl("stop", "web.service")
        await settle(world, "web.service")
        assert (await seen(world, "web.service")).active_state == "active"


@case
async def reload_on_reloads_once(world: World) -> None:
    spec = web(content="[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n")
    await want(world, spec, reload_token="one")
    first = await seen(world, "web.service")
    done = await want(world, spec, reload_token="two")
    assert [type(action).__name__ for action in done.actions] == ["ReloadUnit"]
    second = await seen(world, "web.service")
    assert second.invocation == first.invocation
    assert second.changed > first.changed
    assert (await drive.run(world.kind, world.store, "web.service")).actions == []
    await want(world, web(), reload_token="two")
    third = await seen(world, "web.service")
    await want(world, web(), reload_token="three")  # without ExecReload it is restarted
    assert (await seen(world, "web.service")).invocation != third.invocation


@case
async def what_cannot_be_is_said(world: World) -> None:
    assert is_wait(await want(world, SystemdUnit(name="none.service")), "UnitNotFound", "Blocked")
    static = SystemdUnit(
        name="web.service", content="[Service]\nExecStart=/bin/sleep infinity\n", enabled=True
    )
    assert is_wait(await want(world, static), "NotEnableable", "Failed")
    assert (await seen(world, "web.service")).active_state == "active"
    wrong = SystemdUnit(name="wrong.service", content="[Service]\nNice=1\n")
    world.store.set_desired(wrong)
    with contextlib.suppress(Transient):  # systemd refuses the start
        await drive.run(world.kind, world.store, "wrong.service")
    done = await drive.run(world.kind, world.store, "wrong.service")
    assert is_wait(done, "UnitInvalid", "Failed"), (done, await seen(world, "wrong.service"))
    await gone(world, "wrong.service")


@case
async def a_failure_is_told_by_program_and_line(world: World) -> None:
    world.store.set_desired(
        SystemdUnit(name="bad.service", content="[Service]\nExecStart=/bin/sleeep 1\n")
    )
    await drive.run(world.kind, world.store, "bad.service")
    unit = await seen(world, "bad.service")
    for _ in range(50):
        if unit.active_state == "failed":
            break
        await asyncio.sleep(0.1)
        unit = await seen(world, "bad.service")
    if unit.active_state == "active":
        return  # a manager in memory starts everything
    assert (unit.exit_status, unit.spawn) == (203, "/bin/sleeep: no such file or directory")
    world.store.set_desired(
        SystemdUnit(name="bad.service", content="[Service]\nExceStart=/bin/true\n")
    )
    with contextlib.suppress(Transient):  # systemd refuses the start
        await drive.run(world.kind, world.store, "bad.service")
    done = await drive.run(world.kind, world.store, "bad.service")
    assert is_wait(done, "UnitInvalid", "Failed"), done
    assert isinstance(done.plan, Wait)
    assert "line 2 of content (ExceStart=)" in done.plan.message, done
    await gone(world, "bad.service")


@case
async def stopped_and_none(world: World) -> None:
    assert (await want(world, web(state="stopped"))).plan == Converged("Ready")
    assert (await seen(world, "web.service")).active_state == "inactive"
    await world.systemctl("start", "web.service")
    done = await settle(world, "web.service")
    assert done.fields == ["state"]
    assert (await seen(world, "web.service")).active_state == "inactive"
    await want(world, web(state="none"))
    await world.systemctl("start", "web.service")
    assert (await drive.run(world.kind, world.store, "web.service")).actions == []
    assert (await seen(world, "web.service")).active_state == "active"
