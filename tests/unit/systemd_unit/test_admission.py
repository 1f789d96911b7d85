"""What the device allows of units, what a unit occupies, and what its status shows."""

from __future__ import annotations

import pytest

from harmony_agent.core.errors import Transient
from harmony_agent.kinds.systemd_unit import UnitReconciler
from harmony_agent.topology.units import Unit
from scores.manifest import FieldError
from scores.systemd_unit import SystemdUnit
from tests.fakes.store import FakeStore
from tests.fakes.units import FakeUnits
from tests.unit.systemd_unit.bench import NAME, Bench, web


@pytest.mark.parametrize(
    ("patterns", "name", "codes"),
    [
        (["*"], "web.service", []),
        (["web.*", "x@*.service"], "x@a\\x2db.service", []),
        (["web.*"], "ssh.service", ["UnitNotAllowed"]),
        (["WEB.*"], "web.service", ["UnitNotAllowed"]),
        ([], "web.service", ["UnitNotAllowed"]),
        (["*"], "harmony-agent.service", ["UnitForbidden"]),
        (["harmony-updater.socket"], "harmony-updater.socket", ["UnitForbidden"]),
        (["*"], "harmony-agents-own.service", []),
    ],
)
def test_names_are_allowed_by_pattern(patterns: list[str], name: str, codes: list[str]) -> None:
    kind = UnitReconciler(FakeUnits(), FakeStore("SystemdUnit"), patterns)
    assert list(kind.admit(SystemdUnit(name=name))) == [FieldError("name", code) for code in codes]


def test_an_empty_unit_file_would_be_a_mask() -> None:
    assert list(Bench().kind.admit(web(content=""))) == [FieldError("content", "UnitFileEmpty")]


def test_claims_name_the_unit_and_each_of_its_files() -> None:
    claims = Bench().kind.claims
    assert claims(SystemdUnit(name=NAME)) == {"unit:web.service"}
    assert claims(SystemdUnit(name=NAME, masked=True)) == {
        "unit:web.service",
        "path:/units/web.service",
    }
    assert claims(web(dropins={"a.conf": "[Unit]\n"})) == {
        "unit:web.service",
        "path:/units/web.service",
        "path:/units/web.service.d/a.conf",
    }


def test_detail_is_what_the_manager_shows() -> None:
    kind = Bench().kind
    seen = Unit(NAME, load_state="loaded", active_state="active", sub_state="running", unit_file_state="enabled",
                main_pid=7, restarts=2, since=1_700_000_000_123_456, condition=True, invocation="ab")  # fmt: skip
    detail = kind.detail(None, seen)
    assert detail is not None
    assert detail.model_dump() == {
        "kind": "SystemdUnit",
        "load_state": "loaded",
        "active_state": "active",
        "sub_state": "running",
        "unit_file_state": "enabled",
        "main_pid": 7,
        "restarts": 2,
        "since": "2023-11-14T22:13:20.123Z",
        "condition": True,
        "ready": True,
    }
    assert kind.instance(seen) == "ab"
    absent = kind.detail(None, None)
    assert absent is not None
    assert (absent.load_state, absent.since, absent.ready) == ("not-found", None, False)
    assert kind.instance(None) == ""
    assert kind.instance(Unit(NAME, active_state="failed", invocation="ab")) == ""
    template = kind.detail(None, Unit("x@.service", load_state=""))
    assert template is not None
    assert template.load_state == "template"


async def test_the_rest_is_handed_on() -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.journal[NAME] = ["one", "two", "three"]
    assert [line.text for line in await bench.kind.logs(NAME, 2)] == ["two", "three"]
    assert set(await bench.kind.relist()) == {NAME}
    heard: list[str] = []
    await bench.kind.watch(heard.append)
    bench.units.hears("x")
    assert heard == ["x"]
    before = bench.kind.instance(await bench.kind.observe(NAME))
    await bench.kind.restart(NAME)
    assert bench.kind.instance(await bench.kind.observe(NAME)) != before
    bench.units.results[NAME] = "timeout"
    with pytest.raises(Transient, match="as timeout"):
        await bench.kind.restart(NAME)
    bench.kind.batch_begin(["a", "b"])
    bench.kind.batch_end("a")
    assert bench.units.expected == {"b"}
    await bench.kind.close()
    assert bench.units.closed
