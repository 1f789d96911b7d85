"""Who imports whom, and the lists that must agree: the kinds on the wire, in the union, and in the
agent.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import get_args

import scores
from harmony_agent import app, settings
from scores import base, bundle, manifest, status
from scores.base import Score
from tests import strategies
from tests.arch.tree import PACKAGES, ROOT


def test_imports_follow_the_arrows() -> None:
    """The contracts stand in pyproject.toml."""
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def _lint(place: Path) -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


FORBIDDEN = [
    ("harmony_agent/engine/desired/intake.py", "harmony_agent.engine.report.status"),
    ("harmony_agent/adapters/podman/client.py", "harmony_agent.adapters.ledger.wal"),
    ("harmony_agent/adapters/posix/syscalls.py", "harmony_agent.adapters.ledger.wal"),
    ("harmony_fleet/storage/lock.py", "harmony_fleet.nats.kv"),
    ("harmony_agent/kinds/file/plan.py", "os"),
    ("harmony_agent/kinds/file/plan.py", "harmony_agent.kinds.container"),
    ("harmony_agent/core/dependencies.py", "time"),
    ("harmony_agent/engine/reconcile/work_queue.py", "nats"),
    ("harmony_agent/adapters/status_socket.py", "harmony_agent.engine.reconcile.work_queue"),
    ("harmony_agent/adapters/status_socket.py", "harmony_updater.protocol"),
    ("harmony_agent/adapters/updater.py", "harmony_updater.machine"),
    ("scores/keys.py", "socket"),
    ("harmony_nats/channel.py", "scores.keys"),
    ("scores/keys.py", "harmony_fleet.nats.kv"),
    ("harmony_fleet/nats/kv.py", "harmony_agent.settings"),
    ("harmony_updater/lock.py", "scores.names"),
]


def test_the_contracts_see_what_they_are_for(tmp_path: Path) -> None:
    """In a copy with one forbidden import for each: a contract that holds whatever is written is
    none.
    """
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, imported in FORBIDDEN:
        with (tmp_path / path).open("a") as file:
            file.write(f"\nimport {imported}\n")
    done = _lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    assert [
        contract["name"]
        for contract in contracts
        if f"{contract['name']} BROKEN" not in done.stdout
    ] == []
    unseen = []
    for path, imported in FORBIDDEN:
        module = path.removesuffix(".py").replace("/", ".")
        if f"{module} -> {imported}" not in " ".join(done.stdout.split()):
            unseen.append((module, imported))
    assert unseen == []


def test_every_list_of_kinds_is_the_same() -> None:
    kinds = list(base.KINDS)
    union = get_args(get_args(manifest.AnyScore)[0])
    assert list(manifest.SCORE_TYPES) == kinds
    assert [kind.model_fields["kind"].default for kind in union] == kinds
    assert list(manifest.SCORE_TYPES.values()) == list(union)
    assert sorted(app.KINDS) == sorted(kinds)
    assert list(get_args(settings.Kind)) == kinds
    assert sorted(strategies.KINDS) == sorted(kinds)
    assert list(get_args(bundle.Kind)) == kinds
    assert {kind.__name__ for kind in union} <= set(scores.__all__)
    details = get_args(get_args(status.Detail)[0])
    assert {kind.model_fields["kind"].default for kind in details} == set(kinds)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    apart = next(one for one in contracts["contracts"] if one["name"].startswith("A kind imports"))
    packages = {place.rpartition(".")[2] for place in apart["modules"]}
    assert {snake(kind) for kind in kinds} <= packages
    assert {
        kind for kind in Score.__subclasses__() if kind.__module__.startswith("scores.")
    } == set(union)


def test_every_kind_is_documented() -> None:
    names = {path.stem for path in (ROOT / "docs" / "reasons").glob("*.md")}
    assert {*map(snake, base.KINDS), "engine", "manifest"} <= names


def snake(kind: str) -> str:
    """`SystemdUnit` as its package is named: `systemd_unit`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()


BASE = textwrap.dedent(
    """
    import sys

    allowed = set(sys.stdlib_module_names) | {
        "scores", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"
    }

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] not in allowed and not name.startswith("_sysconfigdata"):
                raise ImportError(f"a base install has no {name}")

    sys.meta_path.insert(0, Refuse())
    """
)


def bare(*lines: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may import the standard library and pydantic alone."""
    program = BASE + "\n".join(lines)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_an_author_needs_pydantic_alone() -> None:
    done = bare(
        "import pkgutil, importlib, scores",
        "for module in pkgutil.iter_modules(scores.__path__): importlib.import_module(f'scores.{module.name}')",
        "from scores import *",
        "m = Manifest(deployment='web', scores=[File(name='a', path='/srv/a', content='')])",
        "print(m.canonical().decode())",
    )
    assert done.stderr == ""
    assert done.stdout.startswith('{"deployment":"web"')
    assert bare("import anyio").returncode != 0


def test_the_updater_needs_pydantic_alone() -> None:
    done = bare(
        "allowed.add('harmony_updater'); allowed.discard('scores')",
        "import pkgutil, importlib, harmony_updater",
        "for module in pkgutil.walk_packages(harmony_updater.__path__, 'harmony_updater.'):",
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)",
        "print('imported')",
    )
    assert done.stdout == "imported\n", done.stderr


def test_an_author_is_spared_what_costs_time() -> None:
    done = bare(
        "import scores",
        "print([name for name in ('asyncio', 'socket', 'subprocess') if name in sys.modules])",
    )
    assert done.stdout.strip() == "[]", done.stdout
