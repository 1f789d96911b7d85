"""The guides: what they tell to run and to write, and where their links lead. Their commands are held by
`test_doc_commands.py`.
"""

from __future__ import annotations

import re
import shlex

import pytest
from ruamel.yaml import YAML

from harmony_agent.core.paths import PathSet
from harmony_agent.kinds.file.policy import FilePolicy
from harmony_fleet.manifests.load import drafts
from scores import File
from scores.manifest import Manifest, validate
from tests import guide

GUIDES = ("install.md", "operate.md")


def commands(name: str) -> list[list[str]]:
    """Every line that is typed, as words."""
    return [shlex.split(typed.line) for block in guide.blocks(name) for typed in block.typed]


@pytest.mark.parametrize("name", GUIDES)
def test_nobody_is_told_to_pipe_something_into_a_shell(name: str) -> None:
    programs = {words[0] for words in commands(name)}
    assert "harmony" in programs
    assert not programs & {"sh", "bash", "curl", "sudo"}


def test_the_file_of_the_install_guide_is_a_deployment() -> None:
    [text] = [block.text for block in guide.blocks("install.md") if block.language == "yaml"]
    assert text.startswith("# web.yaml\n")
    manifest = validate(Manifest, {"deployment": "web", "scores": YAML(typ="safe").load(text)})
    assert [score.key for score in manifest.scores] == ["File/page", "SystemdUnit/web.service"]


def test_each_deployment_of_the_authors_page_is_one() -> None:
    text = (guide.DOCS / "author.md").read_text("utf-8")
    files = re.findall(r"^```yaml\n(# [a-z]+\.yaml\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(files) >= 2
    for text in files:
        validate(Manifest, {"deployment": "web", "scores": YAML(typ="safe").load(text)})


def test_each_recipe_is_a_deployment_that_its_configuration_allows() -> None:
    settings, recipes = guide.recipes()
    assert len(recipes) == 7
    policy = FilePolicy(settings.files.roots, settings.files.paths, PathSet(()))
    for name, scores in recipes.items():
        manifest = validate(Manifest, {"deployment": name, "scores": scores})
        for score in manifest.scores:
            if isinstance(score, File):
                assert list(policy.violations(score)) == [], score.key
            else:
                assert score.name in settings.systemd.units


@pytest.mark.parametrize(
    "name", [*GUIDES, "threat-model.md", "fleet.md", "client.md", "recipes.md", "author.md"]
)
def test_links_lead_somewhere(name: str) -> None:
    text = (guide.DOCS / name).read_text("utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        page = guide.DOCS / path
        assert page.exists(), target
        titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [
            re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles
        ]


def test_what_is_shown_is_looked_for_in_its_order() -> None:
    said = "NAME   AGE\npi-01  3 s  yes\n"
    assert guide.unseen(["NAME AGE", "pi-01 … yes"], said) == []
    assert guide.unseen(["pi-01 … yes", "NAME AGE"], said) == ["NAME AGE"]
    assert guide.unseen(["pi-01 … no"], said) == ["pi-01 … no"]


def test_ctrl_c_ends_what_goes_on() -> None:
    watches = [
        typed for block in guide.blocks("operate.md") for typed in block.typed if typed.interrupted
    ]
    assert [typed.line for typed in watches] == ["harmony status --watch", "harmony events -f"]
    assert all(typed.shows and "^C" not in typed.shows for typed in watches)


def test_each_set_up_is_a_manifest_and_is_listed() -> None:
    folder = guide.DOCS / "setups"
    files = sorted(folder.glob("*.yaml"))
    assert len(files) == 13
    listed = re.findall(
        r"\(([0-9]{2}-[a-z0-9-]+\.yaml)\)", (folder / "README.md").read_text("utf-8")
    )
    assert listed == [path.name for path in files]
    for path in files:
        [draft] = drafts(str(path))
        assert draft.check({}) > 0
