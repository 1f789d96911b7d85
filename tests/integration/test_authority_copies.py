"""Copies of one authority: nobody who was revoked comes back, nobody whom the other enrolled is
forgotten.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.errors import Error

from harmony_fleet.authority.authority_store import Authority
from scores.bundle import decode
from scores.jetstream import kv_stream, kv_subject
from scores.keys import DESIRED, DEVICE_API, FLEET, device_inbox, info_key
from tests.integration.operator import Operator
from tests.natsauthority import GuardedServer


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedServer]:
    with GuardedServer(tmp_path / "guarded") as server:
        yield server


class Command(Operator):
    """The command `harmony` of one copy of the home."""

    def environment(self) -> dict[str, str]:
        return {"COLUMNS": "", "HARMONY_HOME": str(self.home)}

    def copy(self, name: str) -> Command:
        shutil.copytree(self.home, self.home.parent / name)
        return Command(self.server, self.home.parent / name)

    async def ok(self, *words: str, code: int = 0) -> str:
        ran = await self(*words)
        assert ran.code == code, (words, ran.err)
        return ran.err

    async def bundle(self, device: str, verb: str = "enroll", *words: str) -> Path:
        """Its credentials' file."""
        path = self.home / f"{device}-{verb}.bundle"
        await self.ok("device", verb, device, "-o", str(path), "--reach", self.server.url, *words)
        creds = path.with_suffix(".creds")
        creds.write_text(decode(path.read_bytes()).credentials)
        return creds

    def known(self) -> set[str]:
        return set(Authority.load(self.home).state.devices)


async def let_in(server: GuardedServer, creds: Path) -> bool:
    """Whether one with these credentials gets in, and may write its own key."""
    device = creds.stem.partition("-enroll")[0].partition("-rotate")[0]
    options = server.options(creds) | {
        "inbox_prefix": device_inbox(device).encode(),
        "max_reconnect_attempts": 1,
    }
    try:
        async with server.client(**options) as client:
            await client.request(kv_subject("device-info", info_key(device)), b"{}", timeout=5)
    except (Error, OSError, TimeoutError):
        return False
    return True


async def may_read(server: GuardedServer, creds: Path) -> bool:
    """Whether one with these credentials is answered what its desired state is."""
    device = creds.stem.partition("-enroll")[0].partition("-rotate")[0]
    options = server.options(creds) | {
        "inbox_prefix": device_inbox(device).encode(),
        "max_reconnect_attempts": 1,
    }
    key = kv_subject(DESIRED, f"{device}.web")
    try:
        async with server.client(**options) as client:
            answer = await client.request(
                f"{DEVICE_API}.DIRECT.GET.{kv_stream(DESIRED)}.{key}", b"", timeout=5
            )
    except (Error, OSError, TimeoutError):
        return False
    return (answer.headers or {}).get("Status") == "404"


async def test_a_stale_home_lets_nobody_in_again_and_forgets_nobody(guarded: GuardedServer) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    one = await first.bundle("pi-01")
    two = await first.bundle("pi-02")
    assert [await let_in(guarded, creds) for creds in (one, two)] == [True, True]
    stale = first.copy("stale")
    await first.ok("device", "revoke", "pi-01")
    three = await first.bundle("pi-03")
    await first.ok("server", "objects", "more")
    for words in (
        ["server", "push"],
        ["server", "objects", "assets"],
        ["device", "revoke", "pi-02"],
    ):
        await stale.ok(*words)
        assert not await let_in(guarded, one), words
        assert await let_in(guarded, three), words
        assert await may_read(guarded, three), words
    assert stale.known() == {"pi-03"}
    await first.ok("server", "push")
    assert not await let_in(guarded, two)
    assert first.known() == {"pi-03"}
    assert (await first("server", "objects", "-o", "json")).json == ["assets", "files", "more"]


async def test_a_device_that_only_the_other_knows_is_revoked_and_not_enrolled_twice(
    guarded: GuardedServer,
) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    stale = first.copy("stale")
    one = (await first.bundle("pi-01")).rename(first.home / "pi-01-enroll-first.creds")
    assert "it has credentials" in await stale.ok(
        "device", "enroll", "pi-01", "-o", str(stale.home / "x"), code=5
    )
    await stale.ok("device", "revoke", "pi-01")
    assert not await let_in(guarded, one)
    assert "has no credentials" in await first.ok("device", "revoke", "pi-01", code=2)
    again = await first.bundle("pi-01")
    assert await let_in(guarded, again)
    await stale.ok("server", "push")
    assert await let_in(guarded, again)
    assert not await let_in(guarded, one)


async def test_what_was_rotated_elsewhere_stays_so(guarded: GuardedServer) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    old = await first.bundle("pi-01")
    stale = first.copy("stale")
    new = await first.bundle("pi-01", "rotate", "--at-once")
    await stale.ok("server", "push")
    assert [await let_in(guarded, creds) for creds in (old, new)] == [False, True]
    assert Authority.load(stale.home).state.devices == Authority.load(first.home).state.devices


async def test_another_copy_rotates_with_what_the_first_one_enrolled(
    guarded: GuardedServer,
) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    other = first.copy("other")
    words = ("--label", "site=home", "--root", "/opt/app", "--unit", "web-*")
    await first.bundle("pi-01", "enroll", *words)
    creds = await other.bundle("pi-01", "rotate")
    bundle = decode(creds.with_suffix(".bundle").read_bytes())
    assert (bundle.labels, bundle.roots, bundle.units) == (
        {"site": "home"},
        ["/opt/app"],
        ["web-*"],
    )
    assert await let_in(guarded, creds)
    await first.ok("server", "push")
    assert Authority.load(first.home).state.devices == Authority.load(other.home).state.devices
    await first.ok("device", "rotate", "pi-01", "-o", str(first.home / "x"), "--label", "rack=1")
    assert decode((first.home / "x").read_bytes()).labels == {"site": "home", "rack": "1"}


async def test_what_two_decide_while_the_servers_are_away_holds_of_both(
    guarded: GuardedServer,
) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    creds = {name: await first.bundle(name) for name in ("pi-01", "pi-02", "pi-03")}
    other = first.copy("other")
    guarded.stop()
    await first.ok("device", "revoke", "pi-01", code=4)
    await other.ok("device", "revoke", "pi-02", code=4)
    both = await first.bundle("pi-04"), await other.bundle("pi-04")
    guarded.start()
    other.home.joinpath("context.toml").write_bytes(
        first.home.joinpath("context.toml").read_bytes()
    )
    pushing = await first.process("server", "push")
    await other.ok("server", "push")
    await pushing.communicate()
    assert pushing.returncode == 0
    await first.ok("server", "push")
    assert [await let_in(guarded, creds[name]) for name in creds] == [False, False, True]
    assert [await let_in(guarded, one) for one in both] == [True, True]
    assert first.known() == {"pi-03", "pi-04"}
    await other.ok("device", "revoke", "pi-04")
    assert [await let_in(guarded, one) for one in both] == [False, False]


async def test_no_device_reads_or_writes_what_the_copies_share(guarded: GuardedServer) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    creds = await first.bundle("pi-01")
    async with guarded.client() as client:
        before = (await client.jetstream().stream_info(kv_stream(FLEET))).state.messages
    async with guarded.client(**guarded.options(creds)) as client:
        for subject in (
            kv_subject(FLEET, "device.pi-01"),
            f"$JS.API.DIRECT.GET.{kv_stream(FLEET)}.{kv_subject(FLEET, 'device.pi-01')}",
            f"$JS.fleet.API.DIRECT.GET.{kv_stream(FLEET)}.{kv_subject(FLEET, 'device.pi-01')}",
            f"$JS.fleet.API.STREAM.MSG.GET.{kv_stream(FLEET)}",
        ):
            with pytest.raises((Error, TimeoutError)):
                await client.request(subject, b"{}", timeout=1)
    async with guarded.client() as client:
        assert (await client.jetstream().stream_info(kv_stream(FLEET))).state.messages == before


async def test_a_record_that_nobody_of_ours_signed_counts_for_nothing(
    guarded: GuardedServer,
) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    await first.bundle("pi-01")
    async with guarded.client() as client:
        for value in (
            b"{}",
            b'{"record":{"device":"pi-01","revoked":["U"]},"signature":"x"}',
            b"\xff",
            b"[]",
        ):
            await client.request(kv_subject(FLEET, "device.pi-01"), value, timeout=5)
            await client.request(kv_subject(FLEET, "device.pi-09"), value, timeout=5)
            await first.ok("server", "push")
            assert first.known() == {"pi-01"}
