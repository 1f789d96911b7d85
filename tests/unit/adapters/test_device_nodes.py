"""Device nodes of this machine, by links that come, go and lead elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harmony_agent.adapters.device_nodes import LocalDeviceNodes


@pytest.fixture
def nodes() -> LocalDeviceNodes:
    return LocalDeviceNodes(rootless=True)


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Path]:
    """A link in a directory that isn't there, as below /dev/serial without a stick."""
    return tmp_path / "serial" / "by-id" / "stick"


def lead(link: Path, target: str) -> None:
    """As udev does it: a new link takes the place of the one before."""
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(".new")
    fresh.symlink_to(target)
    fresh.rename(link)


async def test_a_node_by_its_link(nodes: LocalDeviceNodes, link: Path) -> None:
    lead(link, "/dev/zero")
    found = (await nodes.look([str(link)]))[str(link)]
    assert found is not None
    assert (found.number, found.access) == ("/dev/zero c 1:5", "rw")
    assert found.plug.startswith(found.number)
    lead(link, "/dev/null")
    other = (await nodes.look([str(link)]))[str(link)]
    assert other is not None
    assert other.number == "/dev/null c 1:3"
    assert other.group == "root"


async def test_nothing_there_a_directory_and_a_loop(nodes: LocalDeviceNodes, link: Path) -> None:
    assert await nodes.look([str(link)]) == {str(link): None}
    lead(link, str(link.parent))
    found = (await nodes.look([str(link)]))[str(link)]
    assert found is not None
    assert found.type == ""
    lead(link, str(link))
    assert await nodes.look([str(link)]) == {str(link): None}


async def test_rootful_podman_opens_everything(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    path.touch()
    path.chmod(0)
    for rootless in (True, False):
        found = (await LocalDeviceNodes(rootless=rootless).look([str(path)]))[str(path)]
        assert found is not None
        assert (found.access == "rw") is (not rootless or os.getuid() == 0)


async def test_it_hears_of_a_link_that_comes_goes_and_leads_elsewhere(
    nodes: LocalDeviceNodes, link: Path
) -> None:
    heard = asyncio.Event()

    async def hears() -> None:
        await asyncio.wait_for(heard.wait(), 10)
        heard.clear()
        await nodes.look([str(link)])

    target = link.parents[2] / "node"
    with nodes.listening(lambda path: heard.set() if path == str(link) else None):
        nodes.retain([str(link)])
        await nodes.look([str(link)])
        for _ in range(3):
            target.touch()
            lead(link, str(target))
            await hears()
            while (await nodes.look([str(link)]))[str(link)] is None:
                await hears()
            heard.clear()
            target.unlink()  # the link stays, the node goes
            await hears()
            link.unlink()
            await hears()
            link.parent.rmdir()
            link.parents[1].rmdir()
        nodes.retain([])


async def test_it_hears_nothing_of_writes(nodes: LocalDeviceNodes, tmp_path: Path) -> None:
    """Each process that writes to /dev/null would wake the agent."""
    path, after = tmp_path / "node", tmp_path / "after"
    path.touch()
    heard: asyncio.Queue[str] = asyncio.Queue()
    with nodes.listening(heard.put_nowait):
        await nodes.look([str(path), str(after)])
        path.write_text("x")
        after.touch()
        assert await asyncio.wait_for(heard.get(), 10) == str(after)
