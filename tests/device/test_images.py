"""Images from a real registry with TLS and a login: pinned, cut off and gone on, without room, one
after the other.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nats.js.errors import NoKeysError
from nats.js.kv import KeyValue

from harmony_fleet.manifests.sealing import seal
from scores import Container
from scores.canonical import read
from scores.keys import INFO, SECRETS
from scores.secrets import read_key
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.pods import CONFIG, PI, SLEEP, Site, make, unmake
from tests.device.registry import PASSWORD, USER_NAME, Pushed, Registry, busybox, layer

MB = 1_000_000
WRONG = "battery-staple-of-nobody"
BOUNDS = {"images": {"keep_seconds": 0, "min_free": "1Mi"}}


class Shop(Site):
    """A site with a registry in its lan."""

    registry: Registry

    def web(self, image: str, **fields: Any) -> Container:
        """A container of an image that has busybox in it."""
        base = {"name": "web", "image": image, "command": SLEEP, "stop_grace_seconds": 0}
        base["login"] = {"user": USER_NAME, "password": {"secret": "registry"}}
        return Container.model_validate({**base, **fields})

    def give(self, name: str, value: str) -> None:
        """Seal a secret for the device, which tells its key."""
        jetstream, do = self.control.jetstream, self.control.do
        info = do(jetstream.key_value(INFO))
        deadline = time.monotonic() + 30
        while f"info.{PI}" not in _keys(do, info) and time.monotonic() < deadline:
            time.sleep(0.2)
        told = do(info.get(f"info.{PI}")).value
        assert told is not None
        public = read_key(read(told, 65536)["sealing"]["key"])
        sealed = seal(public, PI, name, 1, value.encode())
        do(do(jetstream.key_value(SECRETS)).put(f"{PI}.{name}", sealed.canonical()))

    def push(self, tag: str, *sizes: int) -> Pushed:
        """An image of busybox and layers of these sizes. It has one at the least: podman takes
        an image with just the layers of another one for that one's base.
        """
        layers = [layer(f"part{number}", size) for number, size in enumerate(sizes or (1000,))]
        return self.registry.push("web", tag, [busybox(self.device), *layers])

    def stored(self) -> set[str]:
        """The ids of the images that came from the registry."""
        shown = self.device.podman(
            "images", "--all", "--no-trunc", "--format={{.ID}} {{.Repository}}"
        )
        lines = [line.split() for line in shown.stdout.splitlines()]
        return {
            ident.removeprefix("sha256:")
            for ident, name in lines
            if not name.startswith("localhost/")
        }


def _keys(do: Callable[[Any], Any], bucket: KeyValue) -> list[str]:
    try:
        found: list[str] = do(bucket.keys())
    except NoKeysError:
        return []
    return found


@pytest.fixture(scope="module", params=SUITES)
def shop(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Shop]:
    site = make(lab, request.param, config={**CONFIG, **BOUNDS})
    made = Shop(site.device, site.control, site.lan)
    made.registry = Registry(lab._run, site.lan).start()
    made.registry.trusted_by(made.device)
    made.give("registry", PASSWORD)
    made.give("wrong", WRONG)
    yield made
    made.registry.close()
    unmake(site)


@pytest.fixture(autouse=True)
def nothing_left(shop: Shop) -> Iterator[None]:
    """Each test's deployment goes, and with it every image that it pulled."""
    yield
    shop.remove()
    deadline = time.monotonic() + 30
    while shop.stored() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert shop.stored() == set()


def test_a_digest_pins_the_image(shop: Shop) -> None:
    first, second = shop.push("1"), shop.push("1", 1000)
    shop.converge(shop.web(first.pinned))
    assert shop.inspect()["Image"] == first.id
    tagged = second.tagged + "@" + second.pinned.partition("@")[2]
    shop.converge(shop.web(tagged))
    assert shop.inspect()["Image"] == second.id
    run = shop.run_of()
    shop.settle()
    assert shop.run_of() == run


def test_a_wrong_login_is_said_and_no_password_stays(shop: Shop) -> None:
    old, new = shop.push("old"), shop.push("new")
    shop.converge(shop.web(old.tagged))
    run = shop.run_of()
    wrong = {"user": USER_NAME, "password": {"secret": "wrong"}}
    shop.put(shop.web(new.tagged, login=wrong))
    told = shop.said("Container/web", "Degraded", "PullFailed")
    assert "authentication required" in told["message"]
    assert shop.run_of() == run
    shop.put(shop.web(new.tagged))
    shop.until("Container/web", lambda found: found["phase"] == "Ready")
    device, texts = shop.device, [PASSWORD, WRONG]
    texts += [base64.b64encode(f"{USER_NAME}:{one}".encode()).decode() for one in texts]
    places = ["/home", "/run", "/tmp", "/var/tmp", "/var/lib/harmony-agent", "/etc", "/var/log"]
    words = [f"--regexp={text}" for text in texts]
    quiet = ["--recursive", "--files-with-matches", "--no-messages", "--exclude-dir=overlay"]
    quiet += ["--devices=skip", "--exclude-dir=systemd"]
    assert device.run(["grep", *quiet, *words, *places], check=False).stdout == ""
    shown = str(shop.control.raw_status(PI, "web")) + "\n".join(device.messages())
    assert not [text for text in texts if text in shown]


def test_twenty_versions_leave_one(shop: Shop) -> None:
    worked: list[str] = []
    for number in range(20):
        image = shop.push(f"{number}", 100_000)
        shop.converge(shop.web(image.tagged))
        worked.append(image.id)
    shop.device.podman("tag", worked[-1], "localhost/mine:1")
    deadline = time.monotonic() + 30
    while shop.stored() - {worked[-1]} and time.monotonic() < deadline:
        time.sleep(0.5)
    assert shop.stored() == {worked[-1]}
    shop.device.podman("rmi", "localhost/mine:1")


def test_a_pull_that_is_cut_goes_on_while_the_old_one_runs(shop: Shop) -> None:
    old, new = shop.push("old"), shop.push("new", 20 * MB, 90 * MB, 90 * MB)
    shop.converge(shop.web(old.tagged))
    run = shop.run_of()
    shop.device.link.slow("200mbit")
    shop.put(shop.web(new.tagged))

    def partly(found: dict[str, Any]) -> bool:
        pull = found["status"].get("pull")
        return pull is not None and pull["layers_done"] >= 2 and pull["bytes"] >= 40 * MB

    told = shop.until("Container/web", partly)
    assert (told["phase"], told["reason"]) == ("Progressing", "Pulling")
    assert (told["status"]["state"], told["status"]["id"]) == ("Running", run[0])
    assert told["status"]["pull"]["bytes_per_second"] > MB
    assert f"pulling {new.tagged}: 2 of 4 layers" in told["message"]
    shop.registry.kill()
    shop.said("Container/web", "Degraded", "PullFailed")
    assert shop.run_of() == run
    shop.registry.start()
    ready = shop.until("Container/web", lambda found: found["phase"] == "Ready", timeout=90)
    assert "pull" not in ready["status"]
    assert shop.inspect()["Image"] == new.id
    assert shop.registry.served(new.layers[1]) == 1


def test_a_full_disk_is_said_and_what_runs_goes_on(shop: Shop) -> None:
    old, new = shop.push("old"), shop.push("new", 30 * MB)
    shop.converge(shop.web(old.tagged))
    run = shop.run_of()
    shop.device.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=1777", "tmpfs", "/var/tmp"])
    try:
        shop.put(shop.web(new.tagged))
        told = shop.said("Container/web", "Degraded", "NoSpace")
        assert "no space left on device" in told["message"]
        assert shop.run_of() == run
    finally:
        shop.device.run(["umount", "/var/tmp"])
    shop.until("Container/web", lambda found: found["phase"] == "Ready", timeout=60)
    assert shop.inspect()["Image"] == new.id


def test_what_is_to_stay_free_stays_free(shop: Shop) -> None:
    old, new = shop.push("old"), shop.push("new")
    shop.converge(shop.web(old.tagged))
    run = shop.run_of()
    shop.device.agent.configure({**CONFIG, "images": {"min_free": "1024Gi"}})
    shop.device.agent.restart()
    shop.put(shop.web(new.tagged, hostname="h"))
    assert "are to stay so" in shop.said("Container/web", "Degraded", "NoSpace")["message"]
    assert shop.run_of() == run
    shop.device.agent.configure({**CONFIG, **BOUNDS})
    shop.device.agent.restart()
    shop.until("Container/web", lambda found: found["phase"] == "Ready", timeout=60)
