"""JetStream's wire at a real server: each way to read a message tells the same of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nats.aio.client import Client

from scores.jetstream import (
    API,
    NO_MESSAGE,
    NO_STREAM,
    STREAM_EXISTS,
    WRONG_SEQUENCE,
    ApiError,
    Stored,
    answered,
    delivered,
    direct,
    expecting,
    kv_stream,
    kv_subject,
    purging,
    stored,
)
from scores.keys import DESIRED
from tests.natsserver import NatsServer

STREAM, KEY = kv_stream(DESIRED), kv_subject(DESIRED, "pi-01.web")
CONFIG = {"name": STREAM, "subjects": [kv_subject(DESIRED, ">")], "max_msgs_per_subject": 1}
MORE = {"allow_direct": True, "allow_rollup_hdrs": True, "allow_msg_ttl": True}


async def call(client: Client, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    return answered((await client.request(f"{API}.{verb}", json.dumps(body).encode())).data)


async def write(client: Client, data: bytes, headers: dict[str, str] | None = None) -> int:
    return int(answered((await client.request(KEY, data, headers=headers)).data)["seq"])


async def every_read(client: Client) -> list[Stored]:
    """By STREAM.MSG.GET, by DIRECT.GET, by a pull consumer; the times of the first and the last."""
    leader = stored(
        (await call(client, f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": KEY}))["message"]
    )
    answer = await client.request(f"{API}.DIRECT.GET.{STREAM}.{KEY}")
    copied = direct(answer.headers or {}, answer.data)
    config = {"deliver_policy": "last_per_subject", "ack_policy": "none", "filter_subject": KEY}
    made = await call(
        client, f"CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config}
    )
    inbox = client.new_inbox()
    waiting = await client.subscribe(inbox)
    await client.publish(
        f"{API}.CONSUMER.MSG.NEXT.{STREAM}.{made['name']}", b'{"batch":1}', reply=inbox
    )
    came = await waiting.next_msg(timeout=5)
    found = delivered(came.subject, came.reply, came.headers or {}, came.data)
    assert copied is not None
    assert found is not None
    assert found[1] == 0
    assert leader.created == found[0].created
    return [leader, copied, found[0]]


async def test_markers_and_values_are_told_alike(nats_server: NatsServer) -> None:
    async with nats_server.client() as client:
        await call(
            client,
            f"STREAM.CREATE.{STREAM}",
            {**CONFIG, **MORE, "subject_delete_marker_ttl": 60_000_000_000},
        )
        writes: list[tuple[bytes, dict[str, str] | None, bytes | None]] = [
            (b"value", None, b"value"),
            (b"", {"X": "KV-Operation: DEL"}, b""),
            (b"", {"KV-Operation": "DEL"}, None),
            (b"v", expecting(3), b"v"),
            (b"", purging(4), None),
        ]
        for sequence, (data, headers, value) in enumerate(writes, 1):
            assert await write(client, data, headers) == sequence
            for found in await every_read(client):
                assert (found.subject, found.value, found.sequence) == (KEY, value, sequence)
        await write(client, b"short", {"Nats-TTL": "1s"})  # the server writes a marker of its own
        for _ in range(100):
            reads = await every_read(client)
            if reads[0].value is None:
                break
            await asyncio.sleep(0.05)
        assert [found.value for found in reads] == [None, None, None]


async def test_the_server_refuses_with_the_codes_that_are_known(nats_server: NatsServer) -> None:
    async with nats_server.client() as client:
        body = {"last_by_subj": KEY}
        with pytest.raises(ApiError) as missing:
            await call(client, f"STREAM.MSG.GET.{STREAM}", body)
        await call(client, f"STREAM.CREATE.{STREAM}", {**CONFIG, **MORE})
        with pytest.raises(ApiError) as empty:
            await call(client, f"STREAM.MSG.GET.{STREAM}", body)
        with pytest.raises(ApiError) as twice:
            await call(client, f"STREAM.CREATE.{STREAM}", CONFIG)
        with pytest.raises(ApiError) as lost:
            await write(client, b"x", expecting(9))
        answer = await client.request(f"{API}.DIRECT.GET.{STREAM}.{KEY}")
        assert direct(answer.headers or {}, answer.data) is None
    assert missing.value.code == NO_STREAM
    assert empty.value.code == NO_MESSAGE
    assert twice.value.code == STREAM_EXISTS
    assert lost.value.code in WRONG_SEQUENCE
