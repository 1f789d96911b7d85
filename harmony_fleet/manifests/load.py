"""Manifests from a file: YAML, JSON, or Python.

A document is a manifest, or a list of Scores, whose deployment is named as the file is; Python
defines `manifest`, `manifests` or `scores`. Every mistake is an InvalidInput that names the place, a
code and what to do, never a value. A Python file is the author's own program and runs as such, with
what it prints sent to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harmony_fleet.errors import InvalidInput, Line
from harmony_fleet.manifests.draft import Draft
from harmony_fleet.manifests.faults import Find
from harmony_fleet.manifests.files import MAX_FILE, read_bytes, read_json
from harmony_fleet.manifests.places import Places
from harmony_fleet.manifests.python_file import run_python
from harmony_fleet.manifests.read_yaml import read_yaml
from scores.base import Score
from scores.manifest import Manifest
from scores.names import is_name

_NAMED: Final = "write a manifest instead: deployment: NAME, and the list below scores:"


def load(name: str) -> list[Manifest]:
    """The manifests of a file without variables; else as `drafts`."""
    return [draft.manifest({}) for draft in drafts(name)]


def drafts(name: str, deployment: str = "") -> list[Draft]:
    """The manifests of the file `name` (``-`` is standard input, YAML or JSON); at least one, in
    the file's order. `deployment` is for a list of Scores; else it is the file's name.
    """
    if name == "-":
        found = _from_text(
            sys.stdin.buffer.read(MAX_FILE + 1), "standard input", deployment, json=None
        )
    else:
        path = Path(name)
        data = read_bytes(path)
        if path.suffix == ".py":
            found = _from_python(path, data)
        elif path.suffix in (".yaml", ".yml", ".json"):
            found = _from_text(
                data, str(path), deployment or path.stem, json=path.suffix == ".json"
            )
        else:
            raise InvalidInput(
                "UnknownFormat",
                f"cannot tell what {path} is",
                "name it .yaml, .yml, .json or .py, or pipe it to: -",
            )
    if not found:
        raise InvalidInput(
            "NoManifest",
            f"cannot find a manifest in {name}: it is empty",
            "start from: harmony schema",
        )
    for draft in found:
        if not draft.varies:
            draft.manifest({})
    names = [draft.deployment for draft in found]
    if twice := sorted({item for item in names if names.count(item) > 1}):
        raise InvalidInput(
            "DuplicateDeployment",
            f"cannot use {name}: two manifests are named {twice[0]}",
            "give each its own deployment",
        )
    return found


def _from_text(data: bytes, where: str, stem: str, json: bool | None) -> list[Draft]:
    if len(data) > MAX_FILE:
        raise InvalidInput(
            "TooLarge", f"cannot read {where}: more than {MAX_FILE} bytes", "split it"
        )
    if json is None:
        json = data.lstrip()[:1] in (b"{", b"[")
    documents = [read_json(data, where)] if json else read_yaml(data, where)
    text = data.decode("utf-8-sig")
    placed: list[tuple[Any, Find]] = []
    for document, value in enumerate(documents):
        places = Places(text, document)
        if _of_manifests(value):
            placed += [(each, _within(places.line, at)) for at, each in enumerate(value)]
        else:
            placed.append((value, places.line))
    many = len(placed) > 1
    return [
        _draft(value, f"{where}, document {at}" if many else where, stem, find)
        for at, (value, find) in enumerate(placed, 1)
    ]


def _within(find: Find, at: int) -> Find:
    """Find in the item `at` of a list."""
    return lambda place, code: find((at, *place), code)


def _of_manifests(value: Any) -> bool:
    """Return whether it is a list of manifests, as `harmony get` writes it, and not of Scores."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, Mapping) and "deployment" in each for each in value)
    )


def _draft(value: Any, where: str, stem: str, find: Find) -> Draft:
    """`value` is a manifest, or a list of Scores."""
    if not isinstance(value, list):
        return Draft(where, value, find)
    if not value:
        raise InvalidInput(
            "UnknownFormat",
            f"cannot find a manifest in {where}: its list of Scores is empty",
            "to take a deployment off a device: harmony delete NAME",
        )
    if not is_name(stem):
        raise InvalidInput(
            "DeploymentMissing",
            f"cannot use {where}: it is a list of Scores, and the file's name is no deployment's",
            _NAMED,
        )

    def among(place: Sequence[int | str], code: str) -> Line | None:
        return find(place[1:] if place[:1] == ["scores"] else place, code)

    return Draft(where, {"deployment": stem, "scores": value}, among)


def _from_python(path: Path, data: bytes) -> list[Draft]:
    namespace = run_python(path, data)
    if "manifest" in namespace:
        values: Iterable[Any] = [namespace["manifest"]]
    elif "manifests" in namespace:
        values = namespace["manifests"]
        if isinstance(values, (str, Mapping, Manifest)) or not isinstance(values, Iterable):
            raise InvalidInput(
                "WrongType",
                f"cannot use {path}: manifests is no list",
                "write manifests = [Manifest(…)]",
            )
    elif isinstance(namespace.get("scores"), (list, tuple)):
        values = [{"deployment": path.stem, "scores": [_raw(item) for item in namespace["scores"]]}]
    else:
        raise InvalidInput(
            "NoManifest",
            f"cannot find a manifest in {path}",
            "define manifest = Manifest(…), or a list named manifests or scores",
        )
    found = list(values)
    for value in found:
        if not isinstance(value, (Manifest, Mapping)):
            raise InvalidInput(
                "WrongType",
                f"cannot use {path}: it defines no Manifest but a {type(value).__name__}",
                "write Manifest(…)",
            )
    return [
        Draft(str(path), value)
        if isinstance(value, Manifest)
        else Draft(f"{path}, manifest {at}", dict(value))
        for at, value in enumerate(found, 1)
    ]


def _raw(score: Any) -> Any:
    return score.wire() if isinstance(score, Score) else score
