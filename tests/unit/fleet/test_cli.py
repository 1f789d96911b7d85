"""The command's surface that needs no NATS: help, usage, schema, exit codes, quick imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.cli import complete, main
from harmony_fleet.commands.common import Common, remember_names
from scores.manifest import SCORE_TYPES

COMMANDS = [
    "apply",
    "diff",
    "get",
    "status",
    "tree",
    "events",
    "wait",
    "adopt",
    "pause",
    "resume",
    "delete",
    "logs",
    "devices",
    "schema",
    "explain",
    "validate",
    "import",
]
COMMANDS += ["fleet", "rollout", "upgrade", "server", "device", "object", "secret"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    for name in ("HARMONY_SERVER", "HARMONY_CREDS", "HARMONY_TLS_CA", "HARMONY_LINEAGE"):
        monkeypatch.delenv(name, raising=False)


def test_help_has_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [
        line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line.strip()
    ] == COMMANDS
    assert "Exit codes" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"\n  harmony {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["nope"],
        ["apply"],
        ["apply", "x.yaml", "--nope"],
        ["apply", "x.yaml", "--timeout", "soon", "-d", "pi-01"],
        ["apply", "x.yaml", "--timeout", "0s", "-d", "pi-01"],
        ["apply", "x.yaml", "--timeout", "25h", "-d", "pi-01"],
        ["apply", "x.yaml", "--allow-prune", "-1"],
        ["apply", "nowhere.yaml", "-d", "pi-01"],
        ["wait", "web"],
        ["wait", "web", "-d", "pi-01", "--for", "lunch"],
        ["logs", "Container/web"],
        ["logs", "web", "-d", "pi-01"],
        ["logs", "Pod/web", "-d", "pi-01"],
        ["logs", "Container/web", "-d", "pi-01", "-n", "1001"],
        ["devices", "--select", "site"],
        ["get", "-o", "xml"],
        ["get", "--server", "a b"],
        ["get", "--creds", "/no/such/file"],
        ["delete", "Web", "-d", "pi-01"],
        ["schema", "--kind", "Pod"],
    ],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_usage_is_2(words: list[str], form: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = words if words[-1] == "xml" or form == "table" else [*words, "-o", "json"]
    assert main(asked) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    if asked is not words:
        error = json.loads(captured.err)["error"]
        assert set(error) == {"code", "message", "hint", "errors"}
    else:
        assert captured.err.startswith(("Usage: ", "error: "))
        assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("text", "code"),
    [("1m30s", 0), ("90", 0), ("1.5s", 0), ("100ms", 0), ("2h", 0), ("1x", 2), ("-1s", 2)],
)
def test_times(text: str, code: int) -> None:
    import typer

    from harmony_fleet.cli.options import seconds_of

    if code:
        with pytest.raises(typer.BadParameter):
            seconds_of(text)
    else:
        assert (
            seconds_of(text) == {"1m30s": 90, "90": 90, "1.5s": 1.5, "100ms": 0.1, "2h": 7200}[text]
        )


def schema(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["schema", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_schema_of_a_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    value = schema(capsys)
    assert value["$schema"].startswith("https://json-schema.org/")
    assert set(value["properties"]) >= {"deployment", "scores", "removed", "allow_prune"}
    assert {"File", "SystemdUnit", "Container", "SystemUpgrade"} <= set(value["$defs"])


def test_schema_of_a_kind_has_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    value = schema(capsys, "--kind", "File")
    assert "description" in value["properties"]["path"]
    assert value["additionalProperties"] is False


def test_no_args_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) in (0, 2)
    assert "Commands:" in "".join(capsys.readouterr())


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_help_imports_no_more_than_typer() -> None:
    code = (
        "import sys; from harmony_fleet.cli import main; main(['--help']); "
        "print([name for name in ('nats', 'pydantic', 'ruamel.yaml', 'asyncio', 'rich') if name in sys.modules])"
    )
    assert run(code).stdout.splitlines()[-1] == "[]"


def test_only_the_connection_and_its_client_import_nats() -> None:
    package = Path(__file__).parents[3] / "harmony_fleet"
    importers = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        if any(
            line.startswith(("import nats", "from nats")) for line in path.read_text().splitlines()
        )
    ]
    assert importers == ["nats/connection.py", "nats/tolerant.py"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = "import sys; from harmony_fleet.cli import main; sys.exit(main(['schema']))"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("harmony-scores")


def test_completion_knows_the_roster_and_the_last_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    assert complete.devices("") == []
    assert main(["fleet", "init"]) == 0
    assert (
        main(["fleet", "device", "add", "pi-01", "pi-02", "--class", "web", "--generation", "1"])
        == 0
    )
    remember_names(Common(), ["pi-02", "lab-1"], ["web"])
    remember_names(Common(), ["pi-03"], [])
    assert complete.devices("pi") == ["pi-01", "pi-02", "pi-03"]
    assert complete.devices("lab") == ["lab-1"]
    assert complete.deployments("") == ["web"]
    (tmp_path / "names.json").write_text("[")
    remember_names(Common(), ["pi-04"], [])
    assert complete.devices("") == ["pi-04"]
    assert main(["fleet", "show"]) == 0
    assert complete.devices("") == ["pi-01", "pi-02", "pi-04"]
    for damaged in ("[]", "null", '{"devices": 1}', '{"devices": [1, []]}', "[" * 100_000):
        (tmp_path / "names.json").write_text(damaged)
        assert complete.devices("") == []
        remember_names(Common(), ["pi-05"], [])
        assert complete.devices("") == ["pi-05"]


def test_a_device_that_left_the_roster_is_offered_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    assert main(["fleet", "init"]) == 0
    assert main(["fleet", "device", "add", "pi-01", "pi-02", "--class", "web"]) == 0
    assert main(["fleet", "device", "remove", "pi-01"]) == 0
    assert complete.devices("") == ["pi-02"]


def test_the_shell_is_never_offered_what_it_would_act_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zsh evaluates what it is offered, and a device chooses the names of its keys."""
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    bad = ["$(reboot)", "`id`", "a b", "a;b", "\x1b[2J", "a\nb", "'", '"', "-rf", "a\\x2d", "é", ""]
    remember_names(
        Common(), [*bad, "pi-01"], bad, [*(f"Container/{name}" for name in bad), "File/a"]
    )
    assert (complete.devices(""), complete.deployments("")) == (["pi-01"], [])
    assert complete.resources("") == ["Container/", "Container/-rf", "File/a"]
    stored = {"devices": bad, "roster_devices": bad, "resources": bad}
    (tmp_path / "names.json").write_text(json.dumps(stored))
    assert complete.devices("") == complete.resources("") == []


def test_resources_with_logs_are_those_that_can_have_some() -> None:
    without = {f"{kind}/" for kind, model in SCORE_TYPES.items() if not model.restarts}
    assert without == set(complete.WITHOUT_LOGS)


def test_a_key_press_loads_nothing_of_the_work(tmp_path: Path) -> None:
    """pydantic alone takes longer than a person waits."""
    (tmp_path / "names.json").write_text('{"devices": ["pi-01"]}')
    script = (
        "import sys; from harmony_fleet.cli import complete, main; print(complete.devices('pi'));"
        "print(sorted({'pydantic', 'nats', 'rich', 'yaml', 'asyncio'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"HARMONY_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["['pi-01']", "[]"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("harmony status --device pi-0", ["pi-01", "pi-02"]),
        ("harmony apply web.yaml -d pi-02", ["pi-02"]),
        ("harmony delete w", ["web"]),
        ("harmony status w", ["web"]),
        ("harmony tree pi-0", ["pi-01", "pi-02"]),
        ("harmony logs Con", ["Container/web"]),
        ("harmony logs F", []),
        ("harmony device show pi-0", ["pi-01", "pi-02"]),
        ("harmony device forget pi-02", ["pi-02"]),
        ("harmony fleet adopt pi-01/w", ["pi-01/web"]),
    ],
)
def test_the_shell_is_offered_names(tmp_path: Path, line: str, offered: list[str]) -> None:
    (tmp_path / "names.json").write_text(
        '{"devices": ["pi-01", "pi-02"], "deployments": ["web"], '
        '"resources": ["Container/web", "File/motd"]}'
    )
    asked = {
        "_HARMONY_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
        "HARMONY_HOME": str(tmp_path),
    }
    script = "import sys; sys.argv[0] = 'harmony'; from harmony_fleet.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == offered, done.stderr
