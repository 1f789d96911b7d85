"""The console blocks of author.md, client.md and operate.md, typed as they stand where the operator is:
by a shell, in a folder of their own, against a real server and an agent.

Those that a person types on a device, and those of a server with an authority, are of
tests/device/test_install_guide.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import guide
from tests.guide import Typed
from tests.integration.agent import converged, live, manifest
from tests.integration.operator import Operator
from tests.natsserver import NatsServer

SITE_TAR = 7_340_032
COMPOSE = "services:\n  web:\n    image: docker.io/library/nginx:1.27\n    ports: ['8080:80']\n"
QUADLET = """\
[Container]
Image=docker.io/koenkk/zigbee2mqtt:2
Volume=z2m.volume:/app/data
"""
Shell = Any


@pytest.fixture
def shell(nats_server: NatsServer, tmp_path: Path) -> Shell:
    operator = Operator(nats_server, tmp_path / "home")
    environment = os.environ | operator.environment() | {"COLUMNS": "80"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    async def type_(typed: Typed) -> None:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            typed.line,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            cwd=operator.folder,
        )
        said = (await process.communicate())[0].decode()
        fails = any(line.startswith("error:") for line in typed.shows)
        assert (process.returncode != 0) is fails, (typed.line, said)
        assert guide.unseen([line for line in typed.shows if line], said) == [], said
        assert fails or "Traceback" not in said

    type_.folder = operator.folder  # type: ignore[attr-defined]
    return type_


def the_authors_files(folder: Path) -> None:
    """What the author has before they read author.md."""
    (folder / "docker-compose.yaml").write_text(COMPOSE)
    (folder / "zigbee2mqtt.container").write_text(QUADLET)
    (folder / "z2m.volume").write_text("[Volume]\n")
    (folder / "build").mkdir()
    (folder / "build" / "site.tar").write_bytes(bytes(SITE_TAR))


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("author.md", "Bring what you have"),
        ("author.md", "What a field means"),
        ("author.md", "Content that is too large for a manifest"),
        ("client.md", "From another language"),
    ],
)
async def test_the_blocks_of_a_section(shell: Shell, page: str, title: str) -> None:
    the_authors_files(shell.folder)
    typed = [
        one
        for block in guide.section(page, title)
        if block.language == "console"
        for one in block.typed
    ]
    assert typed
    for one in typed:
        await shell(one)


async def test_keep_it_running_and_change_nothing(
    shell: Shell, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with live(nats_server, tmp_path / "state") as (_agent, plane):
        await plane.put(manifest(1, "wanted"))
        await plane.until(converged(1))
        [block] = guide.section("operate.md", "Keep it running, and change nothing")
        for typed in block.typed:
            shows = [re.sub(r"\d\d-\d\d \d\d:\d\d\S*,", "…", line) for line in typed.shows]
            await shell(Typed(typed.line, shows))


async def test_a_key_is_made_shown_and_retired(shell: Shell) -> None:
    """`Signing keys`, with the id of the key that it made."""
    await shell(Typed("harmony fleet init", ["made … at generation 1; …"]))
    await shell(Typed("harmony fleet key new"))
    keys = shell.folder.parent / "fleet" / "keys"
    first = next(keys.iterdir()).name[:16]
    for block in guide.section("operate.md", "Signing keys"):
        for typed in block.typed:
            await shell(Typed(re.sub(r"\b[0-9a-f]{16}\b", first, typed.line), typed.shows))
    assert len(list(keys.iterdir())) > 1


async def test_the_fleet_of_the_readme_is_one_that_its_upgrade_selects(shell: Shell) -> None:
    readme = (guide.DOCS.parent / "README.md").read_text("utf-8")
    lines = [line for line in readme.splitlines() if line.startswith("harmony fleet ")]
    [upgrade] = re.findall(r"`(harmony upgrade start [^`]+)`", readme)
    examples = guide.DOCS.parent / "examples"
    for line in lines:
        if not line.startswith("harmony fleet apply"):
            await shell(Typed(line.replace("examples/", f"{examples}/")))
    found = "error: cannot start a run: 2 of the selected can't be upgraded: pi-01 (…), pi-02 (…)"
    await shell(Typed(upgrade, [found]))  # they are those, and were never there
