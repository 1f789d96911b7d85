"""`harmony fleet device|deployment`: list, show, exclude and override, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_fleet.cli import main
from harmony_fleet.commands.roster_values import _override_path
from harmony_fleet.errors import InvalidInput
from harmony_fleet.roster import edit, text
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.model import check
from harmony_fleet.roster.projection import project
from scores.keys import DeploymentKey

BOX = {"kind": "Container", "name": "web", "image": "localhost/x", "memory": "64Mi", "env": {"A": "s3cret"}}  # fmt: skip
DOTTED = {"kind": "File", "name": "m.mode", "path": "/srv/m", "content": {"$text": "${device}"}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HARMONY_SERVER", "nats://127.0.0.1:1")
    path = tmp_path / "web.json"
    path.write_text(json.dumps([BOX, DOTTED]))
    assert main(["fleet", "init"]) == 0
    assert main(["fleet", "device", "add", "a", "b", "c", "--class", "web"]) == 0
    assert main(["fleet", "deployment", "add", "web", "--file", str(path), "--inline"]) == 0
    return tmp_path / "home"


def roster_text(home: Path) -> str:
    return (home / "fleet" / "roster.yaml").read_text()


def projected(home: Path) -> dict[str, dict[str, Any]]:
    """By device: each Score of web, by its name."""
    roster = RosterFile(home).read()
    found = project(roster, {"web": roster.deployments[0].scores or []})
    return {
        key.device: {score["name"]: score for score in made.manifest.wire()["scores"]}
        for key, made in found.items()
    }


def test_an_excluded_device_gets_nothing(home: Path) -> None:
    assert main(["fleet", "deployment", "set", "web", "--exclude", "b", "--exclude", "b"]) == 0
    assert projected(home).keys() == {"a", "c"}
    assert main(["fleet", "deployment", "set", "web", "--exclude", "c", "--no-exclude", "b"]) == 0
    assert projected(home).keys() == {"a", "b"}
    assert main(["fleet", "deployment", "set", "web", "--exclude", "x"]) == 2
    assert main(["fleet", "deployment", "set", "web", "--no-exclude", "c"]) == 0
    assert projected(home).keys() == {"a", "b", "c"}
    assert "exclude" not in roster_text(home)


def test_what_one_device_overrides_is_there_alone(home: Path) -> None:
    before = projected(home)
    words = ["fleet", "device", "set", "a"]
    assert main([*words, "--override", "web/Container/web.memory=128Mi"]) == 0
    assert main([*words, "--override", "web/Container/web.env=null"]) == 0
    assert main([*words, "--override", "web/File/m.mode.mode=0600"]) == 0
    now = projected(home)
    assert (now["b"], now["c"]) == (before["b"], before["c"])
    assert now["a"]["web"]["memory"] == "128Mi"
    assert "env" not in now["a"]["web"]
    assert now["a"]["m.mode"]["mode"] == "0600"
    assert main([*words, "--no-override", "web/Container/web.env"]) == 0
    assert projected(home)["a"]["web"]["env"] == BOX["env"]
    assert main([*words, "--no-override", "web"]) == 0
    assert projected(home) == before
    assert "overrides" not in roster_text(home)


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("web/Container/wbe.memory=1Gi", "OverrideUnknown"),
        ("web/Container/web.memory=much", "InvalidQuantity"),
        ("web/Container/web.contnet=x", "OverrideInvalid"),
        ("web/Container/web.name=x", "NotOverridable"),
        ("web/Container/web.kind=File", "NotOverridable"),
        ("web/Container/web=x", "OverrideInvalid"),
        ("web/memory=1", "OverrideInvalid"),
        ("web=1", "OverrideInvalid"),
        ("wbe/Container/web.memory=1Gi", "NotFound"),
        ("web/Container/web.memory", "PairInvalid"),
    ],
)
def test_an_override_is_checked_where_it_is_written(
    home: Path, override: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = roster_text(home)
    assert main(["fleet", "device", "set", "a", "--override", override, "-o", "json"]) == 2
    error = json.loads(capsys.readouterr().err.partition("{")[2].join(["{", ""]))["error"]
    assert error["code"] == code
    assert roster_text(home) == before


def test_a_file_that_lacks_what_is_overridden_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fleet", "device", "set", "a", "--override", "web/Container/web.memory=128Mi"]
    assert main(words) == 0
    path = home / "other.json"
    path.write_text(json.dumps([{**DOTTED, "content": "x"}]))
    assert main(["fleet", "deployment", "set", "web", "--file", str(path)]) == 2
    assert "harmony fleet device set a --no-override web/Container/web" in capsys.readouterr().err


def test_list_and_show_tell_names_and_no_values(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fleet", "device", "set", "a", "--override", 'web/Container/web.env={"B":"s3cret"}']
    assert main([*words, "--variable", "key=s3cret", "--label", "site=home"]) == 0
    assert main(["fleet", "deployment", "set", "web", "--exclude", "c"]) == 0
    told = []
    for command in (["list"], ["list", "-o", "json"], ["show", "a"], ["show", "a", "-o", "json"]):
        assert main(["fleet", "device", *command]) == 0
        told.append(capsys.readouterr().out)
    assert json.loads(told[1])[0] == json.loads(told[3])
    shown = json.loads(told[3])
    assert (shown["deployments"], shown["variables"]) == (["web"], ["key"])
    assert shown["overrides"] == {"web": ["Container/web.env"]}
    assert "overrides web" in told[0]
    assert main(["fleet", "deployment", "list"]) == 0
    assert "not c" in capsys.readouterr().out
    assert main(["fleet", "deployment", "show", "web", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["devices"], shown["select"]["exclude"]) == (["a", "b"], ["c"])
    assert main(["fleet", "show", "-o", "json"]) == 0
    told.append(capsys.readouterr().out)
    assert main(["fleet", "schedule", "list"]) == 0
    for item in ("device", "deployment", "schedule"):
        assert main(["fleet", item, "show", "nothing"]) == 2
    assert "s3cret" not in "".join(told)


def test_a_rename_needs_the_servers_word(home: Path) -> None:
    before = roster_text(home)
    assert main(["fleet", "deployment", "rename", "web", "site"]) == 4
    assert main(["fleet", "device", "rename", "a", "z"]) == 4
    assert roster_text(home) == before


ROSTER = b"""version: 1
lineage: 7b0e0000-0000-4000-8000-000000000001
generation: 3
devices:
  # the first
  - name: a
    class: web
    overrides: {web: {File/m: {mode: '0600'}}}   # here alone
  - name: b
    class: web
deployments:
  - name: web
    select: {exclude: [b]}
    scores: []
schedules:
  - name: n
    cron: 0 3 * * 0
    select: {exclude: [a, b]}
    deadline: 2h
    max_unavailable: 1
"""


def test_a_rename_goes_wherever_the_name_stands() -> None:
    made = text.edited(ROSTER, edit.rename("devices", "b", "z", frozenset()))
    roster = text.parse(made, "test")
    assert [device.name for device in roster.devices] == ["a", "z"]
    assert roster.deployments[0].select.exclude == ["z"]
    assert roster.schedules[0].select.exclude == ["a", "z"]
    made = text.edited(made, edit.rename("deployments", "web", "site", frozenset({"a"})))
    roster = text.parse(made, "test")
    assert [item.name for item in roster.deployments] == ["site"]
    assert roster.devices[0].overridden("site") == ["File/m.mode"]
    assert (roster.generation, roster.devices[0].overridden("web")) == (5, [])
    assert b"# the first" in made
    for section, old, new in (("devices", "a", "b"), ("deployments", "x", "y")):
        with pytest.raises(InvalidInput):
            text.edited(ROSTER, edit.rename(section, old, new, frozenset()))  # type: ignore[arg-type]


def test_a_roster_of_before_keeps_its_digest_and_projections() -> None:
    value = {"version": 1, "lineage": "7b0e0000-0000-4000-8000-000000000001", "generation": 1}
    value |= {"devices": [{"name": "a", "class": "web"}]}
    value |= {"deployments": [{"name": "web", "select": {"class": "web"}, "scores": [{**BOX, "memory": None}]}]}  # fmt: skip
    roster = check(value, "test")
    assert roster.wire() == value
    (projection,) = project(roster, {"web": roster.deployments[0].scores or []}).values()
    assert projection.manifest.wire()["scores"] == [{**BOX, "memory": None}]
    assert DeploymentKey("a", "web") in project(roster, {"web": []})


NAMES = st.from_regex(r"[A-Za-z0-9_@:-][A-Za-z0-9_@:.-]{0,20}", fullmatch=True)


@given(name=NAMES, field=st.sampled_from(["memory", "env", "image", "command"]))
def test_a_resource_may_have_dots_in_its_name(name: str, field: str) -> None:
    assert _override_path(f"web/Container/{name}.{field}") == ("web", f"Container/{name}", field)
