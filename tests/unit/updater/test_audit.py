"""What can be held of the updater by reading it: its size, its imports, the one place that starts a
process.
"""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import harmony_updater
from harmony_updater.apt_policy import SWITCHES
from harmony_updater.host import COMMANDS, ENVIRONMENT

PACKAGE = Path(harmony_updater.__file__).parent
ROOT = PACKAGE.parent
SHELLS = {"sh", "bash", "dash", "nohup", "sudo", "su"}
AUDIT = ROOT / "deploy/audit_updater.py"


def audit(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )


def test_the_audit_finds_nothing_wrong_and_says_all() -> None:
    done = audit(AUDIT)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in COMMANDS:
        assert f"\n  {name}: /" in done.stdout
    for line in (PACKAGE / "apt.conf").read_text().splitlines():
        assert f"  {line}\n" in done.stdout


def test_the_audit_finds_what_is_wrong(tmp_path: Path) -> None:
    copy = tmp_path / "harmony_updater"
    copy.mkdir()
    for path in (*PACKAGE.glob("*.py"), *PACKAGE.glob("*.conf")):
        (copy / path.name).write_bytes(path.read_bytes())
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/audit_updater.py").write_bytes(AUDIT.read_bytes())
    assert audit(tmp_path / "deploy/audit_updater.py").returncode == 0
    (copy / "more.py").write_text(
        f"import urllib.request\nimport os\n\nos.execve('x', [], {{}})\n# {'x' * 99}\n"
    )
    host = (copy / "host.py").read_text()
    (copy / "host.py").write_text(host.replace('"clock": "', '"clock": "/usr/bin/bash '))
    done = audit(tmp_path / "deploy/audit_updater.py")
    assert done.returncode == 1
    for wrong in (
        "an import of urllib",
        "the program /usr/bin/bash",
        "processes started in",
        "the length of more.py:5",
    ):
        assert f"cannot accept {wrong}" in done.stdout


def test_every_command_is_an_absolute_path_and_none_is_a_shell() -> None:
    for command in COMMANDS.values():
        words = shlex.split(command)
        assert words[0].startswith("/usr/bin/")
        assert not {Path(word).name for word in words if word.startswith("/")} & SHELLS
        assert not any(character in command for character in ";|&`<>")


def test_every_run_of_apt_has_our_configuration_above_the_device_s() -> None:
    conf = str(PACKAGE / "apt.conf")
    for name, command in COMMANDS.items():
        words = shlex.split(command)
        for at, word in enumerate(words):
            if word.startswith("/usr/bin/apt-") and name != "switches":
                assert words[at + 1 : at + 3] == ["-c", conf], name
        assert not any(word.startswith(("--allow", "--force-yes", "--no-auth")) for word in words)
    assert shlex.split(COMMANDS["update"])[-1] == "update"
    assert shlex.split(COMMANDS["upgrade"])[-1] == "full-upgrade"


def test_what_the_service_manager_is_told_to_run_gets_no_variable_of_its_own() -> None:
    clean = ["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in ENVIRONMENT.items())]
    for command in COMMANDS.values():
        words = shlex.split(command)
        if words[0] == "/usr/bin/systemd-run":
            at = words.index("/usr/bin/env")
            assert words[at : at + len(clean)] == clean
    assert "local" not in ENVIRONMENT["PATH"]
    assert ENVIRONMENT["DEBIAN_FRONTEND"] == "noninteractive"


def test_the_configuration_above_the_device_s_lets_in_nothing_that_nobody_signed() -> None:
    text = (PACKAGE / "apt.conf").read_text()
    for key in (key for key in SWITCHES if not key.startswith("Binary::")):
        assert f'\n{key} "false";\n' in text
    assert '"--force-confold"' in text
    assert "true" not in [line.split('"')[1] for line in text.splitlines() if "Allow" in line]


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
        assert not re.search(
            r"^\s*(from|import) (scores|harmony_agent|harmony_fleet)",
            path.read_text(),
            re.MULTILINE,
        )
