"""A device with the packages joins a fleet by its bundle, over TLS, and is told what to do where it
can't.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scores import File, SystemUpgrade
from tests.device.aptrepo import Repository
from tests.device.joining import Authority
from tests.device.lab import Lab, ServedLan
from tests.device.life import PI, one_of_each
from tests.device.machine import Device
from tests.device.packages import AGENT, UPDATER, Installed, built, unjoined
from tests.device.tools import call
from tests.device.upgrades import LATER

CONFIG = "/etc/harmony"
PLACE = "/root/pi-01.bundle"
FILES = ("agent.toml", "ca.pem", "device.key", "nats.creds", "updater.toml")


def give(site: Installed, bundle: Path) -> None:
    site.device.write(PLACE, bundle.read_bytes(), mode=0o600)


def join(site: Installed, *words: str, code: int = 0) -> str:
    done = site.device.run(["harmony-agent", "join", PLACE, *words], check=False, timeout=120)
    assert done.rc == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def modes(site: Installed) -> list[str]:
    found = [f"{CONFIG}/{name}" for name in FILES]
    return sorted(set(site.device.run(["stat", "--format=%U:%G %a", *found]).stdout.splitlines()))


@pytest.mark.timeout(600)
def test_from_a_login_over_ssh_to_a_revoked_device(lab: Lab, suite: str) -> None:
    with unjoined(lab, suite) as (device, lan), tempfile.TemporaryDirectory(prefix="hj-") as folder:
        authority, site = Authority(Path(folder), lan), Installed(device, None, lan)
        bundle = authority.bundle(
            PI, "enroll", "--label", "site=home", "--root", "/srv", "--root", "/data/files"
        )
        it_is_set_up_over_ssh(site, authority, bundle, built(lab, suite, "0.1.0"))
        it_is_configured(site)
        what_is_refused_changes_nothing(site, bundle)
        a_signed_manifest_of_every_kind_converges(site, authority, built(lab, suite, "0.1.0"))
        again_another_and_a_rotated_one(site, authority, bundle)
        said = "\n".join(device.messages())
        assert not any(line in said for line in secrets(bundle))
        authority("device", "revoke", PI)
        assert "hasn't connected" in join(site, "--wait", "3", code=4)


def secrets(bundle: Path) -> list[str]:
    return [
        line for line in json.loads(bundle.read_bytes())["credentials"].split() if len(line) > 30
    ]


def what_is_refused_changes_nothing(site: Installed, bundle: Path) -> None:
    """Told by field and code, and no secret is repeated."""
    site.device.write(PLACE, bundle.read_bytes().replace(b'"pi-01"', b'"PI"'), mode=0o644)
    before = site.device.run(["find", CONFIG, "-printf", "%p %m %T@\n"]).stdout
    told = join(site, code=2)
    assert "device: InvalidName" in told
    assert not any(line in told for line in secrets(bundle))
    done = site.device.run(["harmony-agent", "join", PLACE], user="nobody", check=False)
    assert (done.rc, "as root" in done.stderr) == (5, True)
    site.device.write(PLACE, b"{}" * 10)
    assert "NotJson" in join(site, code=2)
    assert site.device.run(["find", CONFIG, "-printf", "%p %m %T@\n"]).stdout == before


def it_is_configured(site: Installed) -> None:
    assert modes(site) == ["root:harmony-agent 640"]
    config = tomllib.loads(site.device.read_text(f"{CONFIG}/agent.toml"))
    assert config["trust"]["require"] is True
    assert config["files"]["roots"] == ["/srv", "/data/files"]
    assert tomllib.loads(site.device.read_text(f"{CONFIG}/updater.toml"))["device_id"] == PI
    for unit in (AGENT, "harmony-updater.socket", UPDATER):
        assert site.device.systemctl("is-active", unit, check=False).stdout.strip() == "active", (
            unit
        )
    assert "MISSING" not in site.device.run(["harmony-agent", "check"]).stdout


def a_signed_manifest_of_every_kind_converges(
    site: Installed, authority: Authority, debs: list[Path]
) -> None:
    """Written over TLS by the operator's command. The upgrade finds nothing to upgrade, and reboots
    nothing.
    """
    site.device.know_users()
    site.load_image()
    site.synchronise()
    Repository(authority.folder / "apt").take(*debs).give(site.device)
    file = File(name="f", path="/data/files/f", content="joined\n")
    os_upgrade = SystemUpgrade(name="os", attempt_id="attempt-1", run_uid="run-1", expires_at=LATER)
    scores = [score.wire() for score in (file, *one_of_each(), os_upgrade)]
    place = authority.folder / "web.json"
    place.write_text(json.dumps({"api": "harmony/v1", "deployment": "web", "scores": scores}))
    booted = site.device.boot_id()
    authority("apply", str(place), "--device", PI, "--no-wait")
    authority("wait", "web", "--device", PI, "--timeout", "180s")
    assert site.device.boot_id() == booted
    assert site.device.read_text("/data/files/f") == "joined\n"
    told = site.device.run(["harmony-agent", "status"]).stdout
    assert (told.count(" Ready "), told.count(" Completed ")) == (4, 1), told


def again_another_and_a_rotated_one(site: Installed, authority: Authority, bundle: Path) -> None:
    agent = site.device.read_text(f"{CONFIG}/agent.toml")
    site.device.write(f"{CONFIG}/agent.toml", agent + "\n[intervals]\npoll = 2\n", mode=0o640)
    give(site, bundle)
    assert "has joined" in join(site)
    config = tomllib.loads(site.device.read_text(f"{CONFIG}/agent.toml"))
    assert config["intervals"] == {"poll": 2}, "what the bundle doesn't speak of stays"
    assert modes(site) == ["root:harmony-agent 640"]
    give(site, authority.bundle("pi-02"))
    assert "--replace" in join(site, code=5)
    give(site, authority.bundle(PI, "rotate"))
    site.device.run(["rm", f"{CONFIG}/agent.toml"])
    join(site)
    wiped = tomllib.loads(site.device.read_text(f"{CONFIG}/agent.toml"))
    assert wiped["labels"] == {"site": "home"}, "what was enrolled is remembered"
    assert wiped["files"]["roots"] == ["/srv", "/data/files"]
    authority("device", "finish", PI, "--wait", "60s")
    authority("wait", "web", "--device", PI, "--timeout", "60s")
    assert secrets(bundle)[0] not in site.device.read_text(f"{CONFIG}/nats.creds")


def it_is_set_up_over_ssh(
    site: Installed, authority: Authority, bundle: Path, debs: list[Path]
) -> None:
    """From a login to the first heartbeat; what isn't so is told with what to do."""
    device, key = site.device, authority.folder / "key"
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    device.write("/root/.ssh/authorized_keys", key.with_suffix(".pub").read_bytes(), mode=0o600)
    packages = [word for deb in debs for word in ("--package", str(deb))]
    words = [
        "device",
        "setup",
        f"root@{device.link.address}",
        str(bundle),
        "--identity",
        str(key),
        *packages,
    ]
    with ssh_goes_into(site.lan, device, authority.folder):
        assert "try: ssh" in authority(*words, code=4)
        device.systemctl("start", "ssh.service")
        said = authority(*words)
    device.systemctl("stop", "ssh.service")
    assert f"{PI} is there" in said
    assert not any(line in said for line in secrets(bundle))
    assert device.run(["find", "/tmp", "-name", "harmony-setup*"]).stdout == ""
    for login in ("-oProxyCommand=x", "a b", "pi@-x", "pi@h;x"):
        assert "cannot use this as a login" in authority(
            "device", "setup", "--", login, str(bundle), code=2
        )


@contextlib.contextmanager
def ssh_goes_into(lan: ServedLan, device: Device, folder: Path) -> Iterator[None]:
    """The real ssh and scp, run in the lan's network by way of PATH, with a known host of their
    own.
    """
    line = f"{device.link.address} {device.read_text('/etc/ssh/ssh_host_ed25519_key.pub')}"
    (folder / "known_hosts").write_text(line)
    enter = [*lan.enter(), "{real}", "-o", f"UserKnownHostsFile={folder}/known_hosts", "-F", "none"]
    for name in ("ssh", "scp"):
        real = shutil.which(name)
        argv = [word.replace("{real}", str(real)) for word in enter]
        argv += ["-S", str(folder / "ssh")] if name == "scp" else []
        program = folder / name
        program.write_text(
            f"#!{sys.executable}\nimport os, sys\nargv = {argv!r} + sys.argv[1:]\nos.execvp(argv[0], argv)\n"
        )
        program.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
