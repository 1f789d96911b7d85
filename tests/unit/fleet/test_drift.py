"""Drift classes, fleet plans and projections, in tables: what is found, what is planned, what stays
untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from harmony_fleet.errors import Conflict, InvalidInput, Refused
from harmony_fleet.observe.state import Actual, Deployment, Desired, Device
from harmony_fleet.rollout.drift import classify
from harmony_fleet.rollout.finding import RESPONSES, failing
from harmony_fleet.rollout.fleet import Fleet
from harmony_fleet.rollout.fleet_plan import (
    Scope,
    check_refusals,
    plan_fleet,
    refused_code,
)
from harmony_fleet.rollout.saved_plan import check_saved, save, saved_scope
from harmony_fleet.roster.model import Roster, check
from harmony_fleet.roster.projection import project
from scores import Manifest, SystemdUnit
from scores.keys import DeploymentKey
from scores.manifest import WireManifest
from scores.status import ContainerDetail, PauseInfo, UnitDetail
from tests.unit.fleet.build import DIGEST, KEY, NOW, OURS, THEIRS, device, found, resource, status

UNIT = {"kind": "SystemdUnit", "name": "u.service", "content": "[Service]\n", "enabled": True}
BOX = {"kind": "Container", "name": "c", "image": "localhost/c"}
MOTD = {"kind": "File", "name": "motd", "path": "/srv/motd", "content": "x"}
SCORES = [MOTD, UNIT, BOX]


def roster(*, scores: Any = None, **more: Any) -> Roster:
    member = {"name": "pi-01", "class": "web", **more}
    return check(
        {
            "version": 1,
            "lineage": OURS,
            "generation": 4,
            "devices": [member],
            "deployments": [{"name": "web", "scores": SCORES if scores is None else scores}],
        },
        "test",
    )


def fleet(
    *deployments: Deployment, at: Device | None = None, of: Roster | None = None, **more: Any
) -> Fleet:
    made = of or roster(**more)
    sources = {item.name: item.scores or [] for item in made.deployments}
    known = at or device()
    return Fleet(
        made,
        project(made, sources),
        {item.key: item for item in deployments},
        {known.name: known},
        NOW,
    )


def standing(
    generation: int = 3, lineage: str = OURS, supersedes: str | None = None, **more: Any
) -> WireManifest:
    made = roster(**more)
    manifest = project(made, {"web": made.deployments[0].scores or []})[KEY].manifest
    return manifest.bind("pi-01", lineage, generation, supersedes)


def unit(active: str, *, phase: Any = "Ready", condition: bool | None = None) -> Any:
    detail = UnitDetail(
        load_state="loaded",
        active_state=active,
        sub_state="x",
        unit_file_state="enabled",
        condition=condition,
    )
    return resource(phase, status=detail)


def box(state: Any, phase: Any = "Ready") -> Any:
    return resource(phase, status=ContainerDetail(state=state))


def names(made: Fleet) -> list[tuple[str, str, str]]:
    told = classify(made)
    assert all(RESPONSES[item.code] and item.as_json()["response"] for item in told)
    return [(item.code, item.deployment, item.resource) for item in told]


RUNS = {"SystemdUnit/u.service": unit("active"), "Container/c": box("Running")}
RESTS = {"SystemdUnit/u.service": unit("inactive"), "Container/c": box("Exited")}


def test_a_pause_is_told_and_no_failure() -> None:
    held = PauseInfo(scope="device", until="2026-11-29T20:00:00.000Z")
    for said in (status(resources=RUNS), status("Degraded", resources=RESTS)):
        told = classify(fleet(found(standing(), said.model_copy(update={"paused": held}))))
        assert [item.code for item in told] == ["paused"]
        assert told[0].detail.startswith("until 2026-11-29T20:00:00.000Z: ")
        assert not failing(told)
    assert failing(classify(fleet(found(standing(), status("Degraded", resources=RESTS)))))
    fenced = status("Fenced", reason="StaleGeneration").model_copy(update={"paused": held})
    assert "fenced" in {item.code for item in classify(fleet(found(standing(), fenced)))}


def test_what_nobody_on_a_device_accounts_for_is_named() -> None:
    made = fleet(found(standing(), status(resources=RUNS)))
    one = made.devices["pi-01"]
    assert one.info is not None
    odd = one.info.model_copy(
        update={"unmanaged": ["stray"], "ignored_keys": ["pi-01.Web"], "disturbed": ["Nice"]}
    )
    told = classify(replace(made, devices={"pi-01": replace(one, info=odd)}))
    assert [(item.code, item.detail) for item in told] == [
        ("device-disturbed", "Nice"),
        ("unmanaged", "InvalidKey pi-01.Web"),
        ("unmanaged", "containers stray"),
    ]


def test_as_it_should_be() -> None:
    made = fleet(found(standing(), status(resources=RUNS)))
    assert names(made) == []
    assert plan_fleet(made, Scope()).empty
    assert plan_fleet(made, Scope()).unchanged == 1


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (found(), ["projection-missing", "not-converged"]),
        (found(None, status(resources=RUNS)), ["projection-missing"]),
        (found(standing(scores=[MOTD]), status(resources=RUNS)), ["projection-differs"]),
        (found(Manifest(deployment="web", removed=True).bind("pi-01", OURS, 3), status("Removed")),
         ["not-converged", "projection-differs"]),
        (found(standing(3), status(generation=5, resources=RUNS)), ["projection-differs"]),
        (found(standing(4), status(resources=RUNS)), ["not-converged"]),
        (found(standing(), status("Degraded", resources=RUNS)), ["not-converged"]),
        (found(standing(), status("Fenced", reason="LineageChanged", resources=RUNS)), ["fenced"]),
        (found(standing(), status(resources=RUNS, rejected=(2, "StaleGeneration"))), ["fenced"]),
        (found(standing(), status(resources=RUNS, rejected=(3, "GenerationReused"))), ["fenced"]),
        (found(standing(), status("Rejected", generation=2, reason="Reverted", resources=RUNS,
                                  rejected=(3, "Reverted"))), ["reverted"]),
        (found(standing(lineage=THEIRS), status(resources=RUNS)), ["ownership-mismatch"]),
        (found(standing(), status(lineage=THEIRS, resources=RUNS)), ["ownership-mismatch"]),
        (found(standing(supersedes=THEIRS), status("Progressing", lineage=THEIRS, resources=RUNS)), ["not-converged"]),
        (found(problem="NotJson"), ["ownership-mismatch"]),
    ],
)  # fmt: skip
def test_keys(there: Deployment, expected: list[str]) -> None:
    assert sorted(code for code, _, _ in names(fleet(there))) == sorted(expected)


@pytest.mark.parametrize(
    ("shown", "more", "expected"),
    [
        ({"SystemdUnit/u.service": unit("failed")}, {}, ["missing"]),
        ({"SystemdUnit/u.service": unit("inactive", phase="Completed")}, {}, []),
        ({"SystemdUnit/u.service": unit("inactive", phase="Pending")}, {}, []),
        ({"SystemdUnit/u.service": unit("inactive", condition=False)}, {}, []),
        ({"SystemdUnit/u.service": unit("activating")}, {}, []),
        ({"Container/c": box("Exited")}, {}, ["missing"]),
        ({"Container/c": box("Exited", "Completed")}, {}, []),
        (RUNS, {"desired_state": "stopped"}, ["unexpected", "unexpected"]),
        (RESTS, {"desired_state": "stopped"}, []),
        (RUNS, {"enabled": False}, ["disabled-running", "disabled-running"]),
        (RUNS, {"enabled": False, "desired_state": "stopped"}, ["disabled-running", "disabled-running"]),
        (RESTS, {"enabled": False}, []),
        ({"File/motd": resource("Blocked", "OwnershipConflict")}, {}, ["unmanaged"]),
        ({"File/motd": resource("Blocked", "OwnedByAnotherDeployment")}, {}, ["ownership-mismatch"]),
        ({"Container/other": box("Running")}, {}, []),
    ],
)  # fmt: skip
def test_resources(shown: Mapping[str, Any], more: dict[str, Any], expected: list[str]) -> None:
    there = found(standing(**more), status(resources=dict(shown)))
    assert [code for code, _, key in names(fleet(there, **more)) if key] == expected


def elsewhere(key: DeploymentKey, wire: WireManifest | None, told: Any = None) -> Deployment:
    made = found(wire, told)
    return Deployment(key, made.desired, made.actual)


def other(name: str, lineage: str) -> WireManifest:
    return Manifest(deployment=name).bind("pi-01", lineage, 2)


def test_others() -> None:
    good = found(standing(), status(resources=RUNS))
    theirs = elsewhere(DeploymentKey("pi-01", "theirs"), other("theirs", THEIRS))
    left = elsewhere(DeploymentKey("pi-01", "left"), other("left", OURS))
    run = elsewhere(DeploymentKey("pi-01", "upgrade-1"), other("upgrade-1", OURS))
    tomb = elsewhere(DeploymentKey("pi-01", "tomb"), None, status("Removed"))
    made = fleet(good, theirs, left, run, tomb)
    assert names(made) == [("projection-differs", "left", ""), ("unmanaged", "theirs", "")]
    planned = plan_fleet(made, Scope())
    assert [(item.wire.deployment, item.action) for item in planned.plans] == [("left", "remove")]


def test_devices() -> None:
    good = found(standing(), status(resources=RUNS))
    quiet = Device("pi-01", device().info, NOW - timedelta(seconds=31))
    assert names(fleet(good, at=quiet)) == [("heartbeat-stale", "", "")]
    assert names(fleet(good, at=Device("pi-01", None)))[0] == ("heartbeat-stale", "", "")
    assert ("heartbeat-stale", "", "") not in names(fleet(good, at=quiet, enabled=False))
    stranger = Device("zz", None, NOW)
    made = fleet(good)
    made = Fleet(
        made.roster, made.projections, made.deployments, {**made.devices, "zz": stranger}, NOW
    )
    assert names(made) == [("unmanaged", "", "")]
    weak = device(podman=None)
    assert names(fleet(good, at=weak)) == [("capability-missing", "web", "")]


def test_what_was_removed_is_purged_when_the_device_says_so() -> None:
    gone = Manifest(deployment="old", removed=True).bind("pi-01", OURS, 3)
    key = DeploymentKey("pi-01", "old")
    for told, purged, waiting in (
        (status("Removed"), 1, 0),
        (status("Removing"), 0, 1),
        (None, 0, 1),
    ):
        made = plan_fleet(fleet(elsewhere(key, gone, told)), Scope())
        assert (len(made.purges), len(made.removing), len(made.plans)) == (purged, waiting, 1)


def test_what_others_wrote_holds_all_up() -> None:
    made = plan_fleet(fleet(found(standing(lineage=THEIRS))), Scope())
    with pytest.raises(Conflict) as caught:
        check_refusals(made)
    assert (caught.value.code, len(caught.value.details)) == ("LineageChanged", 1)
    assert made.as_json()["refused"][0]["code"] == "LineageChanged"


LEAP: Final = status(generation=2**53 - 2)
UNREADABLE: Final = Deployment(KEY, Desired(), Actual(revision=9, problem="NotJson"))


@pytest.mark.parametrize(
    ("there", "at", "code", "exit_code"),
    [
        (found(), device(kinds=("File",)), "KindNotAllowed", 5),
        (found(), device(podman=None), "MissingCapability", 5),
        (found(None, status(lineage=THEIRS)), None, "LineageChanged", 1),
        (found(None, LEAP), None, "ImplausibleGeneration", 1),
        (UNREADABLE, None, "Unreadable", 1),
    ],
)
def test_what_a_device_says_holds_up_no_other(
    there: Deployment, at: Any, code: str, exit_code: int
) -> None:
    made = plan_fleet(fleet(there, at=at), Scope())
    check_refusals(made)
    assert made.plans == ()
    assert [item["code"] for item in made.as_json()["refused"]] == [code]
    assert refused_code(made) == exit_code
    two = roster()
    two = two.model_copy(
        update={"devices": [*two.devices, two.devices[0].model_copy(update={"name": "pi-02"})]}
    )
    made = plan_fleet(fleet(there, at=at, of=two), Scope())
    check_refusals(made)
    assert [item.wire.device for item in made.plans] == ["pi-02"]


def strays(count: int, name: str = "pi-01") -> list[Deployment]:
    found_ = found(None, status())
    return [
        Deployment(DeploymentKey(name, f"s{number}"), found_.desired, found_.actual)
        for number in range(count)
    ]


def test_thousands_of_statuses_are_one_device_s_word() -> None:
    """As many as the loss of NATS explains are taken off; more are named as what they are."""
    made = plan_fleet(fleet(found(standing()), *strays(50)), Scope())
    assert ({item.action for item in made.plans}, len(made.plans), made.refusals) == (
        {"remove"},
        50,
        (),
    )
    crowd = fleet(found(standing()), *strays(5000))
    made = plan_fleet(crowd, Scope())
    check_refusals(made)
    assert made.plans == ()
    assert [item["code"] for item in made.as_json()["refused"]] == ["ImplausibleDeployments"]
    assert [code for code, _, _ in names(crowd)].count("device-implausible") == 1
    assert len(names(crowd)) < 10


def wide(*gone_from: str, count: int = 10) -> Fleet:
    """As many devices, of which these have a deployment that has left the roster."""
    made = roster()
    one = made.devices[0]
    devices = [one.model_copy(update={"name": f"pi-{number:02}"}) for number in range(1, count + 1)]
    there = {}
    for device_ in devices:
        for name in ("web", *(["left"] if device_.name in gone_from else [])):
            key = DeploymentKey(device_.name, name)
            wire = Manifest(deployment=name).bind(device_.name, OURS, 2)
            there[key] = Deployment(key, Desired(wire, 7, NOW), Actual())
    of = made.model_copy(update={"devices": devices})
    empty = fleet(of=of)
    return Fleet(of, empty.projections, there, empty.devices, NOW)


def test_whole_deployments_pass_the_guard_by_share_of_devices() -> None:
    most = [f"pi-{number:02}" for number in range(1, 7)]
    check_refusals(plan_fleet(wide(*most[:5]), Scope()))
    check_refusals(plan_fleet(wide("pi-01", count=1), Scope()))
    made = wide(*most)
    for scope in (Scope(), Scope(allow_removals=5), Scope(allow_prune=1000)):
        with pytest.raises(Refused) as caught:
            check_refusals(plan_fleet(made, scope))
        assert (caught.value.code, "--allow-removals 6" in caught.value.hint) == (
            "PruneGuard",
            True,
        )
    check_refusals(plan_fleet(made, Scope(allow_removals=6)))
    check_refusals(plan_fleet(made, Scope(frozenset(most))))


def test_a_saved_plan_is_held_to() -> None:
    before = plan_fleet(fleet(found()), Scope(frozenset({"pi-01"}), allow_prune=3))
    data = save(before)
    assert saved_scope(data) == Scope(frozenset({"pi-01"}), allow_prune=3)
    check_saved(data, before)
    for moved in (
        plan_fleet(fleet(found(standing())), before.scope),
        plan_fleet(fleet(found()), Scope()),
    ):
        with pytest.raises(Conflict):
            check_saved(data, moved)
    for bad in (b"", b"[]", b"{}", data[:-3], data.replace(b"FleetPlan", b"Flat")):
        with pytest.raises(InvalidInput):
            saved_scope(bad)


def test_stopped_is_files_alone_and_no_boot_starts_it() -> None:
    made = standing(desired_state="stopped")
    by_key = {score.key: score.wire() for score in made.scores}
    assert by_key["File/motd"] == MOTD
    assert (
        by_key["SystemdUnit/u.service"]["state"],
        by_key["SystemdUnit/u.service"]["enabled"],
    ) == ("stopped", False)
    assert by_key["Container/c"]["state"] == "stopped"
    template = [{"kind": "SystemdUnit", "name": "x@.service", "content": "[Service]\n"}]
    [score] = standing(scores=template, enabled=False).scores
    assert isinstance(score, SystemdUnit)
    assert score.wanted_state == "none"


def test_the_same_roster_gives_the_same_bytes_and_variables_count() -> None:
    text = [{**MOTD, "content": {"$text": "${device} ${port}"}}]
    first = standing(scores=text, variables={"port": 1}).canonical()
    assert first == standing(scores=text, variables={"port": 1}).canonical()
    assert first != standing(scores=text, variables={"port": 2}).canonical()


@pytest.mark.parametrize(
    ("scores", "code"),
    [
        ([{"kind": "File", "name": "a", "path": "/srv/a"}], "ExactlyOneOf"),
        ([{"kind": "Pod", "name": "a"}], "UnknownKind"),
        ([{**MOTD, "content": {"$var": "none"}}], "VariableMissing"),
        ([{"kind": "SystemUpgrade", "name": "s", "attempt_id": "a", "run_uid": "b",
           "expires_at": "2026-01-01T00:00:00Z"}], "SystemUpgradeInRoster"),
    ],
)  # fmt: skip
def test_what_can_not_be_projected(scores: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        fleet(scores=scores)
    assert code in {caught.value.code, *(error.code for error in caught.value.errors)}


def test_a_resource_has_one_owner() -> None:
    twice = roster().wire()
    twice["deployments"].append({"name": "again", "scores": [MOTD]})
    with pytest.raises(InvalidInput) as caught:
        fleet(of=check(twice, "test"))
    assert caught.value.code == "OwnedByAnotherDeployment"


def test_digests_alone_are_told() -> None:
    made = fleet(
        found(standing(scores=[{**MOTD, "content": "s3cret"}, UNIT, BOX]), status(resources=RUNS))
    )
    told = str([item.as_json() for item in classify(made)]) + str(
        plan_fleet(made, Scope()).as_json()
    )
    assert "s3cret" not in told
    assert DIGEST not in told


@pytest.mark.parametrize("stops", [{"desired_state": "stopped"}, {"enabled": False}])
def test_a_session_is_stopped_with_the_rest(stops: dict[str, Any]) -> None:
    session = {"kind": "Session", "name": "worker", "command": ["/usr/bin/top"]}
    made = standing(scores=[MOTD, session], **stops)
    assert [score.key for score in made.scores if getattr(score, "state", "") == "stopped"] == [
        "Session/worker"
    ]
