"""What the documents tell people to install is this package, and nothing by a name that anybody may
register.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.device import wheels
from tests.device.storage import REPOSITORY, cache_folder

INSTALLS = re.compile(
    r"\b(?:pip3?|pipx|uv(?: pip| tool)?|poetry|conda) (?:install|add|download|run)\b([^`\n;&|]*)"
)
OPTIONS_WITH_A_VALUE = {
    "-r",
    "--requirement",
    "--find-links",
    "-f",
    "-c",
    "--constraint",
    "--index-url",
}
TOLD = (
    "*.md",
    "*.toml",
    "*.1",
    "*.8",
    "*.conf",
    "*.service",
    "control",
    "copyright",
    "post*",
    "pre*",
)
PLACES = ("docs", "adr", "deploy", "examples")
PACKAGES = ("scores", "harmony_agent", "harmony_updater", "harmony_fleet")


def told() -> dict[str, str]:
    """All that is public: documents, metadata, maintainer scripts, and the sources with the texts
    of their errors.
    """
    found = [
        REPOSITORY / "README.md",
        REPOSITORY / "pyproject.toml",
        REPOSITORY / "tests" / "README.md",
    ]
    found += [
        path for place in PLACES for pattern in TOLD for path in (REPOSITORY / place).rglob(pattern)
    ]
    found += [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    return {
        str(path.relative_to(REPOSITORY)): path.read_text("utf-8")
        for path in found
        if path.is_file()
    }


def by_name(line: str) -> list[str]:
    """Of an installer's arguments, those that a registry would be asked for."""
    names, words = list[str](), iter(line.split("#", maxsplit=1)[0].split())
    for word in words:
        if word in OPTIONS_WITH_A_VALUE:
            next(words, None)
        elif not word.startswith("-") and not re.match(r"\.|/|~|dist/|\$", word):
            names.append(word)
    return names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("pip install harmony-device", ["harmony-device"]),
        ("pip install -U 'harmony-scores[agent]'", ["'harmony-scores[agent]'"]),
        ("uv pip install harmony-scores", ["harmony-scores"]),
        ("pipx run harmony", ["harmony"]),
        ("pip install .", []),
        ("pip install --no-index --find-links wheels ./dist/x.whl", []),
        ("pip install -r requirements.lock", []),
    ],
)
def test_what_is_taken_for_a_name(line: str, names: list[str]) -> None:
    (arguments,) = INSTALLS.findall(line)
    assert by_name(arguments) == names


def test_nobody_is_told_to_install_a_name() -> None:
    found = {
        place: names
        for place, text in told().items()
        for arguments in INSTALLS.findall(text)
        if (names := by_name(arguments))
    }
    assert found == {}


def project() -> dict[str, Any]:
    return dict(tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"])


def test_a_strangers_name_stands_nowhere() -> None:
    """The first name of this project is another project's on the registry; files of devices may
    keep their names.
    """
    stranger = re.compile(r"harmony[-_]device(?!s)(?=[\[\]\"'`\s=<>~,)-]|\.dist-info)")
    metadata = {place: text for place, text in told().items() if not place.endswith(".py")}
    assert [place for place, text in metadata.items() if stranger.search(text)] == []
    assert project()["name"] != "harmony-device"


def test_readmes_lines_install_this_package(tmp_path: Path) -> None:
    """Each of them, in a new environment, with what the lock names and no registry; `.` is the
    wheel of this tree.
    """
    text = (REPOSITORY / "README.md").read_text("utf-8")
    lines = INSTALLS.findall(text)
    assert lines
    cache = cache_folder()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheel, others = wheels.project(cache), wheels.dependencies(cache, python)
    assert wheel.name.startswith(project()["name"].replace("-", "_") + "-")
    for number, line in enumerate(lines):
        words = [str(wheel) if word == "." else word for word in line.split()]
        assert str(wheel) in words, line
        place = tmp_path / str(number)
        venv.create(place, with_pip=True)
        pip = [str(place / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
        run(*pip, "install", "--quiet", "--no-index", "--find-links", str(others), *words)
        code = "import scores, harmony_agent; print(scores.File.__module__, scores.__file__, harmony_agent.__version__)"
        module, where, version = run(str(place / "bin/python"), "-c", code).split()
        assert module.startswith("scores.")
        assert where.startswith(str(place))
        installed = {
            one["name"]: one["version"] for one in json.loads(run(*pip, "list", "--format", "json"))
        }
        assert installed.pop(project()["name"]) == version
        assert set(installed) - {"pip", "setuptools"} == {
            "annotated-types",
            "cronsim",
            "pydantic",
            "pydantic_core",
            "typing_extensions",
            "typing-inspection",
        }


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=250, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout
