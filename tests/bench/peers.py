"""The same files kept by what a user would pick instead: cf-agent, puppet, ansible, salt, pyinfra.
Takes many minutes.

    python -m tests.bench.peers [NAME …]

Each is given the way that is fastest for it (a recursive copy where it has one). As root it
installs Debian's cf-agent and puppet, without starting their services; ansible-core, salt and
pyinfra go into virtual environments below .cache. A peer's figure is of its whole process and its
children; it has to be started each time, which is how it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import passes
from tests.bench.__main__ import OUT, RESULTS, _disk
from tests.bench.report import Report, Row, median
from tests.bench.world import ROOT, plane
from tests.natsserver import NatsServer

COUNTS: Final = (200, 1000)
NOOPS: Final = 3
_VENVS: Final = ROOT / ".cache" / "peers"
_PACKAGES: Final = {"cf-agent": "cfengine3", "puppet": "puppet-agent"}
_MODULES: Final = {"ansible": "ansible-core", "salt": "salt", "pyinfra": "pyinfra"}
_POLICY: Final = Path("/usr/sbin/policy-rc.d")

_CF: Final = """
body common control {{ bundlesequence => {{ "main" }}; }}
body copy_from local {{ source => "{source}"; compare => "digest"; }}
body depth_search all {{ depth => "inf"; }}
bundle agent main {{ files: "{target}/." copy_from => local, depth_search => all, create => "true"; }}
"""
_PUPPET: Final = (
    "file {{ '{target}': ensure => directory, recurse => true, source => 'file://{source}' }}\n"
)
_ANSIBLE: Final = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
  - command: rsync --recursive --checksum --perms {source}/ {target}/
"""
_SALT: Final = "{target}:\n  file.recurse:\n  - source: salt://source\n"
_PYINFRA: Final = (
    "from pyinfra.operations import files\nfiles.sync(src='{source}', dest='{target}')\n"
)


@dataclass(frozen=True)
class Took:
    """Seconds of wall and of processor."""

    wall: float
    cpu: float


def _cf_agent(folder: Path, source: Path, target: Path) -> list[str]:
    policy = folder / "policy.cf"
    policy.write_text(_CF.format(source=source, target=target))
    policy.chmod(0o600)
    return ["cf-agent", "--no-lock", "--file", str(policy)]


def _puppet(folder: Path, source: Path, target: Path) -> list[str]:
    manifest = folder / "site.pp"
    manifest.write_text(_PUPPET.format(source=source, target=target))
    places = [
        f"--{name}={folder}/puppet/{name}" for name in ("confdir", "vardir", "rundir", "logdir")
    ]
    return ["puppet", "apply", *places, str(manifest)]


def _ansible(folder: Path, source: Path, target: Path) -> list[str]:
    book = folder / "book.yml"
    book.write_text(_ANSIBLE.format(source=source, target=target))
    python = f"ansible_python_interpreter={_VENVS}/ansible/bin/python"
    return [
        str(_VENVS / "ansible/bin/ansible-playbook"),
        "-i",
        "localhost,",
        "-e",
        python,
        str(book),
    ]


def _salt(folder: Path, source: Path, target: Path) -> list[str]:
    roots = folder / "salt"
    (roots / "conf").mkdir(parents=True, exist_ok=True)
    (roots / "states").mkdir(exist_ok=True)
    (roots / "conf" / "minion").write_text(f"root_dir: {roots}/root\nfile_client: local\n")
    with contextlib.suppress(FileExistsError):
        (roots / "states" / "source").symlink_to(source)
    (roots / "states" / "files.sls").write_text(_SALT.format(target=target))
    call = [str(_VENVS / "salt/bin/salt-call"), "--local", f"--config-dir={roots}/conf"]
    return [*call, f"--file-root={roots}/states", "--log-level=error", "state.apply", "files"]


def _pyinfra(folder: Path, source: Path, target: Path) -> list[str]:
    deploy = folder / "deploy.py"
    deploy.write_text(_PYINFRA.format(source=source, target=target))
    return [str(_VENVS / "pyinfra/bin/pyinfra"), "-y", "@local", str(deploy)]


PEERS: Final[dict[str, Callable[[Path, Path, Path], list[str]]]] = {
    "cf-agent": _cf_agent,
    "ansible": _ansible,
    "salt": _salt,
    "puppet": _puppet,
    "pyinfra": _pyinfra,
}


def install(name: str) -> str:
    """Make a peer ready; "" or why it can't be."""
    try:
        if name in _MODULES:
            _install_module(name)
            if name == "ansible" and shutil.which("rsync") is None:
                _install_package("rsync")
        elif shutil.which(name) is None:
            if os.geteuid():
                return "needs root to be installed"
            _install_package(_PACKAGES[name])
    except (OSError, subprocess.CalledProcessError) as error:
        return f"could not be installed: {error}"
    return ""


def _install_module(name: str) -> None:
    place = _VENVS / name
    done = place / ".made"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        pip = [
            str(place / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, _MODULES[name]], check=True)
        done.touch()


def _install_package(package: str) -> None:
    with _no_services():
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        wait = "DPkg::Lock::Timeout=120"
        words = ["apt-get", "install", "-o", wait, "-y", "-qq", "--no-install-recommends", package]
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(words, check=True, env=quiet, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """While packages are installed, their services aren't started: only the commands are wanted."""
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink()


def _run(words: list[str], log: Path) -> Took:
    env = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "1"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with log.open("ab") as out:
        code = subprocess.run(
            words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env, check=False
        ).returncode
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise RuntimeError(
            f"{words[0]} ended with {code}: {log.read_text(errors='replace')[-400:]}"
        )
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(name: str, folder: Path, count: int) -> tuple[Took, Took]:
    """Its first run, which makes the files, and the median of those that find nothing to do."""
    place = folder / f"{name}-{count}"
    source, target = place / "source", place / "target"
    source.mkdir(parents=True)
    target.mkdir()
    for at in range(count):
        (source / f"f{at}").write_text(passes.CONTENT)
    words, log = PEERS[name](place, source, target), place / "log"
    first = _run(words, log)
    right = sum((target / f"f{at}").read_text() == passes.CONTENT for at in range(count))
    if right != count:
        raise RuntimeError(
            f"made {right} of {count} files right: {log.read_text(errors='replace')[-400:]}"
        )
    noops = [_run(words, log) for _ in range(NOOPS)]
    return first, Took(median([one.wall for one in noops]), median([one.cpu for one in noops]))


async def run(report: Report, names: list[str]) -> None:
    """Ours, then each peer."""
    with tempfile.TemporaryDirectory(prefix="peers-", dir=_disk()) as folder_name:
        folder = Path(folder_name)
        with NatsServer(folder / "nats") as server:
            async with plane(server) as control:
                _rows, first = await passes.measure_first(control, server.url, folder, 3)
        cpu = {count: (await passes.measure_noop(folder, count, 30))[1] for count in COUNTS}
        best: dict[int, float] = {}
        for name in names:
            why = await asyncio.to_thread(install, name)
            for count in COUNTS if not why else ():
                try:
                    made, idle = await asyncio.to_thread(measure, name, folder, count)
                except (RuntimeError, OSError) as error:
                    why = str(error)
                    break
                best[count] = min(best.get(count, idle.cpu), idle.cpu)
                report.add(_compared(name, count, made, idle, first, cpu[count]))
            if why:
                report.add([Row(name, "-", "-", "-", "-", None, why)])
        report.add([_best(count, best[count], cpu[count]) for count in best])


def _compared(name: str, count: int, made: Took, idle: Took, first: float, cpu: float) -> list[Row]:
    rows = [
        Row(
            f"no-op over {count} Files, CPU: {name}", f"{idle.cpu * 1e3:.0f} ms", f"{cpu * 1e3:.2f} ms",
            f"{idle.cpu / cpu:.0f} x less", "-", None,
        )
    ]  # fmt: skip
    if count == passes.FIRST:
        rows.append(
            Row(
                f"first convergence of {count} Files: {name}", f"{made.wall * 1e3:.0f} ms", f"{first * 1e3:.0f} ms",
                f"{made.wall / first:.1f} x faster", "ahead", first < made.wall,
                "ours is durable file by file; of the peers puppet alone syncs what it writes",
            )
        )  # fmt: skip
    return rows


def _best(count: int, theirs: float, ours: float) -> Row:
    return Row(
        f"no-op over {count} Files, CPU: the best peer", f"{theirs * 1e3:.0f} ms", f"{ours * 1e3:.2f} ms",
        f"{theirs / ours:.0f} x less", "at least 50 x less", theirs >= 50 * ours,
    )  # fmt: skip


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        print(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}", file=sys.stderr)
        return 2
    report = Report("make bench-peers")
    asyncio.run(run(report, names or list(PEERS)))
    print("\n" + report.table())
    if not names:
        report.write("peers", RESULTS, OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
