"""What can be held of the updater by reading it: its size, its imports, the one place that starts a process."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import harmony_updater
from harmony_updater.apt import COMMANDS, ENVIRONMENT

PACKAGE = Path(harmony_updater.__file__).parent
ROOT = PACKAGE.parent
SHELLS = {"sh", "bash", "dash", "env", "nohup"}


def test_the_audit_finds_nothing_wrong_and_says_all() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy/audit_updater.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"^ *(\d+) lines in all, of at most 800$", done.stdout, re.MULTILINE)
    assert counted
    assert int(counted[1]) == sum(len(path.read_text().splitlines()) for path in PACKAGE.glob("*.py")) <= 800
    for name in COMMANDS:
        assert f"\n  {name}: /" in done.stdout


def test_the_audit_finds_what_is_wrong(tmp_path: Path) -> None:
    copy = tmp_path / "harmony_updater"
    copy.mkdir()
    for path in PACKAGE.glob("*.py"):
        (copy / path.name).write_bytes(path.read_bytes())
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/audit_updater.py").write_bytes((ROOT / "deploy/audit_updater.py").read_bytes())
    (copy / "more.py").write_text("import anyio\nimport os\n\nos.system('x')\n" + "\n" * 800)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "deploy/audit_updater.py")], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 1
    for wrong in ("import of anyio", "lines", "processes started in"):
        assert f"cannot accept {wrong}" in done.stdout or wrong in done.stdout


def test_every_command_is_an_absolute_path_and_none_is_a_shell() -> None:
    for command in COMMANDS.values():
        words = command.split()
        assert words[0].startswith("/usr/bin/")
        assert not {Path(word).name for word in words if word.startswith("/")} & SHELLS
        assert "-c" not in words
        assert not any(character in command for character in ";|&`<>")


def test_no_argument_of_apt_can_let_in_what_nobody_signed_and_edits_are_kept() -> None:
    for name in ("update", "upgrade", "plan"):
        words = COMMANDS[name].split()
        for key in ("APT::Get::AllowUnauthenticated", "Acquire::AllowInsecureRepositories"):
            assert f"{key}=false" in words
        assert "Dpkg::Options::=--force-confold" in words
        assert not any(word.startswith(("--allow", "--force-yes", "--no-auth")) for word in words)
    assert COMMANDS["update"].split()[-1] == "update"
    assert COMMANDS["upgrade"].split()[-1] == "full-upgrade"
    assert ENVIRONMENT["DEBIAN_FRONTEND"] == "noninteractive"


def test_the_protocol_imports_pydantic_and_nothing_of_the_updater() -> None:
    code = (
        "import sys, pydantic\nclass M(pydantic.BaseModel): x: int\n"  # which loads what pydantic loads late
        "before = set(sys.modules)\nimport harmony_updater.protocol\n"
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('pydantic')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(ast.literal_eval(done.stdout)) <= {"harmony_updater", "harmony_updater.protocol"}


def test_the_updater_imports_nothing_of_the_rest() -> None:
    for path in PACKAGE.glob("*.py"):
        assert not re.search(r"^\s*(from|import) (scores|harmony_agent|harmony_fleet)", path.read_text(), re.MULTILINE)
