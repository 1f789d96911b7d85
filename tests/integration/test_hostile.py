"""Devices that say anything at all: every command goes on for the others, in every form, without a
traceback.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from harmony_fleet.output.render import Output
from scores.jetstream import kv_subject
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO
from tests.integration.operator import Operator, Ran, a_file
from tests.integration.simfleet import SimFleet
from tests.natsserver import NatsServer

GOOD: Final = tuple(f"good-{number}" for number in range(9))
OTHER: Final = "00000000-0000-4000-8000-00000000000f"
SINCE: Final = "2026-11-29T17:00:00.000Z"
DIGEST: Final = f"sha256:{'0' * 64}"


def status(device: str, **more: Any) -> dict[str, Any]:
    """A status as a device may write it."""
    fields = {
        "api": "harmony/v1",
        "device": device,
        "deployment": "web",
        "lineage": OTHER,
        "generation": 1,
    }
    return (
        fields
        | {"digest": DIGEST, "phase": "Converged", "reason": "", "message": "", "resources": {}}
        | more
    )


def info(device: str, **more: Any) -> dict[str, Any]:
    """The same of a DeviceInfo."""
    system = {"id": "debian", "version_id": "12", "arch": "x", "kernel": "6"}
    fields = {
        "api": "harmony/v1",
        "device": device,
        "labels": {},
        "agent_version": "0",
        "boot_id": "b",
        "os": system,
    }
    able = {"systemd": "1", "podman": "1", "updater": None}
    return fields | {"kinds": ["File"], "capabilities": able} | more


def unit(**more: Any) -> dict[str, Any]:
    """A resource of a status."""
    detail = {
        "kind": "SystemdUnit",
        "load_state": "\x1b[2J",
        "active_state": "\x9b1m",
        "sub_state": "\u202e",
        "unit_file_state": "",
    }
    fields = {
        "phase": "Ready",
        "reason": "\x07",
        "message": "\r\n\x1b]0;x\x07",
        "generation": 1,
        "since": SINCE,
    }
    return fields | {"spec_digest": DIGEST, "drift": None, "status": detail | more}


SURROGATE: Final = b'"\\ud800"'
SAID: Final[dict[str, Any]] = {
    "garbage": b"\xff\x00\xfe",
    "empty": b"",
    "object": b"{}",
    "list": b"[]",
    "large": b'"' + b"x" * 900_000 + b'"',
    "deep": b"[" * 10_000,
    "deep-closed": b"[" * 400 + b"]" * 400,
    "digits": b"9" * 5000,
    "nan": b"NaN",
    "lineage": status,
    "leap": lambda name: status(name, generation=2**53 - 1, lineage="OURS"),
    "leap-less": lambda name: status(name, generation=2**53 - 2, lineage="OURS"),
    "rejected": lambda name: status(
        name, rejected={"generation": 10**400, "reason": "\x1b[31m", "errors": []}
    ),
    "negative": lambda name: status(
        name, rejected={"generation": -(10**400), "reason": "", "errors": []}
    ),
    "escapes": lambda name: status(
        name, phase="Failed", reason="\x1b[31m", message="\x00\x9b\u2028\x7f", lineage="OURS"
    ),
    "resources": lambda name: status(
        name, resources={"\x1b[1mFile/motd": unit(), "": unit(main_pid=10**300)}
    ),
    "many": lambda name: status(
        name, lineage="OURS", resources={f"File/{at}": unit() for at in range(2000)}
    ),
    "surrogate": lambda name: (
        json.dumps(status(name, message="MARK")).encode().replace(b'"MARK"', SURROGATE)
    ),
    "surrogate-key": lambda name: (
        json.dumps(status(name, resources={"MARK": unit()})).encode().replace(b'"MARK"', SURROGATE)
    ),
    "other-device": lambda name: status("good-1"),
}
TOLD: Final[dict[str, Any]] = {
    "info-garbage": b"\xff",
    "info-surrogate": lambda name: (
        json.dumps(info(name, boot_id="MARK")).encode().replace(b'"MARK"', SURROGATE)
    ),
    "info-label": lambda name: (
        json.dumps(info(name, labels={"a": "MARK"})).encode().replace(b'"MARK"', SURROGATE)
    ),
    "info-escapes": lambda name: info(
        name, labels={"\x1b[2J": "\x9b"}, agent_version="\x07", boot_id="\x1b"
    ),
    "info-kinds": lambda name: info(name, kinds=[]),
    "info-trust": lambda name: info(name, trust={"require": True, "keys": []}),
    "info-updater": lambda name: info(
        name, capabilities={"updater": {"protocol": 10**300, "operations": ["\x1b"]}}
    ),
}
KEYS: Final = (b"\x1b[31m", b"\xff\xfe", b"\x0b", "é".encode(), b"\x00", b"a" * 900)


class Stage:
    """Nine good devices, and one for each thing that may be said."""

    def __init__(self, server: NatsServer, operator: Operator, store: Store, client: Any) -> None:
        self.server, self.operator, self.store, self.client = server, operator, store, client
        self.lineage = ""

    async def raw(self, subject: bytes, value: bytes) -> None:
        """As a client of any library could."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(b"CONNECT {}\r\nPUB %b %d\r\n%b\r\nPING\r\n" % (subject, len(value), value))
        while (line := await reader.readline()) and not line.startswith(b"PONG"):
            assert not line.startswith(b"-ERR"), line
        writer.close()

    async def say(self, device: str, what: Any, bucket: str = ACTUAL) -> None:
        value = what(device) if callable(what) else what
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        key = (
            f"{device}.web"
            if bucket == ACTUAL
            else f"{'info' if bucket == INFO else 'heartbeat'}.{device}"
        )
        await self.raw(
            kv_subject(bucket, key).encode(),
            data.replace(b'"OURS"', json.dumps(self.lineage).encode()),
        )

    async def run(self, *words: str) -> Ran:
        ran = await self.operator(*words)
        assert_fit_for_a_terminal(ran)
        return ran


def assert_fit_for_a_terminal(ran: Ran) -> None:
    assert all(char.isprintable() or char == "\n" for char in ran.out + ran.err)
    assert "Traceback" not in ran.err


@pytest.fixture
async def stage(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    operator = Operator(nats_server, tmp_path / "operator")
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with SimFleet(client, GOOD, beat=0.5):
            made = Stage(nats_server, operator, store, client)
            bad = [f"bad-{name}" for name in (*SAID, *TOLD)]
            assert (await operator("fleet", "init")).code == 0
            words = ["--class", "web", "-g", "1"]
            assert (await operator("fleet", "device", "add", *GOOD, "bad", *bad, *words)).code == 0
            path = operator.file("scores", a_file())
            assert (
                await operator("fleet", "deployment", "add", "web", "--file", path, "-g", "2")
            ).code == 0
            made.lineage = (await operator("fleet", "status", "-o", "json")).json["lineage"]
            yield made


async def everything(stage: Stage) -> None:
    for name, what in SAID.items():
        await stage.say(f"bad-{name}", what)
    for name, what in TOLD.items():
        await stage.say(f"bad-{name}", what, INFO)
        await stage.say(f"bad-{name}", b"\xff\x1b", HEARTBEAT)
    for key in KEYS:
        await stage.raw(kv_subject(ACTUAL, "bad.").encode() + key, b"{}")


LOOKS: Final = (
    ["tree", "bad"],
    ["events", "-n", "100000"],
    ["status"],
    ["status", "--resources"],
    ["get"],
    ["devices"],
    ["fleet", "status"],
    ["fleet", "doctor"],
    ["fleet", "verify"],
    ["fleet", "plan"],
    ["upgrade", "list"],
    ["tree", "bad-resources"],
    [
        "diff",
        "FILE",
        "--lineage",  # the roster has `web`: another authority looks at it
        "00000000-0000-4000-8000-000000000009",
        "-d",
        "good-1",
        "-d",
        "bad-garbage",
        "-d",
        "bad-lineage",
        "-d",
        "bad-info-kinds",
    ],
)


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
async def test_every_look_in_every_form(stage: Stage, output: str) -> None:
    await everything(stage)
    file = stage.operator.file("web", a_file())
    for words in LOOKS:
        ran = await stage.run(*(file if word == "FILE" else word for word in words), "-o", output)
        assert ran.code in (0, 1, 5), (words, ran.err)
        if output == "json":
            texts = ran.out.splitlines() if words[0] == "events" else [ran.out]
            assert all(json.loads(text) is not None for text in texts)
    assert (await stage.run("fleet", "metrics")).code == 0


@pytest.mark.parametrize("words", [["events", "-f"], ["status", "--watch"]])
@pytest.mark.parametrize("output", ["table", "json"])
async def test_a_watch_goes_on_whatever_is_said(
    stage: Stage, words: list[str], output: str
) -> None:
    """It tells of all, and of what comes after all."""
    process = await stage.operator.process(*words, "-o", output)
    assert process.stdout is not None
    said = b""
    try:
        await everything(stage)
        await stage.say("bad-object", lambda name: status(name, reason="TheLastOne"))
        async with asyncio.timeout(60):
            while b"TheLastOne" not in said:
                some = await process.stdout.read(65536)
                assert some
                said += some
    finally:
        process.send_signal(signal.SIGINT)
        rest, err = await process.communicate()
    assert_fit_for_a_terminal(Ran(process.returncode or 0, (said + rest).decode(), err.decode()))
    assert process.returncode == 130


async def test_one_apply_writes_all_the_others_and_names_each(stage: Stage) -> None:
    await everything(stage)
    ran = await stage.run("fleet", "apply", "--wait", "--timeout", "2s", "-o", "json")
    assert ran.code in (1, 4, 5), ran.err
    desired = await stage.store.entries(DESIRED)
    assert {f"{name}.web" for name in GOOD} <= desired.keys()
    refused = {item["device"]: item["code"] for item in ran.json["refused"]}
    for name in (
        "garbage",
        "object",
        "list",
        "large",
        "deep",
        "deep-closed",
        "digits",
        "nan",
        "surrogate",
        "other-device",
    ):
        assert refused[f"bad-{name}"] == "Unreadable", name
    assert {refused["bad-leap"], refused["bad-leap-less"], refused["bad-rejected"]} == {
        "ImplausibleGeneration"
    }
    assert (refused["bad-lineage"], refused["bad-info-kinds"]) == (
        "LineageChanged",
        "KindNotAllowed",
    )
    assert not any(name.startswith("good") for name in refused)
    again = await stage.run("fleet", "apply", "-o", "json")
    assert {f"{name}.web" for name in GOOD} & {
        f"{item['device']}.web" for item in again.json["writes"]
    } == set()


async def test_apply_and_delete_by_hand_go_on_for_the_others(stage: Stage) -> None:
    for name in GOOD[:2]:
        assert (
            await stage.operator("apply", stage.operator.file("own", a_file("own")), "-d", name)
        ).code == 0
    for value in (
        b"{}",
        b"\xff",
        json.dumps(status("good-0", deployment="own", generation=2**53 - 1)).encode(),
    ):
        await stage.raw(b"$KV.actual-state.good-0.own", value)
        both = ["-d", "good-0", "-d", "good-1"]
        path = stage.operator.file("own", a_file("own", repr(value)))
        ran = await stage.run("apply", path, *both, "--wait", "--timeout", "20s", "-o", "json")
        assert ran.code == 1
        assert {item["device"]: item["written"] for item in ran.json["results"]} == {
            "good-0": False,
            "good-1": True,
        }
    ran = await stage.run("delete", "own", *both, "--wait", "--timeout", "20s", "-o", "json")
    assert ran.code == 1
    assert (await stage.store.get(DESIRED, "good-1.own")).value is None


async def test_a_controller_goes_on_for_the_others(stage: Stage) -> None:
    await everything(stage)
    process = await stage.operator.process("fleet", "controller", "--interval", "300ms")
    said, stderr = b"", process.stderr
    assert stderr is not None
    try:
        async with asyncio.timeout(60):
            while (
                not {f"{name}.web" for name in GOOD} <= (await stage.store.entries(DESIRED)).keys()
            ):
                await asyncio.sleep(0.2)
            while b"Unreadable" not in said:  # which is told after all is written
                some = await stderr.read(4096)
                assert some
                said += some
        assert process.returncode is None
    finally:
        process.terminate()
        _, rest = await process.communicate()
    err = said + rest
    assert process.returncode == 0
    assert b"Traceback" not in err


TEXT: Final = st.text(st.characters(exclude_categories=()), max_size=6)
VALUE: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


@st.composite
def anything(draw: st.DrawFn, made: dict[str, Any]) -> bytes:
    """Bytes; or what a device says with some fields exchanged."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=40))
    names = st.sampled_from(sorted(made))
    return json.dumps(made | draw(st.dictionaries(names, VALUE | TEXT, max_size=3))).encode()


async def test_any_bytes_that_a_device_can_write(stage: Stage) -> None:
    """The last of `everything`, drawn: one device's three keys, each look in a form."""

    @settings(
        max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(
        anything(status("bad", resources={"SystemdUnit/a.service": unit()})),
        anything(info("bad")),
        st.sampled_from(list(Output)),
        st.sampled_from(LOOKS[:10]),
    )
    def drawn(said: bytes, told: bytes, output: Output, words: list[str]) -> None:
        asyncio.run_coroutine_threadsafe(one(said, told, output, words), loop).result(60)

    async def one(said: bytes, told: bytes, output: Output, words: list[str]) -> None:
        await stage.say("bad", said)
        await stage.say("bad", told, INFO)
        ran = await stage.run(*words, "-o", output.value)
        assert ran.code in (0, 1, 5), ran.err

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(drawn)
    shutil.rmtree(stage.operator.folder)
