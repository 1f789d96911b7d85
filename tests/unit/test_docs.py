"""The guides: each command in a console block is one that there is, with the options that it has; links lead on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from ruamel.yaml import YAML

from harmony_fleet.cli import app
from scores.manifest import Manifest, validate

ROOT = Path(__file__).parents[2]
GUIDES = ("install.md", "operate.md")
PROMPTS = ("operator$ ", "server# ", "device# ", "$ ", "# ")


def blocks(name: str, language: str) -> list[str]:
    """What stands in fenced blocks of a language."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(name: str) -> list[list[str]]:
    """Every line that is typed, as words."""
    lines = [line for block in blocks(name, "console") for line in block.splitlines()]
    found = []
    for line in lines:
        prompt = next((prompt for prompt in PROMPTS if line.startswith(prompt)), None)
        assert prompt is not None, line
        found.append(shlex.split(line.removeprefix(prompt)))
    return found


@pytest.mark.parametrize("name", GUIDES)
def test_every_command_is_one(name: str) -> None:
    typed = commands(name)
    ours = [words for words in typed if words[0] == "harmony"]
    assert len(ours) > 8
    for words in ours:
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while hasattr(command, "commands"):
            assert rest[0] in command.commands, words
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context(words[-1], rest)  # an option that isn't there raises; nothing is run
    programs = {words[0] for words in typed}
    assert not programs & {"sh", "bash", "curl", "sudo"}


def test_the_file_of_the_install_guide_is_a_deployment() -> None:
    [text] = blocks("install.md", "yaml")
    assert text.startswith("# web.yaml\n")
    manifest = validate(Manifest, {"deployment": "web", "scores": YAML(typ="safe").load(text)})
    assert [score.key for score in manifest.scores] == ["File/page", "SystemdUnit/web.service"]


@pytest.mark.parametrize("name", [*GUIDES, "threat-model.md", "fleet.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / "docs" / name).read_text("utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        page = ROOT / "docs" / path
        assert page.exists(), target
        titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles]
