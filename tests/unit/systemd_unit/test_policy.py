"""No unit reaches the agent's own, nor by enabling one that isn't in the list, however its files
spell that.
"""

from __future__ import annotations

import pytest

from harmony_agent.core.actions import Wait
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.systemd_unit import UnitReconciler
from harmony_agent.kinds.systemd_unit.policy import UnitPolicy, own
from harmony_agent.topology.units import Unit
from scores.systemd_unit import SystemdUnit
from tests.fakes.store import FakeStore
from tests.fakes.units import FakeUnits

LISTED = ["web*.service", "web.timer", "x@*.service"]
OWN = "harmony-agent.service"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        (OWN, True),
        ("harmony-agent@x.service", True),
        ("harmony-updater.socket", True),
        ("harmony-updater-apt.service", True),
        ("harmony-.service", True),  # its drop-ins are for every unit of that beginning
        ("harmony-agents-own.service", False),
        ("harmony.service", False),
        ("web.service", False),
    ],
)
def test_our_own_units(name: str, ours: bool) -> None:
    assert own(name) is ours


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[Unit]\nAfter=harmony-agent.service\nPartOf=harmony-updater.service\n", ""),
        ("[Unit]\n# Conflicts=harmony-agent.service\n", ""),
        ("[Unit]\nDescription=Conflicts=harmony-agent.service\n", ""),
        ("[Unit]\nConflicts=ssh.service\n", ""),
        ("[Install]\nWantedBy=default.target\nAlias=web-too.service\nAlso=web.timer\n", ""),
        ("[Unit]\nConflicts=ssh.service harmony-agent.service\n", "UnitForbidden"),
        ("[Unit]\n Conflicts = harmony-agent.service\n", "UnitForbidden"),
        ('[Unit]\nConflicts="harmony-"agent.service\n', "UnitForbidden"),
        ("[Unit]\nConflicts=harmony-%i.service\n", "UnitForbidden"),
        ("[Unit]\nConflicts=%H-agent.service\n", "UnitForbidden"),
        ("[Unit]\nConflicts=\\\n  # so it goes on\n  harmony-agent.service\n", "UnitForbidden"),
        ("[Unit]\nDescription=x\\\\\nConflicts=harmony-agent.service\n", "UnitForbidden"),
        ("[Unit]\nDescription=x\\ \nConflicts=harmony-agent.service\n", "UnitForbidden"),
        ("[Unit]\rConflicts=harmony-agent.service\r", "UnitForbidden"),
        ("[Service]\nSockets=harmony-updater.socket\n", "UnitForbidden"),
        ("[Unit]\nJoinsNamespaceOf=harmony-agent.service\n", "UnitForbidden"),
        ("[Timer]\nUnit=harmony-updater.service\n", "UnitForbidden"),
        ("[Install]\nAlias=harmony-agent.service\n", "UnitForbidden"),
        ("[Install]\nRequiredBy=harmony-agent.service\n", "UnitForbidden"),
        ("[Install]\nAlias=ssh.service\n", "UnitNotAllowed"),
        ("[Install]\nAlso=web.timer ssh.service\n", "UnitNotAllowed"),
        ("[Install]\nAlias=%H.service\n", "UnitForbidden"),
        ("[Install]\nAlias=x%H.service\n", "UnitNotAllowed"),
    ],
)
def test_what_its_files_may_say(text: str, code: str) -> None:
    whole = SystemdUnit(name="web.service", content=text)
    assert [error.code for error in UnitPolicy(LISTED).violations(whole)] == (
        [code] if code else []
    )
    dropin = SystemdUnit(name="web.service", dropins={"10-x.conf": text})
    assert list(UnitPolicy(LISTED).violations(dropin)) == (
        [("dropins.10-x.conf", code)] if code else []
    )


def test_specifiers_are_those_of_the_name() -> None:
    reach = "[Unit]\nConflicts=harmony-%i.service\n[Install]\nAlias=web-%i.service\n"
    assert [
        error.code
        for error in UnitPolicy(LISTED).violations(
            SystemdUnit(name="x@agent.service", content=reach)
        )
    ] == ["UnitForbidden"]
    assert (
        list(UnitPolicy(LISTED).violations(SystemdUnit(name="x@other.service", content=reach)))
        == []
    )


def test_very_many_joined_lines_are_read_once() -> None:
    text = "[Unit]\n" + "X=a\\\n" * 60_000 + "Conflicts=harmony-agent.service\n"
    assert [
        error.code
        for error in UnitPolicy(LISTED).violations(SystemdUnit(name="web.service", content=text))
    ] == ["UnitForbidden"]


@pytest.mark.parametrize(
    ("real", "reason"),
    [(OWN, "UnitForbidden"), ("ssh.service", "UnitNotAllowed"), ("web.service", "")],
)
def test_another_name_of_a_unit_that_may_not_be_touched(real: str, reason: str) -> None:
    kind = UnitReconciler(FakeUnits(), FakeStore("SystemdUnit"), LISTED)
    spec = SystemdUnit(name="web.service", state="stopped")
    seen = Unit(
        "web.service", load_state="loaded", active_state="active", unit_file_state="alias", id=real
    )
    for desired in (Desired(spec, "sha256:0", 1, "web"), None):
        plan = kind.plan("web.service", desired, None, seen)
        assert (isinstance(plan, Wait) and plan.reason == reason) or not reason
