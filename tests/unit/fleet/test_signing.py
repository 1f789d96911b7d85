"""The signing keys of a home: made, listed, retired; what they sign and what is planned; no private
half gets out.
"""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.cli import main
from harmony_fleet.errors import HarmonyError
from harmony_fleet.manifests import signing_keys
from harmony_fleet.manifests.signing import UNSIGNED, Signing
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.observe.state import Deployment, to_desired
from harmony_fleet.rollout.drift import classify
from harmony_fleet.rollout.fleet_plan import Scope, plan_fleet
from harmony_fleet.rollout.plan import ApplyRequest, plan
from scores import DeviceInfo, Manifest
from scores.keys import DESIRED
from scores.manifest import WireManifest, decode
from scores.signatures import MAX_SIGNATURES, read_key
from scores.status import Capabilities, OsInfo, TrustInfo
from tests.keys import ROSTER, trust
from tests.unit.fleet.build import (
    KEY,
    NOW,
    OURS,
    THEIRS,
    device,
    file,
    found,
    manifest,
    status,
    wire,
)
from tests.unit.fleet.test_drift import RUNS, fleet, standing


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    return tmp_path


def private_halves(home: Path) -> list[str]:
    """What must be nowhere else."""
    return [
        path.read_text().strip().partition(":")[2]
        for path in signing_keys.keys_folder(home).iterdir()
    ]


def believes(keys: Signing, made: WireManifest, *, among: int = 0) -> bool:
    """Whether a device that trusts one of the keys believes it, as the bytes arrive."""
    from harmony_agent.core.signatures import Trust
    from scores.manifest import parse

    key = keys.keys[among]
    return (
        Trust(True, {key.id: read_key(key.spelt)}, trust().valid).verify(parse(made.canonical()), 1)
        is None
    )


def test_a_key_is_private_and_whole(home: Path) -> None:
    assert signing_keys.load(home) == UNSIGNED
    assert signing_keys.trusted_keys(home) == []
    made = signing_keys.new(home)
    folder = signing_keys.keys_folder(home)
    [path] = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == (f"{made.id}.key", 0o600)
    assert signing_keys.trusted_keys(home) == [made.spelt]
    assert read_key(made.spelt) == made.public
    assert private_halves(home)[0] not in repr((made, signing_keys.load(home)))


def test_the_same_manifest_is_signed_to_the_same_bytes(home: Path) -> None:
    signing_keys.new(home)
    once, again = (signing_keys.load(home).sign(wire(file())) for _ in range(2))
    assert (
        once.canonical()
        == again.canonical()
        == signing_keys.load(home).sign(wire(file())).canonical()
    )
    assert decode(once.canonical(), device="pi-01", deployment="web") == once
    assert signing_keys.load(home).problem(once) == ""
    assert signing_keys.load(home).sign(once).canonical() == once.canonical()
    assert UNSIGNED.sign(wire(file())) == wire(file())


def test_every_active_key_signs_and_a_retired_one_does_not(home: Path) -> None:
    first = signing_keys.new(home)
    old = signing_keys.load(home).sign(wire(file()))
    second = signing_keys.new(home)
    both = signing_keys.load(home)
    assert both.problem(old) == f"SignatureMissing {second.id}"
    made = both.sign(wire(file()))
    assert believes(both, made, among=0)
    assert believes(both, made, among=1)
    assert signing_keys.turn(home, first.id, "retired")
    assert not signing_keys.turn(home, first.id, "retired")
    only = signing_keys.load(home)
    assert ([key.id for key in only.keys], list(only.retired)) == ([second.id], [first.id])
    assert signing_keys.trusted_keys(home) == [second.spelt]
    assert only.problem(made) == f"SignatureUnknownKey {' '.join(sorted((first.id, second.id)))}"
    assert only.problem(old) == f"SignatureMissing {second.id}"
    assert signing_keys.turn(home, first.id, "active")
    assert signing_keys.load(home).problem(made) == ""


def refusal(work: Any) -> tuple[str, int]:
    with pytest.raises(HarmonyError) as caught:
        work()
    assert caught.value.hint
    assert caught.value.message.startswith("cannot ")
    return caught.value.code, int(caught.value.exit_code)


def test_of_many_that_make_a_key_at_once_as_many_do_as_a_manifest_carries(home: Path) -> None:
    def one(_number: int) -> str:
        try:
            signing_keys.new(home)
        except HarmonyError as error:
            return error.code
        return ""

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(one, range(8)))
    assert sorted(ends) == [""] * MAX_SIGNATURES + ["TooManyKeys"] * (8 - MAX_SIGNATURES)
    assert len(signing_keys.load(home).keys) == MAX_SIGNATURES


def test_what_is_refused(home: Path) -> None:
    first = signing_keys.new(home)
    assert refusal(lambda: signing_keys.turn(home, first.id, "retired")) == ("LastKey", 5)
    assert refusal(lambda: signing_keys.turn(home, "0" * 16, "retired")) == ("NotFound", 2)
    assert refusal(lambda: signing_keys.turn(home, "../lineage", "retired")) == ("NotFound", 2)
    for _ in range(MAX_SIGNATURES - 1):
        signing_keys.new(home)
    assert refusal(lambda: signing_keys.new(home)) == ("TooManyKeys", 5)
    signing_keys.turn(home, first.id, "retired")
    signing_keys.new(home)
    assert refusal(lambda: signing_keys.turn(home, first.id, "active")) == ("TooManyKeys", 5)


def test_a_file_that_cannot_be_used_stops_everything(home: Path) -> None:
    made = signing_keys.new(home)
    path = signing_keys.keys_folder(home) / f"{made.id}.key"
    right = path.read_text()
    path.chmod(0o640)
    assert refusal(lambda: signing_keys.load(home)) == ("KeyExposed", 3)
    path.chmod(0o600)
    for text in (
        "",
        right[:-5],
        right.replace("ed25519-private:", "x"),
        "ed25519-private:" + "A" * 43 + "=\n",
        "\xe9",
    ):
        path.write_text(text, encoding="latin-1")
        assert refusal(lambda: signing_keys.load(home)) == ("KeyInvalid", 2), text
    path.write_text(right)
    elsewhere = home / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert refusal(lambda: signing_keys.load(home)) == ("KeyUnreadable", 2)
    path.unlink()
    os.mkfifo(path, 0o600)
    assert refusal(lambda: signing_keys.load(home))[0] in ("KeyExposed", "KeyInvalid")


def test_commands(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["fleet", "key", "list"]) == 0
    assert main(["fleet", "key", "new"]) == 0
    assert main(["fleet", "key", "new", "-o", "json"]) == 0
    first, second = signing_keys.all_keys(home)
    assert main(["fleet", "key", "retire", first.id]) == 0
    assert main(["fleet", "key", "retire", first.id, "-o", "json"]) == 0
    assert main(["fleet", "key", "retire", second.id]) == 5
    assert main(["fleet", "key", "list"]) == 0
    capsys.readouterr()
    assert main(["fleet", "key", "list", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(item["key"], item["state"]) for item in told] == [
        (first.id, "retired"),
        (second.id, "active"),
    ]
    assert main(["fleet", "key", "retire", first.id, "--undo"]) == 0


def test_no_private_half_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["new"],
        ["list"],
        ["list", "-o", "json"],
        ["new", "-o", "yaml"],
        ["retire", "x"],
    ):
        main(["fleet", "key", *words])
    [first, second] = signing_keys.all_keys(home)
    main(["fleet", "key", "retire", first.id])
    (signing_keys.keys_folder(home) / f"{second.id}.key").write_text(
        "ed25519-private:" + private_halves(home)[0] + "x\n"
    )
    main(["fleet", "key", "list"])
    told = capsys.readouterr()
    for half in private_halves(home):
        assert half.rstrip("x") not in told.out + told.err


# -- what is planned


@pytest.fixture
def keys(home: Path) -> Signing:
    signing_keys.new(home)
    return signing_keys.load(home)


def planned(
    keys: Signing, there: WireManifest | None, *scores: Any, **said: Any
) -> tuple[str, int, str]:
    """What would be done, at which generation, and what is warned of."""
    actual = status(**said) if said else None
    made = plan(ApplyRequest(manifest(*scores), OURS, signing=keys), found(there, actual), device())
    assert not keys.keys or keys.problem(made.wire) == ""
    return made.action, made.wire.generation, " ".join(made.warnings)


def test_what_stands_is_written_again_only_where_it_is_not_signed_so(keys: Signing) -> None:
    right = keys.sign(wire(file()))
    assert planned(keys, None, file()) == ("create", 1, "")
    assert planned(keys, right, file()) == ("unchanged", 3, "")
    action, generation, told = planned(keys, wire(file()), file())
    assert (action, generation, "signed anew" in told) == ("update", 4, True)
    forged = wire(file()).model_copy(
        update={"signatures": keys.sign(wire(file(content="y"))).signatures}
    )
    assert planned(keys, forged, file())[:2] == ("update", 4)
    assert planned(keys, right, file(content="y")) == ("update", 4, "")
    refused = {"phase": "Rejected", "rejected": (3, "SignatureUnknownKey")}
    assert planned(keys, right, file(), **refused) == (
        "unchanged",
        3,
        "",
    )  # signing it again wouldn't help


def guarded(*ids: str, require: bool = True) -> Any:
    """A device that tells which keys it believes."""
    info = device().info
    assert info is not None
    told = info.model_copy(update={"trust": TrustInfo(require=require, keys=ids)})
    return type(device())("pi-01", told, NOW)


MOST = 2**53 - 1
FORGED: dict[str, dict[str, Any]] = {
    "unsigned": {},
    "another's generation and lineage": {"lineage": THEIRS},
    "with signatures of something else": {"signatures": "other"},
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_what_the_device_cannot_have_accepted_stands_in_nobody_s_way(
    keys: Signing, change: dict[str, Any]
) -> None:
    forged = wire(file(content="y"), generation=MOST, lineage=change.get("lineage", OURS))
    if "signatures" in change:
        forged = forged.model_copy(update={"signatures": keys.sign(wire(file())).signatures})
    there, own = (
        found(forged, status("Rejected", rejected=(MOST, "SignatureInvalid"))),
        keys.keys[0].id,
    )
    made = plan(ApplyRequest(manifest(file()), OURS, signing=keys), there, guarded(own))
    assert (made.wire.generation, made.revision, made.wire.lineage, made.wire.supersedes) == (
        4,
        7,
        OURS,
        None,
    )
    # where the device might have accepted it, or only another authority could say whether, it
    # counts
    assert (
        refusal(
            lambda: plan(
                ApplyRequest(manifest(file()), OURS, signing=keys),
                there,
                guarded(own, require=False),
            )
        )[1]
        == 3
    )
    assert (
        refusal(lambda: plan(ApplyRequest(manifest(file()), OURS, signing=keys), there, device()))[
            1
        ]
        == 3
    )
    theirs = found(
        WireManifest.model_validate({**forged.wire(), "signatures": [ROSTER.entry(forged.wire())]})
    )
    assert (
        refusal(
            lambda: plan(
                ApplyRequest(manifest(file()), OURS, signing=keys), theirs, guarded(own, ROSTER.id)
            )
        )[1]
        == 3
    )


def test_bytes_that_are_no_manifest_stand_in_nobody_s_way_either(keys: Signing) -> None:
    data = wire(file(), generation=MOST).canonical().replace(b'"path"', b'"parth"')
    unreadable = to_desired(Entry(DESIRED, "pi-01.web", data, 7, NOW))
    assert (unreadable.problem != "", unreadable.claimed) == (True, MOST)
    there = Deployment(KEY, unreadable, found(None, status()).actual)
    wish = ApplyRequest(manifest(file()), OURS, signing=keys)
    assert plan(wish, there, guarded(keys.keys[0].id)).wire.generation == 4
    assert refusal(lambda: plan(wish, there, device())) == ("DesiredUnreadable", 3)


def test_the_right_content_in_a_spelling_that_the_device_refuses_is_written_again(
    keys: Signing,
) -> None:
    right = keys.sign(wire(file()))
    for reason in ("GenerationReused", "SignatureInvalid", "NotCanonical"):
        assert planned(keys, right, file(), phase="Rejected", rejected=(3, reason))[:2] == (
            "update",
            4,
        )
        assert planned(keys, right, file(), phase="Rejected", rejected=(2, reason))[:2] == (
            "unchanged",
            3,
        )


def test_without_a_key_what_is_signed_stands_and_is_warned_of_when_it_changes(
    keys: Signing,
) -> None:
    right = keys.sign(wire(file()))
    assert planned(UNSIGNED, right, file()) == ("unchanged", 3, "")
    assert "no signing key here" in planned(UNSIGNED, right, file(content="y"))[2]


def test_a_forged_generation_that_a_device_refused_is_not_gone_on_from(keys: Signing) -> None:
    there = found(
        keys.sign(wire(file())), status("Rejected", rejected=(2**53 - 1, "SignatureInvalid"))
    )
    assert there.generation() == 3
    assert found(None, status("Rejected", rejected=(9, "Invalid"))).generation() == 9


def test_the_fleet_is_signed_and_what_is_not_is_named(keys: Signing) -> None:
    def differs(there: WireManifest, **said: Any) -> list[tuple[str, str]]:
        made = fleet(found(there, status(resources=RUNS, **said)))
        made = type(made)(made.roster, made.projections, made.deployments, made.devices, NOW, keys)
        return [(item.code, item.detail) for item in classify(made)]

    key = keys.keys[0].id
    assert differs(keys.sign(standing())) == []
    assert differs(standing()) == [("projection-differs", f"SignatureMissing {key}")]
    refused = {"phase": "Rejected", "rejected": (3, "SignatureUnknownKey")}
    assert differs(keys.sign(standing()), **refused) == [
        ("signature-refused", "SignatureUnknownKey")
    ]
    assert differs(standing(), phase="Rejected", rejected=(3, "SignatureMissing")) == [
        ("projection-differs", f"SignatureMissing {key}"),
        ("signature-refused", "SignatureMissing"),
    ]


def test_a_removal_that_stands_unsigned_is_written_again(keys: Signing) -> None:
    empty = fleet()
    roster = empty.roster.model_copy(update={"deployments": []})
    gone = Manifest(deployment="web", removed=True).bind("pi-01", OURS, 4)

    def actions(there: WireManifest, phase: Any, generation: int) -> tuple[list[str], int, int]:
        at = found(there, status(phase, generation=generation))
        made = plan_fleet(type(empty)(roster, {}, {at.key: at}, empty.devices, NOW, keys), Scope())
        return [item.action for item in made.plans], len(made.purges), len(made.removing)

    assert actions(gone, "Rejected", 3) == (["remove"], 0, 0)
    assert actions(keys.sign(gone), "Removing", 4) == ([], 0, 1)
    assert actions(keys.sign(gone), "Removed", 4) == ([], 1, 0)
    assert actions(gone, "Removed", 4) == ([], 1, 0)


def test_devices_that_trust_other_keys_are_named(home: Path, keys: Signing) -> None:
    def differs(*ids: str) -> list[str]:
        info = device().info
        assert info is not None
        told = info.model_copy(update={"trust": TrustInfo(require=True, keys=ids) if ids else None})
        made = fleet(
            found(keys.sign(standing()), status(resources=RUNS)),
            at=type(device())("pi-01", told, NOW),
        )
        made = type(made)(
            made.roster,
            made.projections,
            made.deployments,
            made.devices,
            NOW,
            signing_keys.load(home),
        )
        return [item.detail for item in classify(made) if item.code == "trust-differs"]

    old = keys.keys[0].id
    assert differs() == []
    assert differs(old) == []
    assert differs(old, ROSTER.id) == []  # somebody else's key is nobody's business here
    new = signing_keys.new(home).id
    assert differs(old) == [f"lacks {new}"]
    assert differs(old, new) == []
    signing_keys.turn(home, old, "retired")
    assert differs(old, new) == [f"still trusts {old}"]
    assert differs(new) == []


def test_trust_is_left_out_of_a_device_s_word_where_there_is_none() -> None:
    info = DeviceInfo(
        device="pi-01",
        labels={},
        agent_version="1",
        boot_id="b",
        os=OsInfo(id="debian", version_id="12", arch="aarch64", kernel="6"),
        kinds=["File"],
        capabilities=Capabilities(),
        trust=TrustInfo(require=True, keys=[ROSTER.id]),
    )
    assert info.wire()["trust"] == {"require": True, "keys": [ROSTER.id]}
    assert "trust" not in info.model_copy(update={"trust": None}).wire()


def test_a_device_that_would_refuse_it_is_not_written_to(home: Path, keys: Signing) -> None:
    def planned_at(signing: Signing, *ids: str, require: bool = True) -> str:
        info = device().info
        assert info is not None
        told = info.model_copy(update={"trust": TrustInfo(require=require, keys=ids)})
        made = plan(
            ApplyRequest(manifest(file()), OURS, signing=signing),
            found(),
            type(device())("pi-01", told, NOW),
        )
        return made.action

    ours = keys.keys[0].id
    assert planned_at(keys, ours) == planned_at(keys, ROSTER.id, ours) == "create"
    assert (
        planned_at(UNSIGNED, ours, require=False)
        == planned_at(keys, ROSTER.id, require=False)
        == "create"
    )
    assert refusal(lambda: planned_at(keys, ROSTER.id)) == ("SignatureUnknownKey", 5)
    assert refusal(lambda: planned_at(UNSIGNED, ours)) == ("SignatureMissing", 5)
