"""A roster that shares its home's lineage: its own are known by a note, and nothing else is ever taken
off.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_fleet.errors import InvalidInput, Refused
from harmony_fleet.manifests import signing_keys
from harmony_fleet.manifests.signing import UNSIGNED, Signing
from harmony_fleet.observe.state import Deployment, Desired
from harmony_fleet.rollout.drift import classify
from harmony_fleet.rollout.fleet import Fleet
from harmony_fleet.rollout.fleet_plan import Scope, plan_fleet
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.lineage import check_by_hand, home_lineage
from harmony_fleet.roster.model import Roster, Selector, check, exactly
from harmony_fleet.roster.projection import project
from harmony_fleet.roster.text import HEADER
from scores import Manifest
from scores.jetstream import noting, stored
from scores.keys import DeploymentKey
from scores.manifest import WireManifest
from tests.unit.fleet.build import KEY, NOW, OURS, THEIRS, device, file, found, status, wire

OTHER = DeploymentKey("pi-01", "base")
MOTD = {"kind": "File", "name": "a", "path": "/srv/a", "content": "x"}


def roster(version: int = 2, **more: Any) -> Roster:
    fields = {
        "version": version,
        "lineage": OURS,
        "generation": 4,
        "devices": [{"name": "pi-01", "class": "web"}],
        "deployments": [{"name": "web", "scores": [MOTD]}],
    }
    return check(fields | more, "test")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Signing:
    home = tmp_path_factory.mktemp("home")
    signing_keys.new(home)
    return signing_keys.load(home)


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Signing:
    home = tmp_path_factory.mktemp("strange")
    signing_keys.new(home)
    return signing_keys.load(home)


def fleet(*deployments: Deployment, signing: Signing = UNSIGNED, of: Roster | None = None) -> Fleet:
    made = of or roster()
    projections = project(made, {one.name: one.scores or [] for one in made.deployments})
    there = {one.key: one for one in deployments}
    return Fleet(made, projections, there, {"pi-01": device()}, NOW, signing)


def stands(
    made: WireManifest, note: str = "", *, said: bool = True, signing: Signing = UNSIGNED
) -> Deployment:
    key = DeploymentKey(made.device, made.deployment)
    actual = found(None, status(generation=made.generation)).actual if said else found().actual
    return Deployment(key, Desired(signing.sign(made), 7, NOW, note=note), actual)


def base(generation: int = 3, lineage: str = OURS, **more: Any) -> WireManifest:
    manifest = Manifest(deployment="base", scores=[] if more else [file("b")], **more)
    return manifest.bind("pi-01", lineage, generation)


def planned(of: Fleet) -> dict[str, str]:
    return {item.wire.deployment: item.action for item in plan_fleet(of, Scope()).plans}


def codes(of: Fleet) -> set[str]:
    return {one.code for one in classify(of) if one.deployment == "base"}


def test_what_was_applied_by_hand_is_left_and_told() -> None:
    by_hand = fleet(stands(base()))
    assert planned(by_hand) == {"web": "create"}
    assert codes(by_hand) == {"applied-by-hand"}
    own = fleet(stands(base(), UNSIGNED.note(base())))
    assert planned(own) == {"web": "create", "base": "remove"}
    assert codes(own) == {"projection-differs"}


def test_a_roster_of_before_takes_all_of_its_lineage_for_its_own() -> None:
    of = fleet(stands(base()), of=roster(version=1))
    assert planned(of) == {"web": "create", "base": "remove"}
    assert not any(item.note for item in plan_fleet(of, Scope()).plans)


def test_a_removal_that_the_roster_wrote_ends_in_a_purge(keys: Signing) -> None:
    removal = base(removed=True)
    gone = found(None, status("Removed")).actual
    key, signed = OTHER, keys.sign(removal)
    for note, purges in ((keys.note(signed), 1), ("", 0)):
        there = Deployment(key, Desired(signed, 7, NOW, note=note), gone)
        made = plan_fleet(fleet(there, signing=keys), Scope())
        assert (len(made.purges), planned(fleet(there, signing=keys))) == (
            purges,
            {"web": "create"},
        )


def test_what_it_names_is_taken_as_it_stands_at_its_generation(keys: Signing) -> None:
    same = wire(file())
    for signing in (UNSIGNED, keys):
        by_hand = stands(same, signing=signing)
        of = fleet(by_hand, signing=signing)
        [item] = plan_fleet(of, Scope()).plans
        assert (item.action, item.wire, item.revision) == ("adopt", by_hand.desired.manifest, 7)
        assert signing.noted(item.wire, item.note)
        assert "AppliedByHand" in next(one.detail for one in classify(of))
        after = stands(same, item.note, signing=signing)
        assert planned(fleet(after, signing=signing)) == {}
        assert {one.code for one in classify(fleet(after, signing=signing))} <= {
            "not-converged",
            "capability-missing",
        }
    [item] = plan_fleet(fleet(stands(wire(file(content="y")))), Scope()).plans
    assert (item.action, item.wire.generation, item.note) == ("update", 4, "unsigned")


def test_what_only_a_device_tells_of_is_left() -> None:
    of = fleet(Deployment(OTHER, Desired(), found(None, status()).actual))
    assert planned(of) == {"web": "create"}
    assert codes(of) == {"applied-by-hand"}
    assert planned(replace(of, roster=roster(version=1)))["base"] == "remove"


def test_a_note_is_of_one_manifest_and_one_home(keys: Signing, strange: Signing) -> None:
    good = keys.note(base())
    forged = [
        "",
        " ",
        "unsigned",
        "x y",
        good[:-4],
        keys.note(base(generation=4)),
        keys.note(base(lineage=THEIRS)),
        keys.note(wire(file("b"))),
        strange.note(base()),
        f"{keys.keys[0].id} {base64.b64encode(bytes(64)).decode()}",
        f"{keys.keys[0].id} {keys.keys[0].signed(base().canonical())}",
    ]
    assert keys.noted(base(), good)
    retired = Signing((), keys.keys)
    assert retired.noted(base(), good), "a retired key wrote it"
    for note in forged:
        assert not keys.noted(base(), note), note
        assert planned(fleet(stands(base(), note, signing=keys), signing=keys)) == {"web": "create"}
    assert not UNSIGNED.noted(base(), good)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["web", "base", "c", "d", "e", "upgrade-x"]),
        st.tuples(st.sampled_from([OURS, THEIRS]), st.booleans(), st.booleans()),
    ),
    st.booleans(),
    st.sets(st.sampled_from(["web", "c", "d"])),
)
def test_no_roster_removes_what_it_did_not_write(
    keys: Signing, there: Mapping[str, tuple[str, bool, bool]], signed: bool, named: set[str]
) -> None:
    signing = keys if signed else UNSIGNED
    deployments = [
        {"name": name, "scores": [dict(MOTD, name=name, path=f"/{name}")]} for name in sorted(named)
    ]
    deployed = []
    for name, (lineage, noted, said) in there.items():
        made = Manifest(deployment=name, scores=[file(name)]).bind("pi-01", lineage, 3)
        note = signing.note(made) if noted else ""
        deployed.append(stands(made, note, said=said, signing=signing))
    made = plan_fleet(
        fleet(*deployed, signing=signing, of=roster(deployments=deployments)), Scope()
    )
    going = {item.wire.deployment for item in made.plans if item.action == "remove"}
    going |= {key.deployment for key, _ in made.purges}
    assert going == {
        name
        for name, (lineage, noted, _) in there.items()
        if lineage == OURS and noted and name not in named and name != "upgrade-x"
    }


# -- the lineage of a home


def test_a_home_s_lineage_is_made_once_whichever_comes_first(tmp_path: Path) -> None:
    first = home_lineage(tmp_path / "a")
    assert RosterFile(tmp_path / "a").create(home_lineage(tmp_path / "a")).lineage == first
    assert home_lineage(tmp_path / "a") == first
    assert home_lineage(tmp_path / "a", THEIRS) == THEIRS
    made = RosterFile(tmp_path / "b").create(str(uuid.uuid4()))
    assert home_lineage(tmp_path / "b") == made.lineage, "only the roster was brought here"
    assert (tmp_path / "b" / "lineage").read_text() == f"{made.lineage}\n"


def test_a_roster_of_before_keeps_a_lineage_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    text = HEADER.format(lineage=THEIRS).replace("version: 2", "version: 1")
    (tmp_path / "fleet" / "roster.yaml").write_text(text)
    mine = home_lineage(tmp_path)
    assert mine != THEIRS
    assert home_lineage(tmp_path) == mine


def test_a_damaged_roster_holds_up_what_might_be_its_own(tmp_path: Path) -> None:
    RosterFile(tmp_path).create(OURS)
    (tmp_path / "fleet" / "roster.yaml").write_text("[")
    with pytest.raises(InvalidInput):
        check_by_hand(tmp_path, OURS, [KEY], "do this")
    (tmp_path / "fleet" / "roster.yaml").unlink()
    with pytest.raises(InvalidInput, match="roster"):
        check_by_hand(tmp_path, OURS, [KEY], "do this")


def test_by_hand_what_the_roster_has_is_refused_with_the_next_step(tmp_path: Path) -> None:
    check_by_hand(tmp_path, OURS, [KEY], "no roster")
    (tmp_path / "fleet").mkdir()
    path = tmp_path / "fleet" / "roster.yaml"
    for version, lineage, refused in ((2, OURS, True), (2, THEIRS, False), (1, OURS, False)):
        path.write_text(
            f"version: {version}\nlineage: {OURS}\ngeneration: 1\ndevices: [{{name: pi-01, class: web}}]\n"
            "deployments: [{name: web, scores: []}]\n"
        )
        check_by_hand(tmp_path, lineage, [OTHER, DeploymentKey("pi-02", "web")], "x")
        if not refused:
            check_by_hand(tmp_path, lineage, [KEY], "x")
            continue
        with pytest.raises(Refused) as caught:
            check_by_hand(tmp_path, lineage, [OTHER, KEY], "set {deployment} there")
        assert (caught.value.code, caught.value.hint) == ("ManagedByRoster", "set web there")


def test_an_older_harmony_refuses_a_shared_roster_by_its_version() -> None:
    with pytest.raises(InvalidInput):
        roster(version=3)
    assert [roster(version=version).shares_lineage for version in (1, 2)] == [False, True]


def test_a_note_stands_beside_the_value() -> None:
    assert noting("") == {}
    lines = [
        "NATS/1.0",
        *(f"{name}: {value}" for name, value in noting("id sig==").items()),
        "",
        "",
    ]
    told = {
        "subject": "$KV.desired-state.pi-01.web",
        "seq": 7,
        "data": "e30=",
        "hdrs": base64.b64encode("\r\n".join(lines).encode()).decode(),
    }
    assert (stored(told).note, stored(told).value) == ("id sig==", b"{}")


# -- a selector for just those devices


DEVICES = st.lists(
    st.fixed_dictionaries(
        {
            "class": st.sampled_from(["web", "edge"]),
            "labels": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])),
        }
    ),
    min_size=1,
    max_size=5,
)


@given(DEVICES, st.data())
def test_a_selector_picks_these_and_no_others(devices: list[dict[str, Any]], data: Any) -> None:
    named = [{"name": f"pi-{at}", **one} for at, one in enumerate(devices)]
    members = roster(devices=named).devices
    names = set(data.draw(st.sets(st.sampled_from([one.name for one in members]), min_size=1)))
    select = exactly(members, names)
    if select is not None:
        assert {one.name for one in members if select.picks(one)} == names
        assert exactly(members, names, select) == select
        return
    for one in [{}, *({"class": name} for name in ("web", "edge"))]:
        for labels in [{}, *({name: value} for name in "ab" for value in "12")]:
            tried = Selector.model_validate({**one, "labels": labels})
            assert {item.name for item in members if tried.picks(item)} != names


def test_a_class_comes_before_all_devices() -> None:
    members = roster().devices
    assert exactly(members, {"pi-01"}) == Selector.model_validate({"class": "web", "labels": {}})
    assert exactly(members, {"pi-01"}, Selector.model_validate({"labels": {"a": "1"}})) is None
