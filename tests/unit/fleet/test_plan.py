"""What one apply would do: generations, authority, guards. Tables."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_fleet.errors import Conflict, ExitCode, HarmonyError, InvalidInput
from harmony_fleet.observe.state import Actual, Deployment, Desired, Device
from harmony_fleet.rollout.guards import MAX_JUMP
from harmony_fleet.rollout.plan import ApplyRequest, Plan, plan
from scores import Manifest, Session, SystemdUnit, SystemUpgrade
from scores.names import MAX_GENERATION
from scores.status import UpdaterInfo
from tests.unit.fleet.build import (
    KEY,
    OURS,
    THEIRS,
    THIRD,
    container,
    device,
    file,
    files,
    found,
    manifest,
    resource,
    status,
    wire,
)


def planned(wanted: Manifest, there: Deployment, at: Device | None = None, **wish: Any) -> Plan:
    return plan(ApplyRequest(wanted, wish.pop("lineage", OURS), **wish), there, at or device())


def refused(
    wanted: Manifest, there: Deployment, at: Device | None = None, **wish: Any
) -> HarmonyError:
    with pytest.raises(HarmonyError) as caught:
        planned(wanted, there, at, **wish)
    assert caught.value.hint
    return caught.value


def test_the_first_generation_must_not_exist() -> None:
    made = planned(manifest(file()), found())
    assert (made.action, made.wire.generation, made.revision, made.wire.lineage) == (
        "create",
        1,
        0,
        OURS,
    )
    assert [(change.key, change.how) for change in made.changes] == [("File/a", "added")]
    assert made.warnings == ()


@pytest.mark.parametrize(
    ("desired", "actual", "generation"),
    [
        (3, None, 4),
        (None, status(generation=5), 6),
        (3, status(generation=5), 6),
        (7, status(generation=5), 8),
        (None, status("Removed", generation=5), 6),
        (3, status("Rejected", generation=3, rejected=(9, "Invalid")), 10),
        (None, status("Rejected", generation=None, lineage=None, rejected=(4, "Invalid")), 5),
        (3, status("Rejected", generation=3, rejected=(None, "NotJson")), 4),
    ],
)
def test_one_more_than_the_highest_shown(desired: int | None, actual: Any, generation: int) -> None:
    there = found(wire(file(), generation=desired) if desired else None, actual)
    made = planned(manifest(file("b"), file()), there)
    assert made.wire.generation == generation
    assert made.revision == (7 if desired else 0)
    assert made.answered == (9 if actual else 0)


def test_the_same_content_is_not_written_again() -> None:
    made = planned(manifest(file()), found(wire(file()), status()))
    assert (made.action, made.wire.generation, made.changes) == ("unchanged", 3, ())


@pytest.mark.parametrize(
    ("there", "wish"),
    [
        (found(wire(generation=3, removed=True), status()), {}),
        (found(wire(file()), status(generation=4)), {}),  # an older one was restored
        (found(wire(file()), status("Rejected", rejected=(5, "Invalid"))), {}),
        (
            found(wire(file()), status("Held", generation=2, rejected=(3, "PruneGuard"))),
            {"allow_prune": 4},
        ),
        (
            found(wire(file()), status("Fenced", lineage=THEIRS, rejected=(3, "LineageChanged"))),
            {"take_over": True},
        ),
    ],
)
def test_the_same_content_is_written_again_where_that_helps(
    there: Deployment, wish: dict[str, Any]
) -> None:
    assert planned(manifest(file()), there, **wish).action != "unchanged"


def test_a_refusal_alone_does_not_write_the_same_again() -> None:
    there = found(wire(file()), status("Rejected", generation=2, rejected=(3, "KindNotAllowed")))
    assert planned(manifest(file()), there).action == "unchanged"


@pytest.mark.parametrize(
    "there",
    [
        found(wire(file(), lineage=THEIRS)),
        found(None, status(lineage=THEIRS)),
        found(wire(file(), lineage=THEIRS), status(lineage=THEIRS)),
        found(wire(file(), lineage=THEIRS), status()),
        found(wire(file()), status(lineage=THEIRS)),
        found(wire(file(), supersedes=THIRD), status(lineage=THEIRS)),
    ],
)
def test_another_lineage_needs_consent(there: Deployment) -> None:
    error = refused(manifest(file("b"), file()), there)
    assert (error.code, error.exit_code) == ("LineageChanged", ExitCode.STALE)
    assert "--take-over" in error.hint
    assert THEIRS in error.message


@pytest.mark.parametrize(
    ("there", "supersedes"),
    [
        (found(wire(file(), lineage=THEIRS)), THEIRS),
        (found(None, status(lineage=THEIRS)), THEIRS),
        (
            found(wire(file(), lineage=THEIRS), status(lineage=THIRD)),
            THIRD,
        ),  # what the device enforces counts
        (found(wire(file(), lineage=THEIRS), status(lineage=OURS)), None),
    ],
)
def test_taking_over_supersedes_what_the_device_enforces(
    there: Deployment, supersedes: str | None
) -> None:
    assert planned(manifest(file("b"), file()), there, take_over=True).wire.supersedes == supersedes


def test_a_take_over_stays_until_the_device_followed() -> None:
    there = found(wire(file(), supersedes=THEIRS), status(lineage=THEIRS, generation=2))
    assert planned(manifest(file("b"), file()), there).wire.supersedes == THEIRS
    there = found(wire(file(), supersedes=THEIRS), status())
    assert planned(manifest(file("b"), file()), there).wire.supersedes is None


def test_the_file_s_word_is_consent_to_that_lineage_alone() -> None:
    there = found(wire(file(), lineage=THEIRS))
    assert planned(manifest(file(), supersedes=THEIRS), there).wire.supersedes == THEIRS
    assert refused(manifest(file(), supersedes=THIRD), there).code == "LineageChanged"


def test_nothing_is_left_of_a_removed_deployment_of_others() -> None:
    made = planned(manifest(file()), found(None, status("Removed", lineage=THEIRS)))
    assert (made.action, made.wire.supersedes, made.wire.generation) == ("create", THEIRS, 4)


@pytest.mark.parametrize(
    ("wanted", "kind", "code"),
    [
        (manifest(file(), device="pi-02"), InvalidInput, "DeviceMismatch"),
        (manifest(file(), lineage=THEIRS), Conflict, "LineageMismatch"),
        (manifest(file(), generation=7), Conflict, "GenerationMismatch"),
        (manifest(file("b"), generation=3), Conflict, "GenerationMismatch"),
    ],
)
def test_a_file_is_held_to_what_it_carries(
    wanted: Manifest, kind: type[HarmonyError], code: str
) -> None:
    error = refused(wanted, found(wire(file())))
    assert isinstance(error, kind)
    assert error.code == code


def test_a_file_that_carries_the_truth() -> None:
    there = found(wire(file()))
    assert (
        planned(manifest(file(), device="pi-01", lineage=OURS, generation=3), there).action
        == "unchanged"
    )
    assert planned(manifest(file("b"), file(), generation=4), there).wire.generation == 4


def test_no_generation_is_left() -> None:
    there = found(None, status("Rejected", rejected=(MAX_GENERATION, "Invalid")))
    error = refused(manifest(file()), there, follow=True)
    assert (error.code, error.alone) == ("GenerationExhausted", True)


@pytest.mark.parametrize("standing", [0, 3])
@pytest.mark.parametrize("rejected", [False, True])
def test_a_leap_of_a_device_is_not_followed_without_a_word(standing: int, rejected: bool) -> None:
    def there(generation: int) -> Deployment:
        desired = wire(file(), generation=standing) if standing else None
        if rejected:
            return found(
                desired,
                status("Rejected", generation=None, lineage=None, rejected=(generation, "Invalid")),
            )
        return found(desired, status(generation=generation))

    assert (
        planned(manifest(file("b"), file()), there(standing + MAX_JUMP)).wire.generation
        == standing + MAX_JUMP + 1
    )
    for generation in (standing + MAX_JUMP + 1, MAX_GENERATION - 1, MAX_GENERATION):
        for wanted in (manifest(file()), manifest(file("b"), file())):
            error = refused(wanted, there(generation), take_over=True)
            assert (error.code, error.alone, error.exit_code) == (
                "ImplausibleGeneration",
                True,
                ExitCode.NOT_CONVERGED,
            )
            assert "--follow-generation" in error.hint
    made = planned(manifest(file("b"), file()), there(MAX_GENERATION - 1), follow=True)
    assert made.wire.generation == MAX_GENERATION


def test_what_rests_on_a_device_s_word_is_its_own() -> None:
    """And what others wrote isn't."""
    unit = SystemdUnit(name="a.service")
    many = status(resources={f"File/{name}": resource() for name in "abcdefgh"})
    assert refused(manifest(file()), found(wire(file(), lineage=THEIRS))).alone is False
    assert refused(manifest(file()), found(wire(file()), status(lineage=THEIRS))).alone is True
    assert refused(manifest(file()), found(None, status(lineage=THEIRS))).alone is True
    assert refused(manifest(unit), found(), device(("File",))).alone is True
    assert refused(manifest(file()), found(wire(*files("a", "b", "c")))).alone is False
    assert refused(manifest(file("z")), found(wire(file()), many)).alone is True


def test_what_cannot_be_read_is_not_written_over() -> None:
    broken = Deployment(KEY, Desired(revision=7, problem="NotJson", claimed=4), Actual())
    assert refused(manifest(file()), broken).code == "DesiredUnreadable"
    made = planned(manifest(file()), broken, take_over=True)
    assert (made.wire.generation, made.revision, made.action) == (5, 7, "update")
    unknown = Deployment(KEY, Desired(), Actual(revision=9, problem="UnknownField"))
    error = refused(manifest(file()), unknown, take_over=True)
    assert (error.code, error.alone, error.exit_code) == (
        "Unreadable",
        True,
        ExitCode.NOT_CONVERGED,
    )


def test_kinds_and_capabilities() -> None:
    unit, c = SystemdUnit(name="a.service"), container()
    error = refused(manifest(file(), unit, c), found(), device(("File",)))
    assert (error.code, error.exit_code) == ("KindNotAllowed", ExitCode.REFUSED)
    assert [(item.field, item.code) for item in error.errors] == [
        ("scores[1].kind", "KindNotAllowed"),
        ("scores[2].kind", "KindNotAllowed"),
    ]
    assert refused(manifest(unit), found(), device(systemd=None)).code == "MissingCapability"
    assert "podman" in refused(manifest(c), found(), device(podman=None)).message
    terminal = Session(name="worker", command=["/usr/bin/top"])
    assert "tmux" in refused(manifest(terminal), found(), device(("Session",))).message
    upgrade = SystemUpgrade(
        name="u", attempt_id="a", run_uid="r", expires_at="2026-11-29T18:00:00Z"
    )
    able = ("SystemUpgrade",)
    assert refused(manifest(upgrade), found(), device(able)).code == "MissingCapability"
    assert (
        refused(
            manifest(upgrade), found(), device(able, updater=UpdaterInfo(protocol=1, operations=[]))
        ).exit_code
        == 5
    )
    updater = UpdaterInfo(protocol=1, operations=["AptFullUpgradeV1"])
    assert planned(manifest(upgrade), found(), device(able, updater=updater)).action == "create"


def test_an_unknown_device_is_warned_of() -> None:
    made = planned(manifest(file()), found(), device(known=False))
    assert made.action == "create"
    assert "pi-01" in made.warnings[0]


@pytest.mark.parametrize(
    ("owned", "kept", "allow", "passes"),
    [
        ("abcd", "ab", None, True),  # half of them
        ("abcd", "a", None, False),
        ("abcd", "", None, False),
        ("abcd", "a", 2, False),
        ("abcd", "a", 3, True),
        ("ab", "", None, False),
        ("a", "", None, True),  # one alone
        ("ab", "a", None, True),
        ("abcd", "xyzw", None, False),
    ],
)
def test_prune_guard(owned: str, kept: str, allow: int | None, passes: bool) -> None:
    there = found(wire(*files(*owned)))
    wanted = manifest(*files(*kept))
    if passes:
        assert planned(wanted, there, allow_prune=allow).wire.allow_prune == allow
        return
    error = refused(wanted, there, allow_prune=allow)
    going = len(set(owned) - set(kept))
    assert (error.code, error.exit_code) == ("PruneGuard", ExitCode.REFUSED)
    assert f"--allow-prune {going}" in error.hint
    assert "File/d" in error.message or going < 3


def test_what_the_device_owns_counts_before_what_is_desired() -> None:
    device_has = {f"File/{name}": resource() for name in "abcd"}
    there = found(wire(file("a"), generation=4), status(resources=device_has))
    assert refused(manifest(file("a"), file("e")), there).code == "PruneGuard"
    gone = found(wire(*files("a", "b", "c")), status("Removed"))
    assert refused(manifest(), gone).code == "PruneGuard"


def test_a_generation_that_the_device_has_not_answered_for_counts_unless_it_was_refused() -> None:
    small, large = status(resources={"File/a": resource()}), wire(*files(*"abcd"), generation=4)
    assert refused(manifest(), found(large, small)).code == "PruneGuard"
    held = small.model_copy(update={"rejected": status(rejected=(4, "Invalid")).rejected})
    assert planned(manifest(), found(large, held)).action == "update"


def test_orphans_are_not_pruned_and_removal_is_no_prune() -> None:
    left = [file(name, on_remove="orphan") for name in "abc"]
    assert planned(manifest(), found(wire(*left))).action == "update"
    made = planned(manifest(removed=True), found(wire(*files("a", "b", "c"))))
    assert (made.action, made.wire.removed, made.wire.scores) == ("remove", True, [])


def test_the_flag_is_before_the_file() -> None:
    there = found(wire(*files("a", "b", "c")))
    assert planned(manifest(allow_prune=3), there).wire.allow_prune == 3
    assert refused(manifest(allow_prune=3), there, allow_prune=1).code == "PruneGuard"
