"""The buckets at a real server: CAS, complete lists, watches over restarts, the server's clock."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harmony_fleet.context import Context
from harmony_fleet.errors import Conflict, HarmonyError, InvalidInput, Unreachable
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from scores.keys import BUCKETS, DESIRED, TASK_RUNS
from tests.natsjwt import JwtAuthority
from tests.natsserver import NatsServer


def context(server: NatsServer | str, **more: Path) -> Context:
    url = server if isinstance(server, str) else server.url
    return Context((url,), more.get("creds"), more.get("tls_ca"), Path("/nowhere"))


@pytest.fixture
async def store(nats_server: NatsServer) -> AsyncIterator[Store]:
    async with Store(context(nats_server)) as opened:
        await opened.ensure_buckets()
        yield opened


async def test_buckets_are_made_as_the_contract_says(nats_server: NatsServer, store: Store) -> None:
    await store.ensure_buckets()
    async with nats_server.client() as client:
        configs = {
            info.config.name: info.config for info in await client.jetstream().streams_info()
        }
    assert set(configs) == {f"KV_{bucket}" for bucket in BUCKETS}
    for name, config in configs.items():
        assert config.storage == "file"
        assert config.allow_direct
        assert not config.max_age
        assert config.max_msgs_per_subject == (16 if name == "KV_desired-state" else 1)
        assert config.num_replicas == 1


async def test_a_bucket_that_exists_otherwise_is_left_alone(nats_server: NatsServer) -> None:
    async with nats_server.client() as client:
        await client.jetstream().create_key_value(bucket=DESIRED, history=3)
        async with Store(context(nats_server)) as opened:
            await opened.ensure_buckets()
        info = await client.jetstream().stream_info(f"KV_{DESIRED}")
    assert info.config.max_msgs_per_subject == 3


async def test_more_replicas_than_servers_is_told(nats_server: NatsServer) -> None:
    async with Store(context(nats_server)) as opened:
        with pytest.raises(Unreachable) as caught:
            await opened.ensure_buckets(replicas=3)
    assert caught.value.code == "BucketNotMade"


async def test_cas(store: Store) -> None:
    assert await store.get(DESIRED, "a.b") == Entry(DESIRED, "a.b", None, 0, None)
    first = await store.put(DESIRED, "a.b", b"1", 0)
    with pytest.raises(Conflict):
        await store.put(DESIRED, "a.b", b"2", 0)
    with pytest.raises(Conflict):
        await store.put(DESIRED, "a.b", b"2", first + 1)
    second = await store.put(DESIRED, "a.b", b"2", first)
    with pytest.raises(Conflict):
        await store.put(DESIRED, "a.b", b"3", first)
    found = await store.get(DESIRED, "a.b")
    assert (found.value, found.revision) == (b"2", second)


async def test_purge_is_fenced_and_what_was_purged_doesn_t_exist(store: Store) -> None:
    first = await store.put(DESIRED, "a.b", b"1", 0)
    second = await store.put(DESIRED, "a.b", b"2", first)
    with pytest.raises(Conflict):
        await store.purge(DESIRED, "a.b", first)
    third = await store.purge(DESIRED, "a.b", second)
    found = await store.get(DESIRED, "a.b")
    assert (found.value, found.revision) == (None, third)
    with pytest.raises(Conflict):
        await store.put(DESIRED, "a.b", b"3", second)
    await store.put(DESIRED, "a.b", b"3", 0)
    with pytest.raises(Conflict):
        await store.put(DESIRED, "a.b", b"4", 0)
    with pytest.raises(Conflict):
        await store.put(DESIRED, "a.b", b"4", third)


async def test_a_key_is_created_only_where_it_never_was(store: Store) -> None:
    first = await store.create(DESIRED, "a.b", b"1")
    with pytest.raises(Conflict):
        await store.create(DESIRED, "a.b", b"2")
    mark = await store.purge(DESIRED, "a.b", first)
    with pytest.raises(Conflict):
        await store.create(DESIRED, "a.b", b"2")
    found = await store.get(DESIRED, "a.b")
    assert (found.value, found.revision) == (None, mark)


@pytest.mark.parametrize("purged", [False, True])
async def test_one_of_many_wins(store: Store, purged: bool) -> None:
    if purged:
        await store.purge(DESIRED, "a.b", await store.put(DESIRED, "a.b", b"1", 0))
    results = await asyncio.gather(
        *(store.put(DESIRED, "a.b", b"%d" % n, 0) for n in range(20)), return_exceptions=True
    )
    assert sum(isinstance(result, int) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 19


@pytest.mark.parametrize("key", ["a..b", "", ".a", "a.", "a b", "a.*", "a.>", "ä"])
async def test_a_key_that_is_none(store: Store, key: str) -> None:
    with pytest.raises(InvalidInput):
        await store.put(DESIRED, key, b"1", 0)
    with pytest.raises(InvalidInput):
        await store.get(DESIRED, key)


async def test_too_large_a_value_is_told_and_the_connection_stays(store: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        await store.put(DESIRED, "a.b", b"x" * (1024 * 1024), 0)
    assert caught.value.code == "TooLarge"
    large = b"x" * (1024 * 1024 - 512)
    await store.put(DESIRED, "a.b", large, 0)
    assert (await store.get(DESIRED, "a.b")).value == large
    assert (await store.entries(DESIRED))["a.b"].value == large


async def fill(nats_server: NatsServer, count: int) -> None:
    async with nats_server.client() as client:
        js = client.jetstream()
        for at in range(0, count, 500):
            await asyncio.gather(
                *(
                    js.publish(f"$KV.{DESIRED}.d{n % 7}.k{n}", b"%d" % n)
                    for n in range(at, at + 500)
                )
            )


async def test_lists_are_complete_and_sorted(nats_server: NatsServer, store: Store) -> None:
    await fill(nats_server, 5000)
    await fill(nats_server, 1000)  # with history
    found = await store.entries(DESIRED)
    assert len(found) == 5000
    assert list(found) == sorted(found)
    assert all(entry.value == key.partition("k")[2].encode() for key, entry in found.items())
    assert set(await store.entries(DESIRED, ["d3.*"])) == {
        key for key in found if key.startswith("d3.")
    }
    assert await store.entries(DESIRED, ["nobody.*"]) == {}


async def test_lists_are_complete_while_others_write(nats_server: NatsServer, store: Store) -> None:
    await fill(nats_server, 2000)
    stop = asyncio.Event()

    async def write() -> None:
        async with nats_server.client() as client:
            n = 0
            while not stop.is_set():
                await client.jetstream().publish(f"$KV.{DESIRED}.d{n % 7}.k{n}", b"%d" % n)
                n = (n + 1) % 2000

    writer = asyncio.create_task(write())
    try:
        for _ in range(20):
            assert len(await store.entries(DESIRED)) == 2000
    finally:
        stop.set()
        await writer


async def test_a_list_leaves_purged_keys_out_and_no_consumer_behind(
    nats_server: NatsServer, store: Store
) -> None:
    kept, gone = (
        await store.put(DESIRED, "a.kept", b"1", 0),
        await store.put(DESIRED, "a.gone", b"1", 0),
    )
    await store.purge(DESIRED, "a.gone", gone)
    assert {key: entry.revision for key, entry in (await store.entries(DESIRED)).items()} == {
        "a.kept": kept
    }
    async with nats_server.client() as client:
        async with asyncio.timeout(30):
            while (await client.jetstream().stream_info(f"KV_{DESIRED}")).state.consumer_count:
                await asyncio.sleep(0.01)


async def test_missing_buckets(nats_server: NatsServer) -> None:
    async with Store(context(nats_server)) as opened:
        assert (await opened.get(DESIRED, "a.b")).value is None
        assert await opened.entries(DESIRED) == {}
        with pytest.raises(Unreachable) as caught:
            await opened.put(DESIRED, "a.b", b"1", 0)
        assert caught.value.code == "BucketMissing"
        with pytest.raises(InvalidInput):
            await opened.now()


class Seen:
    """Collects what a watch gives."""

    def __init__(self, store: Store, *keys: str) -> None:
        self.entries: list[Entry] = []
        self._task = asyncio.create_task(self._collect(store, keys))

    async def _collect(self, store: Store, keys: tuple[str, ...]) -> None:
        async with contextlib.aclosing(store.watch(TASK_RUNS, keys)) as updates:
            async for entry in updates:
                self.entries.append(entry)

    async def until(self, values: list[bytes | None], seconds: float = 10) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while [entry.value for entry in self.entries] != values:
                    await asyncio.sleep(0.01)
        assert [entry.value for entry in self.entries] == values

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_a_watch_gives_the_newest_then_each_change(store: Store) -> None:
    revision = await store.put(TASK_RUNS, "a.b", b"1", 0)
    revision = await store.put(TASK_RUNS, "a.b", b"2", revision)
    await store.put(TASK_RUNS, "a.other", b"x", 0)
    seen = Seen(store, "a.b", "a.c")
    await seen.until([b"2"])
    revision = await store.put(TASK_RUNS, "a.b", b"3", revision)
    await store.put(TASK_RUNS, "a.c", b"c", 0)
    await store.purge(TASK_RUNS, "a.b", revision)
    await seen.until([b"2", b"3", b"c", None])
    await seen.stop()


async def test_a_watch_of_many_keys_has_one_consumer(nats_server: NatsServer, store: Store) -> None:
    keys = [f"d{n}.web" for n in range(200)]
    seen = Seen(store, *keys)
    for key in keys:
        await store.put(TASK_RUNS, key, key.encode(), 0)
    await store.put(TASK_RUNS, "another.web", b"x", 0)
    await seen.until([key.encode() for key in keys])
    async with nats_server.client() as client:
        assert (await client.jetstream().stream_info(f"KV_{TASK_RUNS}")).state.consumer_count == 1
    await seen.stop()


@pytest.mark.parametrize("kill", [False, True])
async def test_a_watch_outlives_the_server(
    nats_server: NatsServer, store: Store, kill: bool
) -> None:
    revision = await store.put(TASK_RUNS, "a.b", b"1", 0)
    seen = Seen(store, "a.b")
    await seen.until([b"1"])
    await asyncio.to_thread(nats_server.restart, kill=kill, down=0.3)
    async with nats_server.client() as client:
        await client.jetstream().publish(f"$KV.{TASK_RUNS}.a.b", b"2")
    await seen.until([b"1", b"2"], 15)
    assert seen.entries[-1].revision > revision
    await seen.stop()


async def test_a_watch_outlives_its_bucket(nats_server: NatsServer, store: Store) -> None:
    await store.put(TASK_RUNS, "a.b", b"1", 0)
    seen = Seen(store, "a.b")
    await seen.until([b"1"])
    async with nats_server.client() as client:
        await client.jetstream().delete_key_value(TASK_RUNS)
        await asyncio.sleep(0.2)
        await store.ensure_buckets()
        await client.jetstream().publish(
            f"$KV.{TASK_RUNS}.a.b", b"1"
        )  # the same revision, another entry
    await seen.until([b"1", b"1"], 15)
    await seen.stop()


async def test_the_server_s_clock(store: Store) -> None:
    await store.put(TASK_RUNS, "a.b", b"1", 0)
    created = (await store.get(TASK_RUNS, "a.b")).created
    listed = (await store.entries(TASK_RUNS))["a.b"].created
    assert created is not None
    assert created == listed
    assert 0 <= (await store.now() - created).total_seconds() < 30
    before = await store.now()
    await asyncio.sleep(0.05)
    assert 0.04 < (await store.now() - before).total_seconds() < 30


async def unreachable(target: Context, seconds: float = 1.0) -> HarmonyError:
    started = time.monotonic()
    with pytest.raises(HarmonyError) as caught:
        async with Store(target, seconds):
            pass
    assert time.monotonic() - started < seconds + 30  # a loaded machine
    return caught.value


async def test_nobody_listens(nats_server: NatsServer) -> None:
    nats_server.stop()
    error = await unreachable(context(nats_server))
    assert (error.code, int(error.exit_code)) == ("NatsUnreachable", 4)
    assert error.hint


async def test_a_server_that_says_nothing(nats_server: NatsServer) -> None:
    nats_server.pause()
    assert (await unreachable(context(nats_server))).code == "NatsUnreachable"


async def test_a_name_that_is_none() -> None:
    assert (
        await unreachable(context("nats://no-such-host.invalid:4222"))
    ).code == "NatsUnreachable"


async def test_a_refused_login_is_told_at_once(tmp_path: Path) -> None:
    with NatsServer(tmp_path, config='authorization { user: "u", password: "p" }') as server:
        started = time.monotonic()
        error = await unreachable(context(server), 60)
        assert error.code == "NotAuthorized"
        assert time.monotonic() - started < 30
        async with Store(context(server.url.replace("://", "://u:p@"))) as opened:
            await opened.ensure_buckets()


async def test_a_server_without_jetstream(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=False) as server:
        async with Store(context(server)) as opened:
            with pytest.raises(Unreachable) as caught:
                await opened.ensure_buckets()
    assert caught.value.code == "NoJetStream"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"-----BEGIN USER NKEY SEED-----\nSUAxyz\n",
        b"-----BEGIN USER NKEY SEED-----\nSUAM\xff\n------",
    ],
)
async def test_credentials_that_are_none(
    nats_server: NatsServer, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "me.creds"
    path.write_bytes(content)
    error = await unreachable(context(nats_server, creds=path))
    assert (error.code, int(error.exit_code)) == ("CredsInvalid", 2)


async def test_a_tls_authority_that_is_none(nats_server: NatsServer, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    assert (await unreachable(context(nats_server, tls_ca=path))).code == "TlsInvalid"


async def test_a_server_that_goes_away_later(nats_server: NatsServer) -> None:
    async with Store(context(nats_server)) as opened:
        await opened.ensure_buckets()
        nats_server.stop()
        with pytest.raises(Unreachable):
            await opened.get(DESIRED, "a.b")


async def test_credentials_of_an_operator_and_of_one_who_may_not(tmp_path: Path) -> None:
    authority = JwtAuthority.make()
    with NatsServer(tmp_path / "nats", config=authority.config) as server:
        assert (await unreachable(context(server), 10)).code == "NotAuthorized"
        stranger = JwtAuthority.make().creds(tmp_path / "stranger.creds")
        assert (await unreachable(context(server, creds=stranger), 10)).code == "NotAuthorized"
        async with Store(
            context(server, creds=authority.creds(tmp_path / "operator.creds"))
        ) as opened:
            await opened.ensure_buckets()
            await opened.put(DESIRED, "a.b", b"1", 0)
        reader = authority.creds(
            tmp_path / "reader.creds", ["$JS.API.STREAM.MSG.GET.>"], ["_INBOX.>"]
        )
        async with Store(context(server, creds=reader)) as opened:
            assert (await opened.get(DESIRED, "a.b")).value == b"1"
            with pytest.raises(Unreachable) as caught:
                await opened.put(DESIRED, "a.b", b"2", 1)
        assert caught.value.code == "NotAllowed"
        assert "desired-state.a.b" in caught.value.message


async def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ed25519",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
    ]
    made += [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    config = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    with NatsServer(tmp_path / "nats", config=config) as server:
        assert server.url.startswith("tls://")
        async with Store(context(server, tls_ca=certificate)) as opened:
            await opened.ensure_buckets()
        assert (await unreachable(context(server), 5.0)).code == "TlsUntrusted"


async def test_a_key_that_reads_as_a_wildcard_goes_only_at_its_revision(
    nats_server: NatsServer, store: Store
) -> None:
    async with nats_server.client() as client:
        js = client.jetstream()
        odd = (await js.publish(f"$KV.{DESIRED}.pi-01.*", b"1")).seq
        kept = await store.put(DESIRED, "pi-01.web", b"2", 0)
        with pytest.raises(Conflict):
            await store.delete_any(DESIRED, "pi-01.*", kept)
        newer = (await js.publish(f"$KV.{DESIRED}.pi-01.*", b"3")).seq
        with pytest.raises(Conflict):
            await store.delete_any(DESIRED, "pi-01.*", odd)
        await store.delete_any(DESIRED, "pi-01.*", newer)
    assert list(await store.entries(DESIRED)) == ["pi-01.web"]
    assert (await store.get(DESIRED, "pi-01.web")).revision == kept
