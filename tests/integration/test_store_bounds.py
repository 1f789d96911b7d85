"""One device's credentials and a small store: what it can fill, what goes on, and what its
revocation takes away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harmony_fleet.nats import buckets
from harmony_fleet.nats.connection import Connection
from harmony_fleet.nats.kv import Store
from scores.bundle import decode
from scores.jetstream import kv_stream, kv_subject
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO, TASK_RUNS
from tests.integration.test_enroll import Command
from tests.integration.test_permissions import Attacker, as_device
from tests.natsauthority import GuardedServer

ME, OTHER = "pi-01", "pi-02"
FULL, TOO_LARGE = 10077, 10054


class SmallServer(GuardedServer):
    """As `harmony server init --max-disk 64MB`."""

    def _conf(self) -> str:
        return re.sub(r"max_file_store: .*", "max_file_store: 64MB", super()._conf())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallServer]:
    with SmallServer(tmp_path / "small") as server:
        yield server


async def write(device: Attacker, bucket: str, key: str, value: bytes) -> int:
    """0 where it was stored, else the server's error code."""
    answer = json.loads((await device.ask(kv_subject(bucket, key), value)).data)
    return int(answer.get("error", {}).get("err_code", 0))


async def fill(device: Attacker) -> int:
    """Write ever more keys, of any size that is taken; how many were."""
    count = 0
    for size in (900_000, 20_000, 300, 1):
        while not (refused := await write(device, ACTUAL, f"{ME}.k{count}", b"x" * size)):
            count += 1
        assert refused == FULL
    return count


async def test_one_device_fills_its_share_and_no_more(small: SmallServer) -> None:
    command = Command(small)
    assert (await command("server", "push")).code == 0
    async with (
        as_device(small) as mine,
        as_device(small, OTHER) as other,
        Store(small.context()) as store,
    ):
        assert await write(other, ACTUAL, f"{OTHER}.web", b"as it was") == 0
        for bucket, key, most in (
            (INFO, f"info.{ME}", 64 * 1024),
            (HEARTBEAT, f"heartbeat.{ME}", 1024),
        ):
            assert await write(mine, bucket, key, b"x" * (most - 512)) == 0
            assert await write(mine, bucket, key, b"x" * (most + 1)) == TOO_LARGE
        assert await fill(mine) > 10
        for number in range(20):  # the operator, and what the others say of their being there
            assert await store.put(DESIRED, f"{OTHER}.d{number}", b"x" * 900_000, 0)
            assert await store.put(TASK_RUNS, f"run-{number}", b"x" * 100_000, 0)
            assert await write(other, HEARTBEAT, f"heartbeat.{OTHER}", b"beat %d" % number) == 0
        assert await write(other, INFO, f"info.{OTHER}", b"x" * 2000) == 0
        assert await write(other, ACTUAL, f"{OTHER}.web", b"otherwise") == 0, (
            "as large as what stands there"
        )
        assert await write(other, ACTUAL, f"{OTHER}.web", b"more than stood there") == FULL
        assert (await command("device", "revoke", ME)).code == 0
        assert await write(other, ACTUAL, f"{OTHER}.web", b"more than stood there") == 0
        found = [await store.entries(bucket) for bucket in (ACTUAL, INFO, HEARTBEAT)]
        assert [key for part in found for key in part if ME in key] == []
        assert [len(part) for part in found] == [1, 1, 1]


async def test_what_is_forgotten_while_the_servers_are_away_is_made_up_for(
    small: SmallServer,
) -> None:
    command = Command(small)
    assert (await command("server", "push")).code == 0
    bundle = decode((await command.enroll(ME)).read_bytes())
    (small.folder / f"{ME}.creds").write_text(bundle.credentials)
    async with as_device(small) as mine:
        assert await write(mine, ACTUAL, f"{ME}.web", b"x") == 0
    small.stop()
    assert (await command("device", "revoke", ME)).code == 4
    small.start()
    async with Store(small.context()) as store:
        assert list(await store.entries(ACTUAL)) == [f"{ME}.web"]
        assert (await command("server", "push")).code == 0
        assert list(await store.entries(ACTUAL)) == []


async def test_buckets_of_before_are_bounded_and_go_on(small: SmallServer) -> None:
    """Their values stay, and so does a bound that somebody chose."""
    async with small.client() as client, Connection(small.context()) as connection:
        js = client.jetstream()
        for bucket in (DESIRED, ACTUAL, INFO, HEARTBEAT):
            await js.create_key_value(bucket=bucket, direct=True)
            await js.publish(kv_subject(bucket, f"{ME}.web"), b"before")
        config = (await js.stream_info(kv_stream(INFO))).config
        config.max_msg_size = 5000
        await js.update_stream(config)
        await buckets.ensure(connection, 1)
        await buckets.renew(connection)
        await buckets.renew(connection)
        found = {
            bucket: (await js.stream_info(kv_stream(bucket))).config
            for bucket in (ACTUAL, INFO, HEARTBEAT)
        }
        assert found[ACTUAL].max_bytes == 16 * 1024 * 1024
        assert (found[INFO].max_msg_size, found[HEARTBEAT].max_msg_size) == (5000, 1024)
        for bucket in (DESIRED, ACTUAL, INFO, HEARTBEAT):
            assert (
                await js.get_last_msg(kv_stream(bucket), kv_subject(bucket, f"{ME}.web"))
            ).data == b"before"


async def test_heartbeats_wait_for_no_disk_and_outlive_a_restart(small: SmallServer) -> None:
    async with Store(small.context()) as store:
        await store.ensure_buckets()
        await store.put(HEARTBEAT, f"heartbeat.{ME}", b"beat", 0)
    async with Connection(small.context()) as connection:
        modes = {
            bucket: (await connection.api(f"STREAM.INFO.{kv_stream(bucket)}"))["config"].get(
                "persist_mode", "default"
            )
            for bucket in (DESIRED, ACTUAL, HEARTBEAT)
        }
    assert modes == {DESIRED: "default", ACTUAL: "default", HEARTBEAT: "async"}
    small.restart()
    async with Store(small.context()) as store:
        assert (await store.get(HEARTBEAT, f"heartbeat.{ME}")).value == b"beat"
