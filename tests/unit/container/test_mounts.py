"""What of the device a container may have: nothing that is the agent's, by no way."""

from __future__ import annotations

import pytest

from harmony_agent.core.errors import Transient
from harmony_agent.kinds.container.mount_guard import MountGuard
from harmony_agent.kinds.container.policy import binds
from scores.container import Container
from tests.fakes.containers import FakeEnvFiles

CLOSED = ("/etc/harmony", "/run/user")


def container(*sources: str) -> Container:
    mounts = [
        {"type": "bind", "source": source, "target": f"/m{n}"} for n, source in enumerate(sources)
    ]
    inits = [{"name": "i", "mounts": mounts}]
    return Container.model_validate(
        {"name": "web", "image": "x", "mounts": mounts, "init_containers": inits}
    )


def test_every_bind_is_named() -> None:
    assert list(binds(container("/srv/a", "/b"))) == [
        ("mounts[0].source", "/srv/a"),
        ("mounts[1].source", "/b"),
        ("init_containers[0].mounts[0].source", "/srv/a"),
        ("init_containers[0].mounts[1].source", "/b"),
    ]


@pytest.mark.parametrize(
    ("leads", "good"),
    [("/srv/a", True), ("/run/user/1000/bus", False), ("/run", False), ("/", False)],
)
async def test_a_link_is_seen_before_a_container_is_made(leads: str, good: bool) -> None:
    disk = FakeEnvFiles()
    disk.links["/srv/a"] = leads
    guard = MountGuard(disk, CLOSED)
    if good:
        await guard.check(container("/srv/a"))
        return
    with pytest.raises(Transient) as caught:
        await guard.check(container("/srv/a"))
    assert (caught.value.reason, caught.value.phase) == ("MountForbidden", "Blocked")
