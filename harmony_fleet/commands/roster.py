"""`harmony fleet init`, `show`, `device`, `deployment` and `schedule`: the roster is read and changed.
None of it needs NATS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harmony_fleet.commands.common import Common, note, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.observe.state import (
    check_name,
)
from harmony_fleet.output import fleet_tables, render
from harmony_fleet.output.render import Output
from harmony_fleet.roster.edit import Edit, Section, add, change, remove
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.lineage import home_lineage
from harmony_fleet.roster.model import Roster
from harmony_fleet.roster.projection import project
from harmony_fleet.roster.sources import load_sources
from harmony_fleet.roster.views import VIEWS
from harmony_fleet.storage import names as kept

_HIDDEN: Final = frozenset({"variables", "scores", "overrides"})
Values = dict[tuple[str, ...], Any]


def roster_file(common: Common) -> RosterFile:
    """The roster of this operator's home. The shell completes the names that were read last."""
    home = common.home()

    def seen(roster: Roster) -> None:
        devices = [item.name for item in roster.devices]
        deployments = [item.name for item in roster.deployments]
        kept.remember_roster(home, {"devices": devices, "deployments": deployments})

    return RosterFile(home, seen)


def not_there(name: str, section: str) -> InvalidInput:
    """The error for an item that the roster hasn't."""
    return InvalidInput(
        "NotFound",
        f"cannot find {name} in the roster's {section}",
        f"see what there is with: harmony fleet {section.removesuffix('s')} list",
    )


def init(common: Common) -> ExitCode:
    """`harmony fleet init`."""
    file = roster_file(common)
    roster = file.create(home_lineage(common.home()))
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
    return mutate(common, add(section, [{"name": name, **item} for name in names]), generation)


def set_items(
    common: Common, section: Section, names: Sequence[str], values: Values, generation: int | None
) -> ExitCode:
    """The same values on each; `UNSET` takes one away."""
    if not values:
        raise InvalidInput(
            "NothingToSet", "cannot change the roster: nothing to set was given", "see --help"
        )
    return mutate(common, change(section, names, values), generation)


def remove_items(
    common: Common, section: Section, names: Sequence[str], generation: int | None
) -> ExitCode:
    """Take them out; apply then takes off the devices what they stood for."""
    return mutate(common, remove(section, names), generation)


def list_items(common: Common, section: Section) -> ExitCode:
    """`harmony fleet device|deployment|schedule list`."""
    roster = roster_file(common).read()
    found = [VIEWS[section](roster, item) for item in getattr(roster, section)]
    if common.output is not Output.TABLE:
        write(found, common.output)
    elif found:
        fleet_tables.items_table(found, render.out(), wide=common.wide)
    else:
        note(f"no {section} in the roster yet: harmony fleet {section.removesuffix('s')} add")
    return ExitCode.DONE


def show_item(common: Common, section: Section, name: str) -> ExitCode:
    """`harmony fleet device|deployment|schedule show`."""
    roster = roster_file(common).read()
    item = next((one for one in getattr(roster, section) if one.name == name), None)
    if item is None:
        raise not_there(name, section)
    told = VIEWS[section](roster, item)
    write(told, Output.YAML if common.output is Output.TABLE else common.output)
    return ExitCode.DONE


def mutate(common: Common, edit: Edit, generation: int | None) -> ExitCode:
    """Change the roster by one generation, unless nothing could be projected from it then."""
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
