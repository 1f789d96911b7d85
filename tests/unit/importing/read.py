"""Short ways to import a text and to look at what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harmony_fleet.importing.whole import Import, imported
from harmony_fleet.manifests.load import drafts
from harmony_fleet.manifests.read_yaml import read_yaml


@dataclass
class Read:
    """A manifest that was made: as YAML has it, and its comments."""

    text: str

    @property
    def value(self) -> dict[str, Any]:
        [found] = read_yaml(self.text.encode(), "it")
        assert isinstance(found, dict)
        return found

    @property
    def comments(self) -> str:
        lines = (line.strip() for line in self.text.splitlines())
        return "\n".join(line for line in lines if line.startswith("#"))

    def score(self, name: str) -> dict[str, Any]:
        """The Score of that name, without kind and name."""
        [found] = [one for one in self.value["scores"] if one["name"] == name]
        return {key: one for key, one in found.items() if key not in ("kind", "name")}


def read(
    folder: Path, files: Mapping[str, str], *, env: Mapping[str, str] | None = None, **more: Any
) -> Read:
    """Import these files; what comes of them is valid, as `harmony validate` says."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = [str(folder / name) for name in files if not name.endswith(".env")]
    made = Read(imported(Import(names, env=env or {}, **{"name": "web", **more})))
    out = folder / "out.yaml"
    out.write_text(made.text)
    for draft in drafts(str(out)):
        assert draft.check({}) == len(made.value["scores"])
    return made


def compose(folder: Path, services: str, **more: Any) -> Read:
    """Import the services of a compose file."""
    text = "services:\n" + "\n".join(f"  {line}" for line in services.strip("\n").splitlines())
    return read(folder, {"compose.yaml": text + "\n"}, **more)


def line(folder: Path, text: str, **more: Any) -> Read:
    """Import one line of docker run."""
    return read(folder, {"run.txt": text}, **more)
