"""Secrets on a device with the packages, which joined over TLS: each value is where its Score puts it, and
is searched for everywhere else. Rotated, rebooted.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scores import File
from scores.secrets import Secret
from tests.device.joining import Authority
from tests.device.lab import Lab
from tests.device.life import PI
from tests.device.machine import Device
from tests.device.packages import AGENT, Installed, built, unjoined
from tests.device.pods import container

BUNDLE, PATTERNS = "/root/pi-01.bundle", "/dev/shm/patterns"
CONF, STORE = "/srv/app.conf", "/var/lib/fleet-agent/.local/share/containers/storage"
MOUNTED = "/run/harmony-agent/secrets/box/run%2Fsecrets%2Fmounted"
VALUES = {
    "filed": "planted-in-a-file-7h3",
    "mounted": "planted-in-memory-9kq",
    "loud": "planted-in-env-2xw",
}
AGAIN = "planted-when-rotated-5mz"
SCORES = (
    File(name="conf", path=CONF, template=["password = ", Secret("filed"), "\n"]),
    container("box", secrets=[{"secret": "mounted"}]),
    container("loud", env={"PASSWORD": {"secret": "loud"}}),
)


@pytest.mark.timeout(900)
def test_a_value_is_where_its_score_puts_it_and_nowhere_else(lab: Lab, suite: str) -> None:
    with unjoined(lab, suite) as (device, lan), tempfile.TemporaryDirectory(prefix="hs-") as folder:
        authority, site = Authority(Path(folder), lan), Installed(device, None, lan)
        joined(site, authority, built(lab, suite, "0.1.0"))
        for name, value in VALUES.items():
            give(authority, name, value)
        converge(authority)
        assert device.read_text(CONF) == f"password = {VALUES['filed']}\n"
        assert inside(device, "box") == VALUES["mounted"]
        assert environment(device, "loud") == VALUES["loud"]
        found_nowhere_else(device, authority, lan.nats.folder)

        before, inode = ids(device), device.run(["stat", "--format=%i", CONF]).stdout
        device.systemctl("restart", AGENT)
        give(authority, "mounted", AGAIN)
        eventually(lambda: inside(device, "box"), lambda found: found == AGAIN)
        converge(authority)
        after = ids(device)
        assert (after["box"] != before["box"], after["loud"]) == (True, before["loud"])
        assert device.run(["stat", "--format=%i", CONF]).stdout == inode

        device.reboot()
        eventually(lambda: inside(device, "box"), lambda found: found == AGAIN)
        assert ids(device) == after
        found_nowhere_else(device, authority, lan.nats.folder)


def joined(site: Installed, authority: Authority, debs: list[Path]) -> None:
    bundle = authority.bundle(PI, "enroll", "--root", "/srv")
    site.install(*debs)
    site.device.write(BUNDLE, bundle.read_bytes(), mode=0o600)
    site.device.run(["harmony-agent", "join", BUNDLE], timeout=120)
    site.load_image()
    place = authority.folder / "app.json"
    scores = [score.wire() for score in SCORES]
    place.write_text(json.dumps({"deployment": "app", "scores": scores}))
    authority("apply", str(place), "--device", PI, "--no-wait")


def give(authority: Authority, name: str, value: str) -> None:
    with tempfile.NamedTemporaryFile(dir=authority.folder) as file:
        Path(file.name).write_text(value)
        authority("secret", "set", name, "--device", PI, "--file", file.name)


def converge(authority: Authority) -> None:
    authority("wait", "app", "--device", PI, "--timeout", "120s")


def inside(device: Device, name: str) -> str:
    done = device.podman("exec", name, "cat", "/run/secrets/mounted", check=False)
    return str(done.stdout)


def environment(device: Device, name: str) -> str:
    words = device.podman("exec", name, "env").stdout.splitlines()
    return next(word.partition("=")[2] for word in words if word.startswith("PASSWORD="))


def ids(device: Device) -> dict[str, str]:
    ran = device.podman("ps", "--all", "--no-trunc", "--format={{.Names}} {{.ID}}")
    return dict(line.split() for line in ran.stdout.splitlines())


def eventually(look: Callable[[], Any], good: Callable[[Any], bool], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not good(found := look()):
        assert time.monotonic() < until, found
        time.sleep(0.5)


def forms(value: str) -> list[bytes]:
    raw = value.encode()
    return [raw, base64.b64encode(raw)[:-4]]


def found_nowhere_else(device: Device, authority: Authority, server: Path) -> None:
    """Look through the server's files, the operator's home, and all of the device."""
    kept = [path for folder in (server, authority.folder) for path in folder.rglob("*")]
    assert any(path.name == "KV_secrets" for path in kept), "the server's store is among them"
    for value in (*VALUES.values(), AGAIN):
        assert [path for path in kept if path.is_file() and holds(path, value)] == []
    loud = VALUES["loud"]
    others = [value for value in (*VALUES.values(), AGAIN) if value != loud]
    assert search(device, others) == {CONF, MOUNTED}
    assert {path for path in search(device, [loud]) if not path.startswith(STORE)} == set()
    shown = device.run(["ps", "auxww"]).stdout + "\n".join(device.messages())
    shown += (
        device.run(["harmony-agent", "status"]).stdout
        + device.run(["harmony-agent", "plan"]).stdout
    )
    shown += device.podman("inspect", "box").stdout + authority("get", "app", "-o", "json")
    shown += authority("status", "-o", "json") + authority("secret", "list")
    assert [value for value in (*VALUES.values(), AGAIN) if value in shown] == []


def search(device: Device, values: list[str]) -> set[str]:
    """The files of the device that hold one of these."""
    device.write(PATTERNS, b"\n".join(form for value in values for form in forms(value)) + b"\n")
    grep = ["grep", "-rlaF", "-f", PATTERNS, "--exclude-dir=proc", "--exclude-dir=sys", "/"]
    found = set(device.run(grep, check=False, timeout=240).stdout.split())
    device.run(["rm", PATTERNS])
    return found - {PATTERNS}


def holds(path: Path, value: str) -> bool:
    data = path.read_bytes()
    return any(form in data for form in forms(value))
