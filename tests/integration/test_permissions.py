"""Every subject of the contract against a real server as `harmony server init` makes it: what a
device can and can't.

The attacks are those that a server's own rights make possible: an answer, a delivery, a header, a
body that names more than its subject. Where one is refused the server says so; where it is taken,
nothing of a neighbour's may differ after.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from harmony_fleet.nats import buckets
from harmony_fleet.nats.connection import Connection
from harmony_fleet.nats.kv import Store
from scores.jetstream import kv_stream, kv_subject
from scores.keys import (
    ACTUAL,
    BUCKETS,
    COMMANDS,
    DESIRED,
    DEVICE_API,
    DEVICE_WRITES,
    HEARTBEAT,
    INDEX,
    INFO,
    SECRETS,
    TASK_RUNS,
    command_subject,
    device_inbox,
    device_reader,
    news_subject,
)
from tests.natsauthority import OBJECTS, GuardedServer
from tests.natsserver import NatsServer

ME, OTHER = "pi-01", "pi-02"
HANGS = 60.0
"""Seconds that only what hangs takes."""
OWN = [
    (DESIRED, f"{ME}.web"),
    (SECRETS, f"{ME}.pw"),
    (ACTUAL, f"{ME}.web"),
    (INFO, f"info.{ME}"),
    (HEARTBEAT, f"heartbeat.{ME}"),
]
THEIRS = [(bucket, key.replace(ME, OTHER)) for bucket, key in OWN]
WRITTEN = [(bucket, key) for bucket, key in OWN if bucket in DEVICE_WRITES]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    with GuardedServer(tmp_path_factory.mktemp("guarded")) as server:
        asyncio.run(prepare(server))
        yield server


async def prepare(server: GuardedServer) -> None:
    """All buckets, both devices, a value under each key."""
    server.creds(ME)
    server.creds(OTHER)
    context = server.context()
    async with Store(context) as store:
        await store.ensure_buckets()
        for bucket, key in (*OWN, *THEIRS):
            await store.put(bucket, key, key.encode(), 0)
        await store.put(TASK_RUNS, "a-run", b"run", 0)
    async with as_operator(server) as client:
        for name in (OBJECTS, "secrets"):
            objects = await client.jetstream().create_object_store(name)
            await objects.put("page", b"x" * 300_000)


@asynccontextmanager
async def as_operator(server: GuardedServer) -> AsyncIterator[Client]:
    async with server.client() as client:
        yield client


class Attacker:
    """A connection with a device's credentials, and what the server refused to it."""

    def __init__(self, client: Client, refused: list[str]) -> None:
        self.client = client
        self.refused = refused

    async def ask(
        self,
        subject: str,
        body: bytes | dict[str, Any] = b"",
        headers: dict[str, str] | None = None,
    ) -> Msg:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.request(subject, data, timeout=HANGS, headers=headers)

    async def is_refused(self, subject: str, body: bytes | dict[str, Any] = b"") -> bool:
        """Whether the server says so."""
        before = len(self.refused)
        await self.client.publish(
            subject, body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        return await self._said(before, subject)

    async def may_not_listen(self, subject: str) -> bool:
        before = len(self.refused)
        await self.client.subscribe(subject)
        return await self._said(before, subject)

    async def _said(self, before: int, subject: str) -> bool:
        await self.client.flush(timeout=HANGS)
        return await self.was_told(f'"{subject.lower()}"', before)

    async def was_told(self, words: str, before: int = 0) -> bool:
        """Whether an error of the server has these words; the client tells of it a little later."""
        for _ in range(1000):
            if any(words in error for error in self.refused[before:]):
                return True
            await asyncio.sleep(0.01)
        return False


@asynccontextmanager
async def as_device(server: GuardedServer, device: str = ME) -> AsyncIterator[Attacker]:
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error).lower())

    options = server.options(server.creds(device)) | {
        "inbox_prefix": device_inbox(device),
        "error_cb": note,
    }
    async with server.client(**options) as client:
        yield Attacker(client, refused)


async def everything(server: GuardedServer) -> dict[str, dict[str, Any]]:
    """Each bucket's newest messages: subject -> what stands there. What was purged is missed."""
    found: dict[str, dict[str, Any]] = {}
    async with as_operator(server) as client:
        js = client.jetstream()
        for stream in [kv_stream(bucket) for bucket in BUCKETS] + [f"OBJ_{OBJECTS}", "OBJ_secrets"]:
            state = (await js.stream_info(stream, subjects_filter=">")).state
            found[stream] = {
                subject: await newest(js, stream, subject) for subject in state.subjects or {}
            }
    return found


async def newest(js: JetStreamContext, stream: str, subject: str) -> tuple[int, bytes]:
    message = await js.get_last_msg(stream, subject)
    return message.seq or 0, message.data or b""


def without_own(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    own = {kv_subject(bucket, key) for bucket, key in WRITTEN}
    return {
        stream: {name: one for name, one in values.items() if name not in own}
        for stream, values in found.items()
    }


# -- what it may


async def test_what_is_its_own(guarded: GuardedServer) -> None:
    async with as_device(guarded) as device:
        for bucket, key in OWN:
            answer = await device.ask(
                f"{DEVICE_API}.DIRECT.GET.{kv_stream(bucket)}.{kv_subject(bucket, key)}"
            )
            assert (answer.headers or {})["Nats-Subject"] == kv_subject(bucket, key)
            info = await device.ask(
                f"{DEVICE_API}.CONSUMER.INFO.{kv_stream(bucket)}.{device_reader(ME)}"
            )
            assert json.loads(info.data).get("error", {}).get("err_code", 10014) == 10014
        for bucket, key in WRITTEN:
            answer = await device.ask(kv_subject(bucket, key), b"mine")
            assert json.loads(answer.data)["seq"] > 0
        answer = await device.ask(
            f"{DEVICE_API}.STREAM.MSG.GET.OBJ_{OBJECTS}",
            {"last_by_subj": f"$O.{OBJECTS}.M.{base64.urlsafe_b64encode(b'page').decode()}"},
        )
        assert json.loads(answer.data)["message"]["seq"]
        assert device.refused == []


async def test_the_names_of_its_own_deployments_are_told_and_no_others(
    guarded: GuardedServer,
) -> None:
    async with as_device(guarded) as device:
        for subject in (news_subject(ME), news_subject(ME, "web")):
            answer = await device.ask(f"{DEVICE_API}.DIRECT.GET.{kv_stream(INDEX)}.{subject}")
            assert (answer.headers or {})["Nats-Subject"] == news_subject(ME, "web")
            assert answer.data == b"", "content travels with the names"


async def test_it_hears_of_its_own_desired_state_and_answers_its_own_commands(
    guarded: GuardedServer,
) -> None:
    async with as_device(guarded) as device, as_operator(guarded) as operator:
        heard: list[str] = []

        async def listen(message: Msg) -> None:
            heard.append(message.subject)

        async def answer(message: Msg) -> None:
            await message.respond(b"here")

        for subject in (kv_subject(DESIRED, f"{ME}.*"), news_subject(ME)):
            await device.client.subscribe(subject, cb=listen)
        for verb in COMMANDS:
            await device.client.subscribe(command_subject(ME, verb), cb=answer)
        await device.client.flush()
        for verb in COMMANDS:
            assert (
                await operator.request(command_subject(ME, verb), b"", timeout=HANGS)
            ).data == b"here"
        with pytest.raises(nats.errors.NoRespondersError):
            await operator.request(command_subject(OTHER, "ping"), b"", timeout=HANGS)
        for key in (f"{OTHER}.heard", f"{ME}.heard"):
            await operator.jetstream(timeout=HANGS).publish(kv_subject(DESIRED, key), b"{}")
        async with asyncio.timeout(HANGS):
            while len(heard) < 2:
                await asyncio.sleep(0.02)
        await device.client.flush(timeout=HANGS)  # what came beside them has come by now
        await asyncio.sleep(0)
        assert set(heard) == {kv_subject(DESIRED, f"{ME}.heard"), news_subject(ME, "heard")}
        assert len(heard) == 2
        assert device.refused == []


# -- what it may not: by the subject


def neighbours() -> list[str]:
    """What pi-01 may use, with its neighbour's name, and with wildcards in its place."""
    own = [kv_subject(bucket, key) for bucket, key in WRITTEN]
    own += [
        f"{DEVICE_API}.DIRECT.GET.{kv_stream(bucket)}.{kv_subject(bucket, key)}"
        for bucket, key in OWN
    ]
    own += [
        f"{DEVICE_API}.CONSUMER.INFO.{kv_stream(bucket)}.{device_reader(ME)}" for bucket, _ in OWN
    ]
    own += [f"{DEVICE_API}.DIRECT.GET.{kv_stream(INDEX)}.{news_subject(ME)}"]
    return [subject.replace(ME, other) for subject in own for other in (OTHER, f"{ME}x", "*")]


def others() -> list[str]:
    """What no device may publish to, whosever it is."""
    found = [
        kv_subject(DESIRED, f"{ME}.web"),
        kv_subject(DESIRED, f"{OTHER}.web"),
        kv_subject(SECRETS, f"{ME}.pw"),
        kv_subject(SECRETS, f"{OTHER}.pw"),
        kv_subject(TASK_RUNS, "a-run"),
    ]
    found += [
        kv_subject(INFO, ME),
        kv_subject(ACTUAL, ME),
        kv_subject(ACTUAL, f"{ME}.a.b"),
        kv_subject(ACTUAL, ">"),
    ]
    found += [command_subject(device, verb) for device in (ME, OTHER) for verb in COMMANDS]
    found += [
        f"$O.{OBJECTS}.C.x",
        f"$O.{OBJECTS}.M.x",
        f"{device_inbox(OTHER)}.x",
        "_INBOX.x",
        "_R_.x.y",
    ]
    found += [
        "$SYS.REQ.CLAIMS.UPDATE",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.USER.INFO",
        "$SYS.ACCOUNT.x",
    ]
    reader = f"{kv_stream(DESIRED)}.{device_reader(ME)}"
    found += [f"$JS.ACK.{reader}.1.1.1.1.1", f"$JS.FC.{reader}.x"]
    found += [f"{api}.CONSUMER.MSG.NEXT.{reader}" for api in ("$JS.API", DEVICE_API)]
    found += [news_subject(device, "web") for device in (ME, OTHER)]
    for api in ("$JS.API", DEVICE_API):
        found += [
            f"{api}.{call}" for call in ("INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.CREATE.new")
        ]
        for stream in (*map(kv_stream, BUCKETS), f"OBJ_{OBJECTS}", "OBJ_secrets"):
            found += [
                f"{api}.STREAM.{call}.{stream}"
                for call in (
                    "INFO",
                    "UPDATE",
                    "DELETE",
                    "PURGE",
                    "MSG.DELETE",
                    "SNAPSHOT",
                    "RESTORE",
                    "PEER.REMOVE",
                )
            ]
            found += [f"{api}.DIRECT.GET.{stream}"]
            found += [f"{api}.CONSUMER.{call}.{stream}" for call in ("NAMES", "LIST", "CREATE")]
        for stream in (*map(kv_stream, BUCKETS), "OBJ_secrets"):
            found += [f"{api}.STREAM.MSG.GET.{stream}"]
        for name in (device_reader(ME), device_reader(OTHER), "mine"):
            place = f"{kv_stream(DESIRED)}.{name}"
            found += [
                f"{api}.CONSUMER.{call}.{place}"
                for call in ("CREATE", "DURABLE.CREATE", "DELETE", "PAUSE")
            ]
            found += [f"{api}.CONSUMER.CREATE.{place}.{kv_subject(DESIRED, f'{ME}.*')}"]
            found += [
                f"{api}.CONSUMER.{call}.{place}" for call in ("RESET", "UNPIN", "LEADER.STEPDOWN")
            ]
    return found


async def test_it_publishes_to_nobody_else(guarded: GuardedServer) -> None:
    before = await everything(guarded)
    async with as_device(guarded) as device:
        taken = [
            subject
            for subject in (*neighbours(), *others())
            if not await device.is_refused(subject)
        ]
    assert taken == []
    assert await everything(guarded) == before


async def test_it_listens_to_nobody_else(guarded: GuardedServer) -> None:
    subjects = [">", "*", "*.>", "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>", "_R_.>", "$O.>"]
    subjects += [f"{device_inbox(OTHER)}.>", command_subject(OTHER, "*"), command_subject("*", "*")]
    subjects += [kv_subject(bucket, key) for bucket, key in THEIRS]
    subjects += [news_subject(OTHER), news_subject(OTHER, "web"), news_subject("*")]
    subjects += [kv_subject(bucket, ">") for bucket in BUCKETS] + [kv_subject(DESIRED, "*.*")]
    async with as_device(guarded) as device:
        assert [subject for subject in subjects if not await device.may_not_listen(subject)] == []


# -- what it may not: by what the server would do for it


async def test_an_answer_goes_into_no_bucket_and_to_no_operator(guarded: GuardedServer) -> None:
    """In one account alone, the acknowledgement of a write would be stored under the neighbour's
    key.
    """
    before = await everything(guarded)
    targets = [
        kv_subject(bucket, key)
        for bucket, key in (*THEIRS, (TASK_RUNS, "a-run"), (DESIRED, f"{ME}.web"))
    ]
    targets += [
        f"$O.{OBJECTS}.C.x",
        f"{DEVICE_API}.STREAM.DELETE.{kv_stream(DESIRED)}",
        "operator.inbox",
    ]
    targets += [f"$JS.API.STREAM.DELETE.{kv_stream(DESIRED)}", kv_subject(DESIRED, f"{OTHER}.new")]
    asks = [(kv_subject(bucket, key), b"mine") for bucket, key in WRITTEN]
    asks += [
        (f"{DEVICE_API}.DIRECT.GET.{kv_stream(bucket)}.{kv_subject(bucket, key)}", b"")
        for bucket, key in OWN
    ]
    asks += [(f"{DEVICE_API}.CONSUMER.INFO.{kv_stream(DESIRED)}.{device_reader(ME)}", b"")]
    asks += [(f"{DEVICE_API}.DIRECT.GET.{kv_stream(INDEX)}.{news_subject(ME)}", b"")]
    asks += [(f"{DEVICE_API}.STREAM.MSG.GET.OBJ_{OBJECTS}", b'{"seq":1}')]
    async with as_device(guarded) as device, as_operator(guarded) as operator:
        heard = await operator.subscribe("operator.>")
        await operator.flush()
        for target in targets:
            for subject, body in asks:
                await device.client.publish(subject, body, reply=target)
        await device.client.flush(timeout=HANGS)
        for bucket, key in WRITTEN:  # behind all of the others in each stream
            await device.ask(kv_subject(bucket, key), b"last")
        await device.ask(f"{DEVICE_API}.CONSUMER.INFO.{kv_stream(DESIRED)}.{device_reader(ME)}")
        await asyncio.sleep(0.5)
        assert device.refused == []
        with pytest.raises(nats.errors.TimeoutError):
            await heard.next_msg(0.1)
    assert without_own(await everything(guarded)) == without_own(before)


async def test_a_reserved_answer_is_refused(guarded: GuardedServer) -> None:
    async with as_device(guarded) as device:
        for reply in ("$JS.ACK.KV_desired-state.device-pi-02.1.1.1.1.1", "_R_.a.b"):
            before = await everything(guarded)
            await device.client.publish(
                kv_subject(HEARTBEAT, f"heartbeat.{ME}"), b"mine", reply=reply
            )
            await device.client.flush(timeout=HANGS)
            await asyncio.sleep(0.1)
            assert without_own(await everything(guarded)) == without_own(before), reply


HEADERS = [
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"KV-Operation": "PURGE", "Nats-Rollup": "all"},
    {"Nats-TTL": "1s"},
    {"Nats-Trace-Dest": kv_subject(ACTUAL, f"{OTHER}.web")},
    {"Nats-Trace-Dest": kv_subject(ACTUAL, f"{OTHER}.web"), "Nats-Trace-Only": "true"},
    {
        "Nats-Schedule": "@at 2020-01-01T00:00:00Z",
        "Nats-Schedule-Target": kv_subject(ACTUAL, f"{OTHER}.web"),
    },
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Incr": "1"},
    {"Nats-Request-Info": '{"acc":"$SYS","user":"admin"}'},
    {"Nats-Expected-Stream": kv_stream(ACTUAL)},
]


async def test_a_header_tells_a_neighbour_s_revision_and_no_more(guarded: GuardedServer) -> None:
    """What the threat model admits: the server checks no permission for it. Once it does, take it
    out there.
    """
    header = "Nats-Expected-Last-Subject-Sequence"
    async with as_device(guarded) as device, as_operator(guarded) as operator:
        for bucket, key in (one for one in THEIRS if one[0] in DEVICE_WRITES):
            theirs = await newest(operator.jetstream(), kv_stream(bucket), kv_subject(bucket, key))
            headers = {header: "999999999", f"{header}-Subject": kv_subject(bucket, key)}
            own = next(mine for there, mine in WRITTEN if there == bucket)
            answer = json.loads((await device.ask(kv_subject(bucket, own), b"x", headers)).data)
            assert answer["error"]["description"] == f"wrong last sequence: {theirs[0]}"
            assert theirs[1].decode() not in json.dumps(answer), "content"
        desired = kv_subject(DESIRED, f"{OTHER}.web")
        headers = {header: "999999999", f"{header}-Subject": desired}
        answer = json.loads((await device.ask(kv_subject(ACTUAL, f"{ME}.web"), b"x", headers)).data)
        assert "wrong last sequence: 0" in answer["error"]["description"], "another stream's"


@pytest.mark.parametrize("headers", HEADERS, ids=",".join)
async def test_a_header_reaches_no_further_than_its_own_key(
    guarded: GuardedServer, headers: dict[str, str]
) -> None:
    before = await everything(guarded)
    async with as_device(guarded) as device:
        wanted = f"{DEVICE_API}.DIRECT.GET.{kv_stream(DESIRED)}.{kv_subject(DESIRED, f'{ME}.web')}"
        for subject in (wanted, *(kv_subject(bucket, key) for bucket, key in WRITTEN)):
            await device.client.publish(
                subject, b"x", reply=device.client.new_inbox(), headers=headers
            )
        for bucket, key in WRITTEN:  # behind it in each stream
            await device.ask(kv_subject(bucket, key), b"last")
    after = await everything(guarded)
    assert without_own(after) == without_own(before)
    assert {stream: set(one) for stream, one in after.items()} == {
        stream: set(one) for stream, one in before.items()
    }


async def test_a_body_names_no_more_than_its_subject(guarded: GuardedServer) -> None:
    """A direct read by subject takes no body."""
    theirs = kv_subject(DESIRED, f"{OTHER}.web")
    async with as_device(guarded) as device:
        place = f"{DEVICE_API}.DIRECT.GET.{kv_stream(DESIRED)}"
        for body in (
            {"last_by_subj": theirs},
            {"multi_last": ["$KV.>"]},
            {"seq": 1},
            {"seq": 1, "batch": 100},
        ):
            answer = await device.ask(f"{place}.{kv_subject(DESIRED, f'{ME}.web')}", body)
            assert OTHER.encode() not in answer.data
            answer = await device.ask(f"{place}.{kv_subject(DESIRED, f'{ME}.*')}", body)
            assert OTHER.encode() not in answer.data
        answer = await device.ask(f"{place}.{kv_subject(DESIRED, f'{ME}.*')}")
        assert (answer.headers or {})["Nats-Subject"].startswith(kv_subject(DESIRED, f"{ME}."))
        info = await device.ask(
            f"{DEVICE_API}.CONSUMER.INFO.{kv_stream(DESIRED)}.{device_reader(ME)}", {"any": ">"}
        )
        assert "error" in json.loads(info.data)
        assert OTHER.encode() not in info.data


async def test_bounds(guarded: GuardedServer) -> None:
    async with as_device(guarded) as device:
        for number in range(200):
            await device.client.subscribe(f"{device_inbox(ME)}.{number}")
        for _ in range(500):
            await asyncio.sleep(0.02 if device.client.is_connected else 0)
        assert not device.client.is_connected


# -- that the attacks are real


ONE_ACCOUNT = """
accounts { FLEET { jetstream: enabled, users: [
  { user: operator, password: x }
  { user: device, password: x, permissions: {
      publish: ["$KV.actual-state.pi-01.*"], subscribe: ["_INBOX_pi-01.>"] } } ] } }
"""


async def test_in_one_account_an_answer_is_stored_under_a_neighbour_s_key(tmp_path: Path) -> None:
    """The device may publish to nothing but its own key. Where this is refused one day, one account
    is enough.
    """
    with NatsServer(tmp_path, config=ONE_ACCOUNT) as server:
        async with server.client(user="operator", password="x") as operator:
            await operator.jetstream().create_key_value(bucket=ACTUAL)
            async with server.client(
                user="device", password="x", inbox_prefix=device_inbox(ME)
            ) as device:
                await device.publish(
                    kv_subject(ACTUAL, f"{ME}.web"), b"x", reply=kv_subject(ACTUAL, f"{OTHER}.web")
                )
                await device.request(kv_subject(ACTUAL, f"{ME}.web"), b"last", timeout=HANGS)
            found = await operator.jetstream().get_last_msg(
                kv_stream(ACTUAL), kv_subject(ACTUAL, f"{OTHER}.web")
            )
            assert b"KV_actual-state" in (found.data or b"")


async def test_buckets_that_let_a_write_purge_the_others_are_hardened(
    guarded: GuardedServer,
) -> None:
    """The last test of this server: it loses the heartbeats."""
    async with as_operator(guarded) as client, as_device(guarded) as device:
        js = client.jetstream()
        for bucket in DEVICE_WRITES:
            config = (await js.stream_info(kv_stream(bucket))).config
            assert not config.allow_rollup_hdrs
            config.allow_rollup_hdrs = True
            await js.update_stream(config)
        await device.ask(kv_subject(HEARTBEAT, f"heartbeat.{ME}"), b"x", {"Nats-Rollup": "all"})
        state = (await js.stream_info(kv_stream(HEARTBEAT), subjects_filter=">")).state
        assert list(state.subjects or {}) == [kv_subject(HEARTBEAT, f"heartbeat.{ME}")]
        async with Connection(guarded.context()) as connection:
            await buckets.renew(connection)
        for bucket in DEVICE_WRITES:
            assert not (await js.stream_info(kv_stream(bucket))).config.allow_rollup_hdrs
