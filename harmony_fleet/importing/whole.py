"""Read files of any of the forms, and make one manifest of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harmony_fleet.errors import InvalidInput
from harmony_fleet.importing import compose, quadlet, run_line, units
from harmony_fleet.importing.emit import manifest_text
from harmony_fleet.importing.env_file import parse_env
from harmony_fleet.importing.fit import deployment_name, fitted
from harmony_fleet.importing.resource import Place, Resource
from harmony_fleet.manifests.files import MAX_FILE, read_bytes
from harmony_fleet.manifests.read_yaml import read_yaml

FORMS: Final = "a compose file (.yaml), a quadlet (.container), a unit file, or lines of docker run"
_DROPIN: Final = re.compile(r"(?:.*/)?([^/]+\.[a-z]+)\.d/([^/]+\.conf)")


@dataclass(slots=True)
class Import:
    """The request: the files, the deployment's name ("" for a guess), the folder of the device
    that relative paths begin at ("" for one below /srv), and the variables of the shell.
    """

    files: Sequence[str]
    name: str = ""
    there: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""


def imported(wanted: Import) -> str:
    """The manifest's text. Raises InvalidInput."""
    texts = {name: _text(name, wanted.stdin) for name in wanted.files}
    first = next((name for name in texts if name != "-"), "")
    stem = Path(first).stem if first else ""
    guess = Path(first).resolve().parent.name if stem in _PLAIN else stem
    name = deployment_name(wanted.name or guess)
    found, notes, project = _read(wanted, texts, name)
    if project and not wanted.name:
        name = deployment_name(project)
    resources, more = fitted(name, found)
    if not resources:
        raise InvalidInput(
            "NoManifest", "cannot find anything to import", f"each file is {FORMS}: see --help"
        )
    return manifest_text(name, resources, [*notes, *more])


_PLAIN: Final = frozenset({"docker-compose", "compose", "container-compose", "podman-compose"})
"""Names of compose files that say nothing of the project."""


def _text(name: str, stdin: bytes) -> str:
    data = stdin if name == "-" else read_bytes(Path(name))
    if len(data) > MAX_FILE:
        raise InvalidInput(
            "TooLarge", f"cannot read {name}: more than {MAX_FILE} bytes", "split it"
        )
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise InvalidInput("NotUtf8", f"cannot read {name}: not UTF-8", "save as UTF-8") from None


def _read(
    wanted: Import, texts: Mapping[str, str], name: str
) -> tuple[list[Resource], list[str], str]:
    by_name = {_unit_name(file): text for file, text in texts.items() if file != "-"}
    containers, names = quadlet.unit_names(by_name), quadlet.names(by_name)
    found = quadlet.beside(by_name, Place(Path(), "", names=names))
    notes: list[str] = []
    project = ""
    for file, text in texts.items():
        folder = Path(file).parent if file != "-" else Path()
        there = wanted.there or f"/srv/{name}"
        place = Place(folder, there, docker=True, names=names)
        unit = _unit_name(file)
        if unit.endswith(".container"):
            found.append(quadlet.read(unit, by_name, place, containers))
        elif unit.endswith(quadlet.SUFFIXES) or ".d/" in unit:
            continue
        elif unit.endswith(units.SUFFIXES):
            found.append(units.read(unit, text, by_name))
        elif run_line.has_run(text) and not unit.endswith((".yaml", ".yml")):
            more, odd = run_line.read(text, place)
            found, notes = [*found, *more], [*notes, *odd]
        else:
            project, more, odd = _compose(file, text, place, wanted.env)
            found, notes = [*found, *more], [*notes, *odd]
    notes += [
        f"{file}: its unit isn't among the files"
        for file in by_name
        if ".d/" in file and file.partition(".d/")[0] not in by_name
    ]
    return found, notes, project


def _unit_name(file: str) -> str:
    """The file's name; a drop-in's with its folder's."""
    dropin = _DROPIN.fullmatch(file)
    return f"{dropin[1]}.d/{dropin[2]}" if dropin else Path(file).name


def _compose(
    file: str, text: str, place: Place, env: Mapping[str, str]
) -> tuple[str, list[Resource], list[str]]:
    if file != "-" and not file.endswith((".yaml", ".yml", ".json")):
        raise InvalidInput("UnknownFormat", f"cannot tell what {file} is", f"it may be {FORMS}")
    documents = read_yaml(text.encode(), "standard input" if file == "-" else file)
    if len(documents) != 1:
        raise InvalidInput(
            "UnknownFormat", f"cannot import {file}: it isn't one document", f"it may be {FORMS}"
        )
    notes: list[str] = []
    known = {**_dot_env(place.folder, notes), **env}
    project, found, odd = compose.read(documents[0], place, known)
    return project, found, [*notes, *odd]


def _dot_env(folder: Path, notes: list[str]) -> dict[str, str]:
    """The values of the `.env` beside a compose file."""
    path = folder / ".env"
    if not path.is_file():
        return {}
    text = read_bytes(path).decode("utf-8", errors="replace")
    values = parse_env(text, {}, lambda name: notes.append(f"${name} in .env: it isn't set"))
    return {name: value for name, value in values.items() if value is not None}
