"""The packages for arm64 on an emulated Debian: installed, run as the service runs, a File kept, a
real server.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scores import File, Manifest
from tests.arm64.emulated import Root, emulation, missing
from tests.device.agent import to_toml
from tests.device.control import LINEAGE, Control
from tests.device.image import SUITES
from tests.device.lab import Lab, ServedLan
from tests.device.life import PI
from tests.device.storage import REPOSITORY
from tests.device.tools import call

SECONDS = 300.0
PAGE = File(name="page", path="/srv/web/page", content="page\n", parents=True, mode="0640")


@dataclass
class Site:
    """The Debian, and the server."""

    root: Root
    lan: ServedLan
    folder: Path


@pytest.fixture(scope="module", params=SUITES)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    if lacks := missing():
        pytest.fail("; ".join(lacks), pytrace=False)
    folder = tmp_path_factory.mktemp("arm64")
    packages = ("--package", "harmony-agent", "--package", "harmony-updater")
    build = [
        sys.executable,
        str(REPOSITORY / "deploy/deb/build.py"),
        "--suite",
        request.param,
        "--arch",
        "arm64",
    ]
    call(*build, *packages, "--compression", "none", "--no-lint", "--out", str(folder), timeout=600)
    with emulation(), Root.made(request.param) as root, Lab() as lab:
        names = [f"/root/{path.name}" for path in folder.glob("*.deb")]
        for name in names:
            shutil.copy(folder / Path(name).name, root.folder / "root")
        root.run(
            "apt-get", "install", "-y", "-q", "--no-install-recommends", *names, timeout=SECONDS * 3
        )
        lan = lab.lan()
        config: dict[str, dict[str, Any]] = {
            "agent": {"device_id": PI, "kinds": ["File"]},
            "nats": {"servers": [lan.nats.host_url]},
            "intervals": {"heartbeat": 5, "relist": 2, "poll": 2},
        }
        root.write("/etc/harmony/agent.toml", to_toml(config))
        root.run("chgrp", "harmony-agent", "/etc/harmony/agent.toml")
        root.run("/usr/lib/harmony-agent/prepare")
        yield Site(root, lan, folder)


@pytest.fixture
def control(site: Site) -> Iterator[Control]:
    with Control(site.lan.nats.host_url) as made:
        yield made


@pytest.fixture
def agent(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """The agent as `harmony-agent run` by root, which takes on the service's identity."""
    process = site.root.start("harmony-agent", "run", log=site.folder / "agent.log")
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, (site.folder / "agent.log").read_text(encoding="utf-8")


def eventually(good: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not good():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_it_is_the_other_processor_and_every_library_is_for_it(site: Site) -> None:
    code = "import platform, nacl.bindings, sdbus, pydantic_core, harmony_agent.app; print(platform.machine())"
    assert site.root.run("/opt/harmony/agent/bin/python3", "-I", "-c", code).stdout == "aarch64\n"
    for command in ("harmony-agent", "harmony-updater"):
        assert site.root.run(command, "version").stdout.count(".") == 2


def test_check_and_plan_say_what_the_service_sees(site: Site, control: Control) -> None:
    said = site.root.run("harmony-agent", "check").stdout
    assert "MISSING" not in said
    assert "File root: /srv" in said
    manifest = Manifest(deployment="web", scores=[PAGE]).bind(PI, LINEAGE, 1)
    site.root.write("/srv/manifest.json", manifest.canonical().decode())
    planned = site.root.run("harmony-agent", "plan", "/srv/manifest.json", check=False).stdout
    assert "File/page" in planned
    assert not (site.root.folder / "srv/web").exists()


def test_a_file_converges_and_drift_is_repaired(
    site: Site, control: Control, agent: subprocess.Popen[bytes]
) -> None:  # fmt: skip
    page = site.root.folder / "srv/web/page"
    control.converge(PI, Manifest(deployment="web", scores=[PAGE]), SECONDS)
    assert page.read_text(encoding="utf-8") == "page\n"
    assert site.root.run("stat", "--format=%U:%a", "/srv/web/page").stdout == "fleet-agent:640\n"
    page.write_text("by hand", encoding="utf-8")
    eventually(lambda: page.read_text(encoding="utf-8") == "page\n", "it is repaired")
    figures(site, agent.pid)
    control.remove(PI, "web", SECONDS)
    assert not page.exists()


def figures(site: Site, pid: int) -> None:
    """Memory under emulation: the emulator's own counts in both, so that the difference is what the
    agent adds.
    """
    code = "import time; print('up', flush=True); time.sleep(1000)"
    idle = site.root.start("/usr/bin/python3", "-IS", "-c", code, log=site.folder / "idle.log")
    try:
        eventually(
            lambda: (site.folder / "idle.log").read_text(encoding="utf-8") == "up\n", "it idles"
        )
        agent, python = rss(pid), rss(idle.pid)
    finally:
        idle.kill()
        idle.wait()
    installed = site.root.run(
        "du", "--summarize", "--block-size=1K", "/opt/harmony/agent"
    ).stdout.split()[0]
    print(
        f"\narm64: agent {agent:.1f} MB with the emulator, an idle Python {python:.1f} MB; {installed} KB installed"
    )


def rss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1000


def test_purged_it_leaves_nothing(site: Site) -> None:
    site.root.run(
        "apt-get", "purge", "-y", "-q", "harmony-agent", "harmony-updater", timeout=SECONDS
    )
    for path in ("etc/harmony", "opt/harmony", "var/lib/harmony-agent", "var/lib/fleet-agent"):
        assert not (site.root.folder / path).exists(), path
    assert "fleet-agent" not in (site.root.folder / "etc/passwd").read_text(encoding="utf-8")
