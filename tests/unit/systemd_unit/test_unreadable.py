"""What the manager can't tell of a unit, since it can't read a file of it, holds nothing back."""

from __future__ import annotations

import pytest

from harmony_agent.core.actions import Converged, Wait
from harmony_agent.topology.units import UNREADABLE, Refusal, Unit
from scores.systemd_unit import SystemdUnit
from tests.unit.systemd_unit.bench import NAME, Bench, system, web

DROPINS = {"10-a.conf": "[Service]\nNice=5\n"}
DROPIN = f"{NAME}.d/10-a.conf"
FOREIGN = f"{NAME}.d/50-theirs.conf"
FOLDER = f"{NAME}.d"
CLOSED = "link:/root/closed.service"
BROKEN = [(NAME, UNREADABLE), (DROPIN, UNREADABLE), (NAME, CLOSED)]


async def running(**fields: object) -> Bench:
    bench = Bench()
    await bench.want(web(dropins=DROPINS, **fields))
    bench.units.calls.clear()
    return bench


@pytest.mark.parametrize(("place", "stands"), BROKEN)
async def test_it_is_put_right_first_and_then_asked_again(place: str, stands: str) -> None:
    bench = await running(enabled=True)
    bench.units.disk[place] = stands
    bench.units.enabled.discard(NAME)
    assert bench.said(await bench.settle()) == ("Ready", "")
    assert bench.units.calls[:2] == [f"write {place}", "reload"]
    assert "enable web.service" in bench.units.calls[2:]
    assert NAME in bench.units.enabled


@pytest.mark.parametrize(("place", "stands"), BROKEN)
async def test_it_is_removed_with_its_links(place: str, stands: str) -> None:
    bench = await running(enabled=True)
    bench.units.disk[place] = stands
    assert (await bench.want(None)).plan == Converged()
    assert bench.units.disk == {}
    assert bench.units.enabled == set()
    assert "disable web.service" not in bench.units.calls


async def test_a_file_of_others_is_named_where_its_enablement_matters() -> None:
    bench = await running(enabled=True)
    bench.units.disk[FOREIGN] = UNREADABLE
    done = await bench.settle()
    assert bench.said(done) == ("Blocked", "AccessDenied")
    assert isinstance(done.plan, Wait)
    assert FOREIGN in done.plan.message
    assert bench.said(await bench.want(web(dropins=DROPINS))) == ("Ready", "")


async def test_a_closed_folder_of_our_drop_ins_is_named_and_not_forgotten() -> None:
    bench = await running()
    del bench.units.disk[DROPIN]
    bench.units.disk[FOLDER] = UNREADABLE
    for spec in (web(dropins=DROPINS), web(), None):
        done = await bench.want(spec)
        assert bench.said(done) == ("Blocked", "AccessDenied")
        assert isinstance(done.plan, Wait)
        assert FOLDER in done.plan.message
    assert NAME not in bench.units.disk
    del bench.units.disk[FOLDER]
    assert (await bench.settle()).plan == Converged()
    assert bench.store.record(NAME) is None


async def test_a_unit_of_which_nothing_else_is_known_exists() -> None:
    bench = Bench()
    bench.store.set_desired(SystemdUnit(name="x@.service", enabled=True))
    unit = Unit("x@.service", refusal=Refusal("SystemdRefused", "too many links"), load_state="")
    plan = bench.kind.plan("x@.service", bench.store.desired("x@.service"), None, unit)
    assert isinstance(plan, Wait)
    assert (plan.reason, plan.phase) == ("SystemdRefused", "Blocked")
    assert "too many links" in plan.message


@pytest.mark.parametrize("load_state", ["error", "not-found"])
async def test_a_unit_of_others_that_cannot_be_read_is_told_and_not_started(
    load_state: str,
) -> None:
    bench = Bench()
    bench.store.set_desired(system())
    refusal = Refusal("SystemdRefused", "systemd refuses GetUnitFileState: too many links")
    unit = Unit("sys.service", refusal=refusal, load_state=load_state)
    plan = bench.kind.plan("sys.service", bench.store.desired("sys.service"), None, unit)
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason) == ("Blocked", "SystemdRefused")
    assert "cannot use sys.service: systemd refuses" in plan.message


async def test_a_vendors_unit_that_runs_and_is_not_to_be_enabled_needs_no_answer() -> None:
    bench = Bench()
    bench.units.vendor["sys.service"] = "[Service]\nExecStart=/bin/sleep infinity\n"
    await bench.want(system())
    bench.units.disk["sys.service.d/50-theirs.conf"] = UNREADABLE
    assert bench.said(await bench.settle("sys.service")) == ("Ready", "")
