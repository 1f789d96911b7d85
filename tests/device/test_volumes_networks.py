"""Volumes and networks through the whole agent on rootless podman: made, found by name, kept, changed,
lost, removed; and containers that wait for them by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scores import Manifest, Network, Volume
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.pods import CONFIG, PI, SERVE, SLEEP, Site, container, make, unmake
from tests.device.prepare import BUSYBOX

KINDS = ["Container", "Volume", "Network"]
DATA = {"type": "volume", "source": "data", "target": "/data"}
HOME = {"name": "home", "aliases": ["broker"], "address": "10.77.5.10"}
NET = Network(name="home", subnet="10.77.5.0/24")


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    made = make(lab, request.param, config={**CONFIG, "agent": {"device_id": PI, "kinds": KINDS}})
    made.device.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    yield made
    unmake(made)


@pytest.fixture(autouse=True)
def nothing_left(site: Site) -> Iterator[None]:
    """Each test's deployment goes, and what it left on purpose."""
    yield
    site.device.podman("rm", "--force", "--ignore", "--time=0", "theirs")
    status = site.control.status(PI, "web")
    if status is not None and status.phase != "Removed":
        site.remove()
    assert site.ours() == []
    site.device.podman("volume", "rm", "--all", "--force")
    assert networks(site) == ["podman"]


def volumes(site: Site) -> list[str]:
    return sorted(site.device.podman("volume", "ls", "--quiet").stdout.split())


def networks(site: Site) -> list[str]:
    return sorted(site.device.podman("network", "ls", "--format={{.Name}}").stdout.split())


def shown(site: Site, what: str, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(site.device.podman(what, "inspect", name).stdout)
    return found[0]


def within(site: Site, *command: str, name: str = "web") -> str:
    return site.device.podman("exec", name, *command, check=False).stdout


def test_a_set_up_with_names_addresses_and_data(site: Site) -> None:
    """No `after` says in which order; by their names the containers would come first."""
    volume = Volume(name="data", labels={"team": "x"})
    web = container("web", *SERVE, mounts=[DATA], networks=[HOME], hostname="inside")
    client = container("client", network="home")
    status = site.converge(web, client, NET, volume)
    assert status["Volume/data"]["status"]["state"] == "Present"
    assert status["Network/home"]["status"]["subnets"] == ["10.77.5.0/24"]
    assert shown(site, "volume", "data")["Labels"]["team"] == "x"
    for name in ("broker", "web"):
        assert "Address: 10.77.5.10" in within(site, "nslookup", name, name="client")
    within(site, "sh", "-c", "echo kept > /data/file")
    before = {name: site.run_of(name) for name in ("web", "client")}
    site.device.agent.restart()
    site.settle()
    assert {name: site.run_of(name) for name in before} == before
    changed = container("web", *SERVE, mounts=[DATA], networks=[HOME], hostname="other")
    site.converge(changed, client, NET, volume)
    assert within(site, "cat", "/data/file") == "kept\n"
    assert "inet 10.77.5.10/" in within(site, "ip", "-4", "-o", "addr")
    site.remove()
    assert (volumes(site), networks(site)) == (["data"], ["podman"])
    site.converge(container(mounts=[DATA]), volume)
    assert within(site, "cat", "/data/file") == "kept\n"


def test_a_reboot_brings_all_of_it_up(site: Site) -> None:
    web = container("web", *SERVE, mounts=[DATA], networks=[HOME])
    site.converge(web, NET, Volume(name="data"))
    before = site.run_of()
    site.device.reboot()
    found = site.until(
        "Container/web",
        lambda found: found["phase"] == "Ready" and site.run_of() != before,
        timeout=60,
    )
    assert (found["drift"], site.run_of()[0]) == (None, before[0])
    assert "inet 10.77.5.10/" in within(site, "ip", "-4", "-o", "addr")


def test_data_goes_only_where_that_is_said_and_after_its_containers(site: Site) -> None:
    volume = Volume(name="data", on_remove="delete-data")
    site.converge(container(mounts=[DATA]), volume)
    site.device.podman("run", "--detach", "--name=theirs", "--volume=data:/d", BUSYBOX, *SLEEP)
    site.control.apply(PI, Manifest(deployment="web", scores=[], allow_prune=2))
    site.said("Volume/data", "Blocked", "VolumeInUse")
    assert volumes(site) == ["data"]
    assert site.ours() == []
    site.device.podman("rm", "--force", "--time=0", "theirs")
    site.control.until(PI, "web", lambda status: not status.resources, 40)
    assert volumes(site) == []
    site.device.podman("volume", "create", "data")
    site.converge(volume)
    site.remove()
    assert volumes(site) == ["data"], "it was there before"


def test_what_differs_is_lost_or_is_not_ours(site: Site) -> None:
    site.converge(Volume(name="data"), NET)
    site.put(Volume(name="data", labels={"a": "b"}), NET)
    assert "labels" in site.said("Volume/data", "Blocked", "VolumeDiffers")["message"]
    site.converge(Volume(name="data"), NET)
    site.device.podman("volume", "rm", "data")
    site.device.podman("network", "rm", "home")
    for key in ("Volume/data", "Network/home"):
        assert site.repaired(key, 1)["fields"] == ["name"]
    site.converge(Volume(name="data"), Network(name="home", internal=True, labels={"a": "b"}))
    made = shown(site, "network", "home")
    assert (made["internal"], made["labels"]["a"]) == (True, "b")
    site.device.podman("network", "create", "theirs")
    site.put(Volume(name="data"), Network(name="theirs", internal=True))
    site.said("Network/theirs", "Blocked", "OwnershipConflict")
    site.converge(Volume(name="data"), Network(name="theirs"))
    site.remove()
    assert networks(site) == ["podman", "theirs"]
    site.device.podman("network", "rm", "theirs")


def test_a_changed_network_waits_for_its_containers(site: Site) -> None:
    web = container(network="home")
    site.converge(web, NET)
    before = site.run_of()
    site.put(web, Network(name="home", subnet="10.77.6.0/24"))
    site.said("Network/home", "Blocked", "NetworkInUse")
    assert site.run_of() == before
    site.converge(container(network="next"), Network(name="next", subnet="10.77.6.0/24"))
    assert networks(site) == ["next", "podman"]
    assert list(site.inspect()["NetworkSettings"]["Networks"]) == ["next"]


def test_networks_of_a_container_are_set_changed_drifted_and_removed(site: Site) -> None:
    nets = [NET, Network(name="back", internal=True)]
    site.converge(container(networks=[HOME, {"name": "back"}]), *nets)
    attached = site.inspect()["NetworkSettings"]["Networks"]
    assert sorted(attached) == ["back", "home"]
    assert "broker" in attached["home"]["Aliases"]
    before = site.run_of()
    site.device.agent.restart()
    site.settle()
    assert site.run_of() == before
    site.device.podman("network", "disconnect", "back", "web")
    assert "networks" in site.repaired("Container/web", 1)["fields"]
    assert sorted(site.inspect()["NetworkSettings"]["Networks"]) == ["back", "home"]
    site.converge(container(networks=[{**HOME, "address": "10.77.5.11"}]), *nets)
    assert "10.77.5.11" in within(site, "ip", "-4", "-o", "addr")
    site.converge(container(network="home"), *nets)
    assert list(site.inspect()["NetworkSettings"]["Networks"]) == ["home"]
