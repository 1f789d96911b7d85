"""`harmony fleet` and `harmony upgrade` without NATS: help, usage, mutations, exit codes; what the
page on it says.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.cli import main
from harmony_fleet.rollout.finding import RESPONSES
from harmony_fleet.roster.file import RosterFile

ITEMS = ("device", "deployment", "schedule")
COMMANDS = [
    *[
        ["fleet", word]
        for word in (
            "init",
            "show",
            "remove-key",
            "status",
            "doctor",
            "verify",
            "plan",
            "apply",
            "reconcile",
            "controller",
        )
    ],
    *[["fleet", item, verb] for item in ITEMS for verb in ("add", "set", "remove", "list", "show")],
    *[["fleet", item, "rename"] for item in ("device", "deployment")],
    *[["fleet", "key", verb] for verb in ("new", "list", "retire")],
    *[["upgrade", word] for word in ("start", "watch", "list", "show", "cancel")],
]
FILE = {"kind": "File", "name": "motd", "path": "/srv/motd", "content": "s3cret"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HARMONY_SERVER", "nats://127.0.0.1:1")
    return tmp_path / "home"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_each_has_an_example(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    assert f"\n  harmony {' '.join(command)}" in capsys.readouterr().out


GROUPS = sorted({tuple(command[:-1]) for command in COMMANDS} | {(), ("device",), ("object",)})


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_what_a_command_does_is_said_whole_in_80_columns(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*group, "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    assert len(commands) > 2
    assert [line for line in commands if line.endswith("...")] == []


def file(home: Path, name: str = "web.json", value: Any = None) -> str:
    home.mkdir(exist_ok=True)
    path = home / name
    path.write_text(json.dumps([FILE] if value is None else value))
    return str(path)


def test_mutations_and_their_codes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "status"]) == 2
    assert main(["fleet", "init", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["generation"] == 1
    assert main(["fleet", "init"]) == 3
    words = [
        "fleet",
        "device",
        "add",
        "a",
        "b",
        "--class",
        "web",
        "--label",
        "site=home",
        "--variable",
        "port=80",
    ]
    assert main([*words, "-g", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"generation": 2, "changed": True}
    path = file(home)
    steps: list[tuple[list[str], int]] = [
        (words, 2),
        ([*words, "-g", "1"], 3),
        ([*words, "-g", "2"], 2),
        (["fleet", "device", "add", "C", "--class", "web", "-g", "2"], 2),
        (["fleet", "device", "add", "c", "--class", "web", "--label", "x", "-g", "2"], 2),
        (["fleet", "device", "set", "a", "-g", "2"], 2),
        (["fleet", "device", "set", "a", "--class", "web", "-g", "2"], 0),
        (
            [
                "fleet",
                "device",
                "set",
                "a",
                "--no-label",
                "site",
                "--no-variable",
                "port",
                "--disable",
                "-g",
                "2",
            ],
            0,
        ),
        (["fleet", "deployment", "add", "web", "--file", path, "--class", "web", "-g", "3"], 0),
        (["fleet", "deployment", "add", "upgrade-x", "--file", path, "-g", "4"], 2),
        (["fleet", "deployment", "add", "again", "--file", path, "-g", "4"], 2),
        (
            [
                "fleet",
                "deployment",
                "set",
                "web",
                "--file",
                path,
                "--inline",
                "--select",
                "site=home",
                "-g",
                "4",
            ],
            0,
        ),
        (["fleet", "deployment", "set", "web", "--any-class", "--no-select", "site", "-g", "5"], 0),
        (
            [
                "fleet",
                "schedule",
                "add",
                "n",
                "--cron",
                "0 3 * * *",
                "--canary",
                "1",
                "--class",
                "web",
                "-g",
                "6",
            ],
            0,
        ),
        (["fleet", "schedule", "add", "m", "--cron", "0 3 * * * *", "-g", "7"], 2),
        (
            [
                "fleet",
                "schedule",
                "set",
                "n",
                "--canary",
                "0",
                "--deadline",
                "90m",
                "--disable",
                "-g",
                "7",
            ],
            0,
        ),
        (["fleet", "schedule", "remove", "n", "-g", "8"], 0),
        (["fleet", "deployment", "remove", "web", "-g", "9"], 0),
        (["fleet", "device", "remove", "a", "b", "-g", "10"], 0),
        (["fleet", "device", "remove", "a", "-g", "11"], 2),
    ]
    for step, code in steps:
        assert main(step) == code, step
    roster = RosterFile(home).read()
    assert (roster.generation, roster.devices, roster.deployments, roster.schedules) == (
        11,
        [],
        [],
        [],
    )
    assert "s3cret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "good"),
    [
        (
            "a.yaml",
            "- {kind: File, name: motd, path: /srv/motd, content: {$text: '${device}'}}\n",
            True,
        ),
        (
            "a.yaml",
            "deployment: x\nscores:\n- {kind: File, name: motd, path: /srv/motd, content: x}\n",
            True,
        ),
        (
            "a.py",
            "from scores import File\nscores = [File(name='motd', path='/srv/motd', content='x')]\n",
            True,
        ),
        ("a.py", "from scores import Manifest\nmanifest = Manifest(deployment='x')\n", True),
        (
            "a.py",
            "scores = [{'kind': 'File', 'name': 'a', 'path': '/srv/a', 'content': {'$var': 'device'}}]\n",
            True,
        ),
        ("a.py", "scores = 1\n", False),
        ("a.py", "scores = [object()]\n", False),
        ("a.py", "x = 1\n", False),
        ("a.yaml", "--- []\n--- []\n", False),
        ("a.yaml", "x: 1\n", False),
        ("a.toml", "", False),
        ("a.json", "[1]", False),
    ],
)
def test_files_of_scores(home: Path, name: str, text: str, good: bool) -> None:
    assert main(["fleet", "init"]) == 0
    assert main(["fleet", "device", "add", "a", "--class", "web", "-g", "1"]) == 0
    (home / "fleet" / name).write_text(text)
    words = ["fleet", "deployment", "add", "web", "--file", str(home / "fleet" / name), "-g", "2"]
    assert main(words) == (0 if good else 2)
    if good:
        assert RosterFile(home).read().deployments[0].file == name


@pytest.mark.parametrize("verb", ["status", "doctor", "verify", "plan", "apply", "reconcile"])
def test_without_a_server_it_is_code_4(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harmony_fleet.nats.connection.CONNECT_SECONDS", 0.3)
    assert main(["fleet", "init"]) == 0
    assert main(["fleet", verb]) == 4


def test_the_page_names_every_class_and_command() -> None:
    docs = Path(__file__).parents[3] / "docs"
    page, findings = (docs / "fleet.md").read_text(), (docs / "reasons/finding.md").read_text()
    assert sorted(re.findall(r"^\| `([^`]+)`", findings, re.MULTILINE)) == sorted(RESPONSES)
    for command in COMMANDS:
        if command[1] not in ITEMS:
            assert f"harmony {' '.join(command)}" in page


def test_a_mutation_without_a_generation_is_made_to_the_roster_as_it_is(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "init"]) == 0
    for generation, words in enumerate(
        (
            ["device", "add", "a", "--class", "web"],
            ["deployment", "add", "web", "--file", file(home)],
            ["schedule", "add", "n", "--cron", "0 3 * * *", "--start-within", "1h"],
            ["schedule", "set", "n", "--start-within", "2h"],
            ["schedule", "remove", "n"],
            ["deployment", "set", "web", "--class", "web"],
            ["deployment", "remove", "web"],
            ["device", "set", "a", "--disable"],
            ["device", "remove", "a"],
        ),
        2,
    ):
        capsys.readouterr()
        assert main(["fleet", *words, "-o", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told == {"generation": generation, "changed": True}
    assert main(["fleet", "device", "add", "b", "--class", "web", "-g", "1"]) == 3


def test_show_reads_the_roster_without_nats_and_tells_no_values(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "init"]) == 0
    assert main(["fleet", "device", "add", "a", "--class", "c", "--variable", "pw=hunter2"]) == 0
    given = file(home, value=[{**FILE, "content": "hunter2"}])
    assert main(["fleet", "deployment", "add", "web", "--file", given, "--inline"]) == 0
    capsys.readouterr()
    assert main(["fleet", "show", "-o", "json"]) == 0
    shown = capsys.readouterr().out
    told = json.loads(shown)
    assert (told["generation"], told["devices"]) == (3, [{"name": "a", "class": "c"}])
    assert (told["deployments"], told["schedules"]) == ([{"name": "web"}], [])
    assert main(["fleet", "show"]) == 0
    table = capsys.readouterr().out
    assert "generation 3" in table
    assert all(word in table for word in ("device", "a", "web", "inline"))
    assert "hunter2" not in shown + table
