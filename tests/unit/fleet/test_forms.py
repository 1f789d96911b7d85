"""The forms of what commands print: each makes a schema; each command has one, or is known not to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import TypeAdapter, ValidationError

from harmony_fleet.cli import app, main
from harmony_fleet.client.events import EventLog
from harmony_fleet.observe.status import device_json, rows
from harmony_fleet.observe.tree import branch
from harmony_fleet.output.forms import FORMS, output_schema
from tests.integration.operator import as_described
from tests.unit.fleet.build import NOW, device, file, found, resource, status, wire
from tests.unit.fleet.test_events import entry

WITHOUT = {
    "schema", "import", "fleet controller", "server push",
    "device enroll", "device rotate", "device finish", "device revoke",
}  # fmt: skip
"""Commands that print no result as JSON, or a schema itself."""
VARIANTS = {"error", "status --watch", "fleet apply --dry-run"}


def with_output(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from with_output(below, (*words, name))
    elif any("--output" in option.opts for option in command.params):
        yield " ".join(words)


def test_each_command_has_a_form() -> None:
    commands = set(with_output(typer.main.get_command(app)))
    assert commands - WITHOUT == set(FORMS) - VARIANTS
    assert commands >= WITHOUT


@pytest.mark.parametrize("command", FORMS)
def test_each_has_a_schema(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--of", command]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == output_schema(command)
    assert schema["$schema"].endswith("2020-12/schema")
    names = set(schema.get("$defs", {}))
    used = {part.split('"')[0] for part in json.dumps(schema).split("#/$defs/")[1:]}
    assert used <= names


def test_a_command_without_a_schema_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--of", "nonesuch"]) == 2
    assert main(["schema", "--of", "status", "--kind", "File"]) == 2
    assert "these have one" in capsys.readouterr().err


def told() -> Any:
    return found(
        wire(file()), status("Failed", resources={"File/a": resource("Failed", "NoSpace")})
    )


def test_what_is_printed_has_its_form_and_nothing_else_has() -> None:
    (row,) = rows([told()], [device()], NOW)
    tree = {**device_json(device(), NOW), "deployments": [branch(row, told()).as_json()]}
    events = [event.as_json() for event in EventLog().feed(entry(status("Failed"), 1))]
    for command, value in (
        ("status", [row.as_json()]),
        ("status --watch", row.as_json()),
        ("tree", tree),
        ("devices", [device_json(device(), NOW)]),
        ("events", events[0]),
    ):
        form: TypeAdapter[Any] = TypeAdapter(FORMS[command])
        form.validate_json(json.dumps(value))
        first = value[0] if isinstance(value, list) else value
        first["more"] = 1
        with pytest.raises(ValidationError):
            form.validate_json(json.dumps(value))


def test_commands_of_the_home_print_their_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HARMONY_SERVER", "nats://127.0.0.1:1")  # nobody is there
    (tmp_path / "home").mkdir()
    good, bad = tmp_path / "web.yaml", tmp_path / "bad.yaml"
    good.write_text("[{kind: File, name: a, path: /srv/a, content: x}]")
    bad.write_text("[{kind: File, name: a, path: /srv/a, contnet: x}]")
    made = ("server", "init", f"{tmp_path}/nats", "--host", "localhost", "-o", "json")
    assert main(made) == 0
    as_described(made, capsys.readouterr().out, "")
    assert main(["device", "enroll", "pi-01", "-o", f"{tmp_path}/pi-01.bundle"]) == 0
    key = ""
    for words, code in (
        ("fleet init", 0),
        ("fleet device add pi-01 --class web", 0),
        (f"fleet deployment add web --file {good}", 0),
        ("fleet device set pi-01 --label a=b", 0),
        ("fleet show", 0),
        ("fleet device list", 0),
        ("fleet device show pi-01", 0),
        ("fleet deployment list", 0),
        ("fleet key new", 0),
        ("fleet key new", 0),
        ("fleet key list", 0),
        ("fleet key retire KEY", 0),
        (f"validate {good} {bad}", 2),
        ("explain CrashLoop", 0),
        ("explain File", 0),
        ("explain File.mode", 0),
        ("explain nonesuch", 2),
        (f"server init {tmp_path}/other --host localhost", 5),
        ("device list", 0),
        ("device show pi-01", 0),
        ("server objects", 0),
        ("fleet status --nonesuch", 2),
        ("status", 4),
    ):
        typed = [*words.replace("KEY", key).split(), "-o", "json"]
        assert main(typed) == code, (typed, capsys.readouterr())
        said = capsys.readouterr()
        as_described(tuple(typed), said.out, said.err)
        if words == "fleet key list":
            key = json.loads(said.out)[0]["key"]
