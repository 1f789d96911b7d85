"""Secrets on a real server with real credentials, and the agent as it is installed: a value is where
its Score puts it, and nowhere else.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.commands.join import to_toml
from scores.bundle import decode
from scores.keys import ACTUAL, INFO, SECRETS
from tests.integration.operator import Ran
from tests.integration.test_enroll import Command
from tests.natsauthority import GuardedServer

PLANTED = ("correct-horse-battery", "staple-after-rotation")
DEADLINE = 30.0


class Site:
    """A server with an authority, one enrolled device, and its agent as a process."""

    def __init__(self, server: GuardedServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.command = Command(server)
        self.srv, self.state = folder / "srv", folder / "state"
        self.log = folder / "agent.log"
        self.path = self.srv / "app.conf"

    async def prepare(self) -> None:
        for place in (self.srv, self.state):
            place.mkdir()
        assert (await self.command("server", "push")).code == 0
        bundle = decode(
            (await self.command.enroll("pi-01", "enroll", "--label", "site=home")).read_bytes()
        )
        creds, ca = self.folder / "device.creds", self.folder / "ca.pem"
        creds.write_text(bundle.credentials)
        ca.write_text(bundle.tls_ca or "")
        self.config = {
            "agent": {"device_id": "pi-01", "state_dir": str(self.state), "kinds": ["File"]},
            "nats": {
                "servers": list(bundle.servers),
                "credentials": str(creds),
                "tls_ca": str(ca),
            },
            "trust": {"require": True, "keys": list(bundle.trusted_keys)},
            "files": {"roots": [str(self.srv)]},
            "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
            "labels": {"site": "home"},
        }
        (self.folder / "agent.toml").write_text(to_toml(self.config))

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                Path(sys.executable).with_name("harmony-agent"), "run",
                "--config", str(self.folder / "agent.toml"), stdout=log, stderr=log,
                env=os.environ | {"XDG_RUNTIME_DIR": str(self.folder)},
            )  # fmt: skip
            try:
                yield
            finally:
                process.terminate()
                await process.wait()

    async def apply(self, *template: Any) -> Ran:
        score = {"kind": "File", "name": "conf", "path": str(self.path), "template": template}
        file = self.folder / "app.json"
        file.write_text(json.dumps({"deployment": "app", "scores": [score]}))
        return await self.command("apply", str(file), "--device", "pi-01", "--no-wait")

    async def give(self, name: str, value: str, *more: str) -> Ran:
        file = self.folder / "value"
        file.write_text(value)
        try:
            return await self.command(
                "secret", "set", name, "--file", str(file), *(more or ("--device", "pi-01"))
            )
        finally:
            file.unlink()

    async def value(self, bucket: str, key: str) -> Any:
        async with self.server.client() as client:
            with contextlib.suppress(Exception):
                found = await client.jetstream().get_last_msg(f"KV_{bucket}", f"$KV.{bucket}.{key}")
                return json.loads(found.data or b"null")
        return None

    async def resource(self) -> Any:
        status = await self.value(ACTUAL, "pi-01.app")
        return status["resources"].get("File/conf", {}) if status else {}

    async def until(self, phase: str, reason: str = "") -> Any:
        return await eventually(
            self.resource,
            lambda one: (one.get("phase"), one.get("reason")) == (phase, reason),
            self,
        )


async def eventually(look: Any, good: Any, site: Site) -> Any:
    found = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE):
            while not good(found := await look()):
                await asyncio.sleep(0.1)
            return found
    raise AssertionError(f"{found}\n{site.log.read_text()[-3000:]}")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedServer]:
    with GuardedServer(tmp_path / "guarded") as server:
        yield server


@pytest.fixture
async def site(guarded: GuardedServer, tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(guarded, tmp_path)
    await site.prepare()
    async with site.agent():
        await eventually(lambda: site.value(INFO, "info.pi-01"), bool, site)
        yield site


def traces(value: str, *places: Path) -> list[Path]:
    """Files that hold a value, plain or in Base64, or the digest that would give it away."""
    raw = value.encode()
    forms = [raw, base64.b64encode(raw)[:-4], hashlib.sha256(raw).hexdigest().encode()]
    files = (
        path for place in places for path in ([place] if place.is_file() else place.rglob("*"))
    )
    return [
        path
        for path in files
        if path.is_file() and any(form in path.read_bytes() for form in forms)
    ]


async def test_a_value_is_where_its_score_puts_it_and_nowhere_else(site: Site) -> None:
    first, second = PLANTED
    assert (await site.apply("password = ", {"secret": "pw"}, "\n")).code == 0
    await site.until("Blocked", "SecretMissing")
    assert not site.path.exists()

    ran = await site.give("pw", first)
    assert ran.code == 0, ran.err
    ready = await site.until("Ready")
    assert site.path.read_text() == f"password = {first}\n"
    assert site.path.stat().st_mode & 0o777 == 0o600
    assert ready["status"]["digest"] is None

    inode, generation = site.path.stat().st_ino, ready["generation"]
    await asyncio.sleep(3)  # passes that do nothing
    assert site.path.stat().st_ino == inode

    assert (await site.give("pw", second)).code == 0
    await eventually(
        lambda: asyncio.to_thread(site.path.read_text), lambda text: second in text, site
    )
    ready = await site.until("Ready")
    assert (ready["generation"], ready["drift"]) == (generation, None)

    listed = (await site.command("secret", "list", "-o", "json")).json
    assert [(one["name"], one["used_by"]) for one in listed] == [("pw", ["pi-01/app"])]
    assert traces(second, site.srv) == [site.path]
    for value in (*PLANTED, f"password = {first}\n", f"password = {second}\n"):
        kept = (site.server.folder, site.server.home, site.state, site.log)
        assert traces(value, *kept) == []


async def test_taken_back_it_is_missing_and_what_was_made_stays(site: Site) -> None:
    await site.apply({"secret": "pw"})
    await site.give("pw", PLANTED[0])
    await site.until("Ready")
    refused = await site.command("secret", "rm", "pw", "--device", "pi-01", "-o", "json")
    assert (refused.code, refused.error["code"]) == (5, "SecretInUse")
    assert (await site.command("secret", "rm", "pw", "--device", "pi-01", "--force")).code == 0
    blocked = await site.until("Blocked", "SecretMissing")
    assert "taken back" in blocked["message"]
    assert site.path.read_text() == PLANTED[0]
    assert (await site.give("pw", PLANTED[1])).code == 0
    await site.until("Ready")
    assert site.path.read_text() == PLANTED[1]


async def test_who_owns_nats_gives_no_other_and_puts_no_old_one_back(site: Site) -> None:
    await site.apply({"secret": "pw"})
    await site.give("pw", PLANTED[0])
    await site.until("Ready")
    old = await site.value(SECRETS, "pi-01.pw")
    await site.give("pw", PLANTED[1])
    await eventually(
        lambda: asyncio.to_thread(site.path.read_text), lambda text: text == PLANTED[1], site
    )
    now = await site.value(SECRETS, "pi-01.pw")
    bare = {key: value for key, value in now.items() if key != "signatures"}
    later = {**bare, "version": bare["version"] + 1}
    attacks = {
        "StaleVersion": old,
        "SignatureMissing": later,
        "SignatureInvalid": {**later, "signatures": now["signatures"]},
    }
    async with site.server.client() as client:
        js = client.jetstream()
        for code, value in attacks.items():
            text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
            await js.publish(f"$KV.{SECRETS}.pi-01.pw", text)
            await eventually(
                lambda: asyncio.to_thread(site.log.read_text),
                lambda text, code=code: code in text,
                site,
            )
        await js.purge_stream(f"KV_{SECRETS}")
    await asyncio.sleep(2)
    assert site.path.read_text() == PLANTED[1]
    assert (await site.resource())["phase"] == "Ready"
    assert (await site.give("pw", "a third one")).code == 0  # also after all of it was purged
    await eventually(
        lambda: asyncio.to_thread(site.path.read_text), lambda text: text == "a third one", site
    )


async def test_a_key_that_nothing_vouches_for_is_refused(site: Site) -> None:
    """NATS' owner tells a key of their own; then the device's own again."""
    info = await site.value(INFO, "info.pi-01")
    theirs = {
        **info,
        "sealing": {**info["sealing"], "key": "x25519:" + base64.b64encode(b"\x09" * 32).decode()},
    }
    site_key = site.command.home / "fleet" / "device-keys.json"
    async with site.server.client() as client:
        js = client.jetstream()
        for expected in ("DeviceKeyUnproven", "DeviceKeyChanged"):
            await js.publish(f"$KV.{INFO}.info.pi-01", json.dumps(theirs).encode())
            ran = await site.give("pw", PLANTED[0], "--device", "pi-01", "-o", "json")
            assert (ran.code, ran.error["code"]) == (5, expected)
            await js.publish(f"$KV.{INFO}.info.pi-01", json.dumps(info).encode())
            assert (await site.give("pw", PLANTED[0])).code == 0
            assert json.loads(site_key.read_text())["pi-01"]["key"] == info["sealing"]["key"]


async def test_labels_that_only_the_device_tells_choose_no_device(site: Site) -> None:
    assert (await site.give("pw", "x", "--select", "site=home")).code == 0
    info = await site.value(INFO, "info.pi-01")
    told = {**info, "labels": {"site": "home", "role": "vault"}}
    async with site.server.client() as client:
        await client.jetstream().publish(f"$KV.{INFO}.info.pi-01", json.dumps(told).encode())
    ran = await site.give("pw", "x", "--select", "role=vault", "-o", "json")
    assert (ran.code, ran.error["code"]) == (5, "LabelsUnproven")


async def test_after_a_restart_without_nats_it_is_still_there(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    site = Site(guarded, tmp_path)
    await site.prepare()
    async with site.agent():
        await eventually(lambda: site.value(INFO, "info.pi-01"), bool, site)
        await site.apply({"secret": "pw"})
        await site.give("pw", PLANTED[0])
        await site.until("Ready")
    site.server.stop()
    site.path.write_text("somebody's edit")
    async with site.agent():
        await eventually(
            lambda: asyncio.to_thread(site.path.read_text), lambda text: text == PLANTED[0], site
        )
