"""Facts of a unit in the ledger, as JSON and typed. Digests, states and names; never content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace

from harmony_agent.core.changes import first_token
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.topology.units import RUNNING, Unit
from scores.canonical import canonical, digest
from scores.systemd_unit import SystemdUnit

OTHER_FILES = "other"
"""Stands in `UnitFacts.started` for files that nobody wants."""


@frozen()
class PreviousState:
    """Previous state of the unit, for its removal."""

    active: bool = False
    file_state: str = ""
    fragment: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Place -> what stood there, for the places that we overwrote."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Its `Unit.links`, path -> target."""
    started: str = ""
    """The files that it ran with, where those were the wanted ones already; see
    `UnitFacts.started`.
    """
    boot: str = ""
    """The boot in which that was: links that last until the next one are put back in the same one
    only.
    """


@frozen()
class UnitFacts:
    """`started`, `restart` and `reload` say for which files and tokens the unit was last started or
    reloaded.

    `started` is "" where nothing of it was to run: it is to be started, unless it runs already and
    as wanted. They are noted before the deed, with the run that was there then (`run`, and for a
    reload `changed`): as long as that very run is still there, the deed wasn't done.
    """

    started: str = ""
    restart: str = ""
    reload: str = ""
    run: str = ""
    changed: int = 0
    moment: str = ""
    """Journal cursor of that note. The log tells the end of a one-shot since then."""
    completed: bool = False
    """A one-shot ended well since it was last started by us."""
    touched: tuple[str, ...] = ()
    """Fields that some spec of ours has set: what removal has to put back."""
    former: PreviousState = field(default_factory=PreviousState)
    released: bool = False
    """Everything was put back; only the record itself is left."""


def read(record: OwnershipRecord | None) -> UnitFacts:
    """The facts in a record; unknown keys of another version are left out."""
    raw = dict(record.facts) if record is not None else {}
    former = {
        key: value
        for key, value in dict(raw.get("former") or {}).items()
        if key in PreviousState.__dataclass_fields__
    }
    known = {key: value for key, value in raw.items() if key in UnitFacts.__dataclass_fields__}
    return UnitFacts(
        **{**known, "touched": tuple(raw.get("touched", ())), "former": PreviousState(**former)}
    )


def write(facts: UnitFacts) -> Facts:
    """The facts that `read` reads."""
    return asdict(facts)


def wanted_files(spec: SystemdUnit) -> dict[str, str]:
    """Place -> content of every file that the spec asks for."""
    files = {f"{spec.name}.d/{dropin}": text for dropin, text in spec.dropins.items()}
    return files if spec.content is None else {spec.name: spec.content, **files}


def digest_of(content: str) -> str:
    """Digest that `Unit.files` shows for a file of that content."""
    return digest(content.encode())


def files_token(spec: SystemdUnit) -> str:
    """Stands for all of a spec that takes effect by a restart only."""
    return digest(canonical([spec.content, dict(spec.dropins)]))


def places(directory: str, name: str, record: OwnershipRecord | None) -> frozenset[str]:
    """The places of the unit directory that are ours by the record's claims."""
    start = f"path:{directory}/"
    claims = record.claims if record is not None else frozenset[str]()
    found = (claim.removeprefix(start) for claim in claims if claim.startswith(start))
    return frozenset(place for place in found if place == name or place.startswith(f"{name}.d/"))


def as_wanted(spec: SystemdUnit, unit: Unit, directory: str) -> bool:
    """Return whether every file of `spec` is in place and loaded, so that what runs now may be what
    is wanted.
    """
    files = wanted_files(spec)
    same = all(unit.files.get(place) == digest_of(text) for place, text in files.items())
    return same and not unit.stale and loaded(unit, frozenset(files), directory)


def loaded(unit: Unit, wanted: frozenset[str], directory: str) -> bool:
    """Return whether the manager has loaded the files at `wanted`.

    Not to be asked of a template, which is never loaded.
    """
    dropins = {f"{directory}/{place}" for place in wanted if place != unit.name}
    if unit.name in wanted and unit.fragment != f"{directory}/{unit.name}":
        return False
    return unit.load_state == "not-found" or dropins <= set(unit.loaded_dropins)


def at_claim(
    old: OwnershipRecord | None,
    desired: Desired[SystemdUnit],
    observed: Unit | None,
    directory: str,
    boot: str,
) -> UnitFacts:
    """The facts to record when the spec of `desired` is claimed, before anything is done for it.

    What is as wanted already is ours by the first claim alone. With `adopt`, or at a place that
    comes to a unit of ours later, it is put back in the end as well: it isn't of our making.
    """
    spec = desired.spec
    unit = observed or Unit(spec.name)
    known = old is not None and bool(old.facts)
    facts = read(old) if known else _first(desired, unit, directory, boot)
    ours = places(directory, spec.name, old)
    formers = dict(facts.former.files)
    for place, text in wanted_files(spec).items():
        if place in ours:
            continue
        stands = unit.files.get(place, "")
        formers.pop(place, None)
        if stands and (known or spec.adopt or stands != digest_of(text)):
            formers[place] = stands
    if spec.masked and spec.name not in ours:
        formers.pop(spec.name, None)
        if unit.files.get(spec.name):
            formers[spec.name] = unit.files[spec.name]
    touched = _touched(spec, unit)
    former = facts.former
    if known and spec.name not in ours:
        as_was = not ours and as_wanted(spec, unit, directory)
        former = _by_hand(facts, touched, unit, files_token(spec) if as_was else "", boot)
    started = "" if spec.wanted_state == "stopped" else facts.started
    if not started and unit.active_state in RUNNING and as_wanted(spec, unit, directory):
        started = files_token(spec)  # it was started since, and with these files
    return replace(
        facts,
        released=False,
        started=started,
        touched=tuple(sorted({*facts.touched, *touched})),
        former=replace(former, files=formers),
        restart=first_token(facts.restart, desired.restart_token),
        reload=first_token(facts.reload, desired.reload_token),
    )


def _by_hand(
    facts: UnitFacts, touched: set[str], unit: Unit, files: str, boot: str
) -> PreviousState:
    """The previous state, as it is now in what no spec had a say in until now: somebody may have
    changed it since. `files` are those that it runs with, where they are of before us.
    """
    former, links = facts.former, {"enabled", "masked"}
    if "state" in touched and "state" not in facts.touched:
        active = unit.active_state in RUNNING
        former = replace(
            former,
            active=active or unit.active_state == "activating",
            started=files if active else "",
        )
    if links & touched and not links & {*facts.touched}:
        former = replace(former, file_state=unit.unit_file_state, links=dict(unit.links), boot=boot)
    return former


def _first(desired: Desired[SystemdUnit], unit: Unit, directory: str, boot: str) -> UnitFacts:
    """Of a unit that was never ours."""
    active = unit.active_state in RUNNING
    own = unit.fragment == f"{directory}/{unit.name}"
    spec = desired.spec
    if (
        own
        and not spec.adopt
        and spec.content
        and unit.files.get(unit.name) == digest_of(spec.content)
    ):
        # It is as wanted and from now on ours: it goes with its links, as if we had made it.
        return UnitFacts(
            started="" if as_wanted(spec, unit, directory) or not active else OTHER_FILES
        )
    return UnitFacts(
        started=OTHER_FILES if active and not as_wanted(desired.spec, unit, directory) else "",
        former=PreviousState(
            active=active or unit.active_state == "activating",
            file_state=unit.unit_file_state,
            fragment="" if own else unit.fragment,
            links=dict(unit.links),
            started=files_token(spec) if active and as_wanted(spec, unit, directory) else "",
            boot=boot,
        ),
    )


def minds_mask(spec: SystemdUnit) -> bool:
    """Return whether a mask is against what the spec says."""
    return (
        "masked" in spec.model_fields_set or spec.wanted_state == "running" or spec.enabled is True
    )


def _touched(spec: SystemdUnit, unit: Unit) -> set[str]:
    """The fields of `spec` whose effect outlives it; a mask that it takes away counts though it
    names none.
    """
    unmasks = "masked" in unit.unit_file_state and minds_mask(spec)
    touched = {"masked"} if unmasks or spec.masked or "masked" in spec.model_fields_set else set()
    touched |= {"enabled"} if spec.enabled is not None else set()
    return touched | ({"state"} if spec.wanted_state != "none" else set())
