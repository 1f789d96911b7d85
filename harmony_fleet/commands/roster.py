"""`harmony fleet init`, `show`, `device`, `deployment` and `schedule`: the roster is read and changed.
None of it needs NATS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harmony_fleet.commands.common import Common, note, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.manifests.load import drafts
from harmony_fleet.observe.state import check_name, parse_selectors
from harmony_fleet.output import fleet_tables, render
from harmony_fleet.output.render import Output
from harmony_fleet.roster.edit import UNSET, Edit, Section, add, change, remove
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.model import Roster
from harmony_fleet.roster.projection import project
from harmony_fleet.roster.sources import kept_name, load_scores, load_sources, scores_digest
from harmony_fleet.storage import names as kept

_HIDDEN: Final = frozenset({"variables", "scores"})
Values = dict[tuple[str, ...], Any]


def roster_file(common: Common) -> RosterFile:
    """The roster of this operator's home. The shell completes the names that were read last."""
    home = common.context().home

    def seen(roster: Roster) -> None:
        devices = [item.name for item in roster.devices]
        deployments = [item.name for item in roster.deployments]
        kept.remember_roster(home, {"devices": devices, "deployments": deployments})

    return RosterFile(home, seen)


def init(common: Common) -> ExitCode:
    """`harmony fleet init`."""
    file = roster_file(common)
    roster = file.create()
    told = {"roster": str(file.path), "lineage": roster.lineage, "generation": roster.generation}
    if common.output is Output.TABLE:
        note(f"made {file.path} at generation 1; its first devices: harmony fleet device add NAME… --class CLASS "
             "--generation 1")  # fmt: skip
    else:
        write(told, common.output)
    return ExitCode.DONE


def show(common: Common) -> ExitCode:
    """`harmony fleet show`: what the roster says. Variables and inline Scores stay out of it."""
    roster = roster_file(common).read()
    if common.output is Output.TABLE:
        fleet_tables.roster_table(roster, render.out())
        return ExitCode.DONE
    told = roster.wire()
    for section in ("devices", "deployments", "schedules"):
        told[section] = [
            {name: value for name, value in item.items() if name not in _HIDDEN}
            for item in told.get(section, [])
        ]
    write(told, common.output)
    return ExitCode.DONE


def add_items(
    common: Common,
    section: Section,
    names: Sequence[str],
    item: Mapping[str, Any],
    generation: int | None,
) -> ExitCode:
    """Items that differ in their name alone."""
    for name in names:
        check_name(section.removesuffix("s"), name)
    return _mutate(common, add(section, [{"name": name, **item} for name in names]), generation)


def set_items(
    common: Common, section: Section, names: Sequence[str], values: Values, generation: int | None
) -> ExitCode:
    """The same values on each; `UNSET` takes one away."""
    if not values:
        raise InvalidInput(
            "NothingToSet", "cannot change the roster: nothing to set was given", "see --help"
        )
    return _mutate(common, change(section, names, values), generation)


def remove_items(
    common: Common, section: Section, names: Sequence[str], generation: int | None
) -> ExitCode:
    """Take them out; apply then takes off the devices what they stood for."""
    return _mutate(common, remove(section, names), generation)


def _mutate(common: Common, edit: Edit, generation: int | None) -> ExitCode:
    file = roster_file(common)
    roster, changed = file.mutate(generation, edit, _projects(file))
    if common.output is not Output.TABLE:
        write({"generation": roster.generation, "changed": changed}, common.output)
    elif changed:
        note(
            f"the roster is at generation {roster.generation}; harmony fleet apply brings it to the devices"
        )
    else:
        note(f"nothing changed: the roster stays at generation {roster.generation}")
    return ExitCode.DONE


def _projects(file: RosterFile) -> Callable[[Roster], None]:
    """A roster from which nothing could be projected is never written."""

    def check(roster: Roster) -> None:
        project(roster, load_sources(roster, file.folder).scores)

    return check


def source(common: Common, name: str, *, inline: bool) -> dict[str, Any]:
    """A file of Scores as a deployment keeps it: by name and digest, or as it is."""
    path = Path(name)
    if path.suffix != ".py":  # which is a program, and runs once
        for draft in drafts(name, "list"):
            draft.check({})
    scores = load_scores(path)
    if inline:
        return {"scores": list(scores)}
    return {"file": kept_name(path, roster_file(common).folder), "digest": scores_digest(scores)}


def selector(device_class: str | None, selectors: Sequence[str]) -> dict[str, Any]:
    """``--class`` and ``--select`` as the roster keeps them."""
    labels = parse_selectors(selectors)
    return ({"class": device_class} if device_class else {}) | (
        {"labels": labels} if labels else {}
    )


def unset(section: str, names: Sequence[str]) -> Values:
    """These keys of a map go."""
    return {(section, name): UNSET for name in names}


def nested(section: str, values: Mapping[str, Any]) -> Values:
    """These keys of a map are set."""
    return {(section, name): value for name, value in values.items()}


def flat(values: Mapping[str, Any]) -> Values:
    """Return the fields that were given."""
    return {(name,): value for name, value in values.items() if value is not None}


def selection(
    device_class: str | None, any_class: bool, select: list[str], no_select: list[str]
) -> Values:
    """Return the changes of a selector, as paths and values."""
    values: Values = {("select", "labels", name): UNSET for name in no_select}
    values |= {("select", "labels", name): value for name, value in parse_selectors(select).items()}
    if any_class or device_class:
        values["select", "class"] = device_class or UNSET
    return values
