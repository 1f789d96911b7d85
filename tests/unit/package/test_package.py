"""Package over a fake: looked for, waited for with the command that helps, never installed."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Plan, Wait
from harmony_agent.core.debian_version import is_older
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.package import PackageReconciler
from harmony_agent.kinds.package.plan import plan
from harmony_agent.topology.packages import PackageState
from scores.package import Package
from tests.fakes.drive import run
from tests.fakes.packages import FakePackages
from tests.fakes.store import FakeStore


class Bench:
    """A device with a fake dpkg, and an agent that can be restarted."""

    def __init__(self) -> None:
        self.packages, self.store = FakePackages(), FakeStore("Package")
        self.restart_agent()

    def restart_agent(self) -> None:
        self.kind = PackageReconciler(self.packages, self.store)

    async def settle(self, **fields: Any) -> Plan[Any]:
        self.store.set_desired(Package.model_validate({"name": "gpiod", **fields}))
        return (await run(self.kind, self.store, "gpiod")).plan


@pytest.mark.parametrize(
    ("known", "fields", "said"),
    [
        (None, {}, "isn't installed: apt-get install gpiod"),
        (None, {"package": "libstdc++6"}, "isn't installed: apt-get install libstdc++6"),
        (PackageState("1.6", "half-configured"), {}, "is half-configured: dpkg --configure -a"),
        (PackageState("1.6-1"), {"version": "1.6-2"}, "is 1.6-1, and 1.6-2 or later is needed"),
        (PackageState("1.6-1"), {"version": "1.6-1"}, ""),
        (PackageState("1:1.0"), {"version": "2.0"}, ""),
        (PackageState("1.6", "triggers-pending"), {}, ""),
    ],
)
async def test_what_is_missing_is_named_with_what_helps(
    known: PackageState | None, fields: dict[str, Any], said: str
) -> None:
    bench = Bench()
    if known is not None:
        bench.packages.known["gpiod"] = known
    made = await bench.settle(**fields)
    if not said:
        assert made == Converged()
        return
    assert isinstance(made, Wait)
    assert (made.reason, made.phase) == ("PackageMissing", "Blocked")
    assert said in made.message


def test_what_is_no_longer_wanted_needs_nothing() -> None:
    for known in (None, PackageState("1.6")):
        assert plan(None, known) == Converged()


async def test_two_resources_may_need_the_same_package() -> None:
    bench = Bench()
    bench.packages.known["g++"] = PackageState("12")
    for name in ("one", "two"):
        spec = Package(name=name, package="g++")
        bench.store.set_desired(spec)
        assert (await run(bench.kind, bench.store, name)).plan == Converged()
        assert bench.kind.claims(spec) == frozenset()
        assert list(bench.kind.admit(spec)) == []
    assert set(await bench.kind.relist()) == {"one", "two"}


async def test_what_is_shown_of_it() -> None:
    bench = Bench()
    assert await bench.kind.relist() == {}
    assert bench.packages.looks == 0, "nobody asks for one"
    shown = [
        bench.kind.detail(None, state)
        for state in (None, PackageState("1", "unpacked"), PackageState("2"))
    ]
    assert [(one.state, one.version) for one in shown] == [
        ("Absent", ""),
        ("Broken", "1"),
        ("Installed", "2"),
    ]
    bench.packages.broken = True
    with pytest.raises(Transient):
        await bench.settle()


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0", "1.1"),
        ("1.9", "1.10"),
        ("1.0~rc1", "1.0"),
        ("1.0~rc1-1", "1.0-0.1"),
        ("1.0", "1.0a"),
        ("1.0a", "1.0+b"),
        ("9", "1:0"),
        ("1.0-1", "1.0-1+deb12u1"),
        ("1.0-1~bpo12+1", "1.0-1"),
        ("1.2-rc-1", "1.2-rc-2"),
        ("2.36-9", "2.36-9+deb12u13"),
    ],
)
def test_versions_are_in_debian_s_order(older: str, newer: str) -> None:
    assert (is_older(older, newer), is_older(newer, older)) == (True, False)


@pytest.mark.parametrize(("one", "same"), [("1.0", "1.0-0"), ("0:1", "1"), ("1.01", "1.1")])
def test_versions_that_are_the_same(one: str, same: str) -> None:
    assert not is_older(one, same)
    assert not is_older(same, one)
