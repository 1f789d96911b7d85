"""The examples in the README, in examples/ and in the docstrings of scores are what they claim to
be.
"""

import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import scores
from harmony_agent.settings import Settings
from harmony_fleet.manifests.load import load
from scores import Manifest
from scores.base import Model

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
LINEAGE = "7b0e0000-0000-4000-8000-000000000001"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def docstring_examples() -> list[tuple[str, str]]:
    """``Example: ``code`` `` and indented ``::`` blocks of every public thing in scores."""
    found = []
    for module in [
        scores,
        *(
            importlib.import_module(f"scores.{info.name}")
            for info in pkgutil.iter_modules(scores.__path__)
        ),
    ]:
        things = [module, *(thing for _, thing in inspect.getmembers(module, inspect.isclass))]
        for thing in things:
            text = inspect.getdoc(thing) or ""
            if getattr(thing, "__module__", module.__name__) != module.__name__:
                continue
            found += [
                (thing.__name__, code)
                for code in re.findall(r"Example: ``(.*?)``$", text, re.DOTALL | re.MULTILINE)
            ]
            found += [
                (thing.__name__, inspect.cleandoc(code))
                for code in re.findall(r"::\n\n((?: {4}.*\n?|\n)+)", text)
            ]
    return found


def test_the_readme_has_examples_to_run():
    assert len(blocks("python")) >= 1
    assert len(blocks("toml")) >= 1


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_of_the_readme_make_a_manifest(code: str):
    space: dict[str, object] = {}
    exec(code, space)
    manifest = space["manifest"]
    assert isinstance(manifest, Manifest)
    assert manifest.bind("pi-01", LINEAGE, 1).canonical()


@pytest.mark.parametrize("text", blocks("toml"))
def test_toml_blocks_of_the_readme_are_a_configuration(text: str):
    assert Settings.model_validate(tomllib.loads(text)).agent.device_id == "pi-01"


def test_every_command_line_of_the_readme_is_one():
    from typer.main import get_command

    from harmony_fleet.cli import app

    verbs = set(get_command(app).commands)
    used = {line.split()[1] for line in README.splitlines() if line.startswith("harmony ")}
    assert used
    assert used <= verbs


@pytest.mark.parametrize(
    ("name", "code"), docstring_examples(), ids=lambda value: value if value.isidentifier() else ""
)
def test_examples_in_docstrings_run(name: str, code: str):
    space: dict[str, object] = {one: getattr(scores, one) for one in scores.__all__}
    exec(code if "\n" in code or code.startswith("manifest") else f"made = {code}", space)
    made = space.get("made", space.get("manifest"))
    assert isinstance(made, Model), name


def test_docstrings_have_examples_of_every_kind_that_authors_start_with():
    assert {"File", "SystemdUnit", "Container", "Manifest"} <= {
        name for name, _ in docstring_examples()
    }


def test_the_example_is_the_same_in_python_and_yaml():
    python, yaml = (load(str(ROOT / "examples" / f"web.{ending}")) for ending in ("py", "yaml"))
    assert [manifest.canonical() for manifest in python] == [
        manifest.canonical() for manifest in yaml
    ]
