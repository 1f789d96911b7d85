"""`harmony fleet adopt`: what was applied by hand becomes the roster's, as it stands.

Its Scores go into a file beside the roster, then the roster names it. Nothing that stands is
written: the next apply notes there that it is the roster's, at the generation that it has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harmony_fleet.commands.common import Common, note, run, write
from harmony_fleet.commands.roster import roster_file
from harmony_fleet.commands.roster_values import selector
from harmony_fleet.errors import ExitCode, InvalidInput, Refused
from harmony_fleet.manifests.read_yaml import read_yaml
from harmony_fleet.manifests.shared import content_of
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Deployment, check_place, read_deployments
from harmony_fleet.output import render
from harmony_fleet.output.render import Output
from harmony_fleet.roster.edit import add
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.lineage import home_lineage
from harmony_fleet.roster.model import Roster, Selector, exactly
from harmony_fleet.roster.projection import project
from harmony_fleet.roster.sources import load_sources, scores_digest
from harmony_fleet.storage.regular import read_regular
from scores.keys import DeploymentKey
from scores.manifest import MAX_MANIFEST, WireManifest

Standing = Mapping[DeploymentKey, WireManifest]


@dataclass(frozen=True, slots=True)
class Choice:
    """Devices that the new deployments shall select (None: found by itself), and the fence."""

    device_class: str | None = None
    selectors: Sequence[str] = ()
    generation: int | None = None

    def selector(self) -> Selector | None:
        """The selector that was given."""
        given = selector(self.device_class, self.selectors)
        return Selector.model_validate(given) if given else None


def adopt(common: Common, places: Sequence[str], choice: Choice) -> ExitCode:
    """`harmony fleet adopt`."""
    keys = sorted({check_place(place) for place in places})
    file, own = roster_file(common), choice.selector()

    async def work(store: Store) -> ExitCode:
        roster = file.read()
        lineages = {roster.lineage, home_lineage(common.home())}
        managed = roster.manages(keys)
        there = [key for key in keys if key not in managed]
        standing = {
            found.key: _manifest(roster, found, lineages)
            for found in await read_deployments(store, there)
        }
        items = [
            _item(file, roster, name, _of(standing, name), own)
            for name in sorted({key.deployment for key in standing})
        ]
        if items:
            edit = add("deployments", items)
            roster, _ = file.mutate(choice.generation, edit, _unchanged(file, standing))
        _tell(common, roster, items, standing)
        return ExitCode.DONE

    return run(common, work)


def _of(standing: Standing, name: str) -> dict[str, WireManifest]:
    return {key.device: wire for key, wire in standing.items() if key.deployment == name}


def _manifest(roster: Roster, found: Deployment, lineages: set[str]) -> WireManifest:
    """The manifest that stands, where it may be adopted. Raises InvalidInput, Refused."""
    key, wire = found.key, found.desired.manifest
    if roster.device(key.device) is None:
        raise Refused(
            "NotInRoster",
            f"cannot adopt {key}: {key.device} isn't in the roster",
            f"first: harmony fleet device add {key.device} --class CLASS",
        )
    if any(one.name == key.deployment for one in roster.deployments):
        raise Refused(
            "AlreadyThere",
            f"cannot adopt {key}: the roster has another {key.deployment}, which isn't for {key.device}",
            f"have it select {key.device}, too: harmony fleet deployment set {key.deployment}",
        )
    if wire is None or wire.removed:
        raise InvalidInput(
            "NothingDesired",
            f"cannot adopt {key}: no manifest that can be read stands there",
            "see what does: harmony get",
        )
    if wire.lineage not in lineages:
        raise Refused(
            "LineageChanged",
            f"cannot adopt {key}: it belongs to lineage {wire.lineage}, which isn't this home's",
            "ask whose it is; what its owner deletes can be applied here",
        )
    return wire


def _item(
    file: RosterFile,
    roster: Roster,
    name: str,
    standing: Mapping[str, WireManifest],
    own: Selector | None,
) -> dict[str, Any]:
    """The roster's new deployment; its file is written."""
    wire = next(iter(standing.values()))
    if any(content_of(other) != content_of(wire) for other in standing.values()):
        raise Refused(
            "ContentDiffers",
            f"cannot adopt {name}: it isn't the same on {', '.join(standing)}",
            "make it the same first, with harmony apply; or adopt that of one device",
        )
    select = exactly(roster.devices, set(standing), own)
    if select is None:
        raise Refused(
            "SelectsOthers",
            f"cannot adopt {name}: {'that' if own else 'no class and no label'} selects "
            f"{', '.join(standing)} and no other device",
            f"give them a label: harmony fleet device set {' '.join(standing)} --label runs={name}; then adopt again",
        )
    scores = [score.wire() for score in wire.scores]
    chosen = select.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    item = {"name": name, **({"select": chosen} if chosen else {})}
    return {**item, "file": _put(file, name, scores), "digest": scores_digest(scores)}


def _put(file: RosterFile, name: str, scores: list[dict[str, Any]]) -> str:
    """Write the Scores beside the roster; the file's name."""
    kept, data = _form(name, scores)
    path = file.folder / kept
    if path.exists() and _read(path) != data:
        raise Refused(
            "FileExists",
            f"cannot adopt {name}: {path} is there and says something else",
            "move it away",
        )
    file.put(kept, data)
    return kept


def _form(name: str, scores: list[dict[str, Any]]) -> tuple[str, bytes]:
    """A file's name and its bytes: YAML, or JSON where YAML wouldn't say exactly the same."""
    data = f"{render.machine(scores, Output.YAML)}\n".encode()
    with contextlib.suppress(InvalidInput):
        if read_yaml(data, name) == [scores]:
            return f"{name}.yaml", data
    return f"{name}.json", f"{render.machine(scores, Output.JSON)}\n".encode()


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, 8 * MAX_MANIFEST)
    except OSError as error:
        raise InvalidInput(
            "FileUnreadable", f"cannot read {path}: {error.strerror}", "see what is there"
        ) from None


def _unchanged(file: RosterFile, standing: Standing) -> Callable[[Roster], None]:
    """A roster that would make something else of it is never written."""

    def check(roster: Roster) -> None:
        made = project(roster, load_sources(roster, file.folder).scores)
        for key, wire in standing.items():
            if content_of(made[key].manifest) != content_of(wire):
                raise Refused(
                    "ContentDiffers",
                    f"cannot adopt {key}: the roster would change it, for it has {key.device} stopped, disabled or "
                    "overridden",
                    f"first: harmony fleet device set {key.device} --enable --desired-state running",
                )

    return check


def _tell(
    common: Common, roster: Roster, items: Sequence[Mapping[str, Any]], standing: Standing
) -> None:
    if common.output is not Output.TABLE:
        adopted = [
            {"device": key.device, "deployment": key.deployment, "generation": wire.generation}
            for key, wire in standing.items()
        ]
        files = {item["name"]: item["file"] for item in items}
        write({"generation": roster.generation, "adopted": adopted, "files": files}, common.output)
        return
    for item in items:
        names = ", ".join(_of(standing, item["name"]))
        note(f"{item['name']} of {names} is the roster's, in {item['file']} beside it")
    if not items:
        note(f"nothing to adopt: the roster has all of it at generation {roster.generation}")
        return
    foreign = any(wire.lineage != roster.lineage for wire in standing.values())
    note(
        f"the roster is at generation {roster.generation}; next: harmony fleet apply"
        + (" --take-over, for its lineage is another" if foreign else "")
    )
