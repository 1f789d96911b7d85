"""The raw Scores of deployments: from the roster itself, or from a file that it knows by digest.

Projections follow from the roster alone. A deployment whose file changed since then is held: it stays
as it stands, and the others go on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harmony_fleet.errors import Conflict, InvalidInput
from harmony_fleet.manifests.files import read_bytes, read_json
from harmony_fleet.manifests.python_file import run_python
from harmony_fleet.manifests.read_yaml import read_yaml
from harmony_fleet.roster.model import Roster, RosterDeployment
from harmony_fleet.storage import secret
from scores.base import Score
from scores.canonical import canonical, digest
from scores.manifest import Manifest

RawScores = Sequence[Mapping[str, Any]]


class FileChanged(Conflict):
    """The file of one deployment isn't what the roster took. It is `alone`."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The raw Scores of each deployment, and why a deployment has none; both by its name."""

    scores: Mapping[str, RawScores]
    changed: Mapping[str, FileChanged]


def load_sources(roster: Roster, folder: Path) -> Sources:
    """The raw Scores of every deployment. A file's name is relative to `folder`."""
    scores: dict[str, RawScores] = {}
    changed: dict[str, FileChanged] = {}
    for deployment in roster.deployments:
        try:
            scores[deployment.name] = _scores(deployment, folder)
        except FileChanged as error:
            changed[deployment.name] = error
    return Sources(scores, changed)


def _scores(deployment: RosterDeployment, folder: Path) -> RawScores:
    if deployment.scores is not None:
        return deployment.scores
    path = folder / (deployment.file or "")
    try:
        scores = load_scores(path)
    except InvalidInput as error:
        if error.code in ("FileMissing", "FileUnreadable"):
            raise
        raise _changed(deployment, path) from None  # the roster took only what could be read
    if scores_digest(scores) != deployment.digest:
        raise _changed(deployment, path)
    return scores


def _changed(deployment: RosterDeployment, path: Path) -> FileChanged:
    return FileChanged(
        "FileChanged",
        f"cannot project {deployment.name}: {path} says something else than when the roster took it",
        f"to take what it says now: harmony fleet deployment set {deployment.name} --file {path}",
        alone=True,
    )


def scores_digest(scores: RawScores) -> str:
    """The digest by which the roster knows a file's Scores."""
    return digest(canonical(list(scores)))


def kept_name(path: Path, folder: Path) -> str:
    """Name of the file in the roster: relative to the roster's folder if it is below it."""
    whole = path.expanduser().resolve()
    base = folder.resolve()
    return str(whole.relative_to(base)) if whole.is_relative_to(base) else str(whole)


def load_scores(path: Path) -> RawScores:
    """The Scores of a YAML, JSON or Python file, raw: they may hold variables.

    YAML and JSON hold a list of Scores, or a manifest; Python defines `scores`, or a `manifest`.
    Raises Conflict for a file that everybody may write: a Python file is run.
    """
    secret.check_writers(path)
    data = read_bytes(path)
    if path.suffix == ".py":
        namespace = run_python(path, data)
        found = namespace.get("scores", namespace.get("manifest"))
    elif path.suffix == ".json":
        found = read_json(data, str(path))
    elif path.suffix in (".yaml", ".yml"):
        documents = read_yaml(data, str(path))
        found = documents[0] if len(documents) == 1 else None
    else:
        raise InvalidInput(
            "UnknownFormat",
            f"cannot tell what {os.path.basename(path)} is",
            "name it .yaml, .yml, .json or .py",
        )
    if isinstance(found, Manifest):
        found = found.scores
    if isinstance(found, Mapping):
        found = found.get("scores")
    raw = [_raw(item) for item in found] if isinstance(found, (list, tuple)) else None
    if raw is None or not all(isinstance(item, dict) for item in raw):
        raise InvalidInput(
            "NoScores",
            f"cannot find Scores in {path}",
            "YAML and JSON hold a list of Scores or a manifest; Python defines scores = […] or manifest = Manifest(…)",
        )
    return raw


def _raw(score: Any) -> Any:
    """As plain JSON values, so that the same content is the same whoever wrote it."""
    if isinstance(score, Score):
        return score.wire()
    try:
        return json.loads(json.dumps(score, allow_nan=False))
    except (TypeError, ValueError):
        return None
