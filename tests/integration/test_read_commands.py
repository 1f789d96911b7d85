"""`harmony get`, `status`, `wait`, `logs` and `devices` against a real server, with simulated
devices.
"""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from ruamel.yaml import YAML

from scores.keys import command_subject
from scores.status import Drift
from tests.integration.operator import Operator, a_file
from tests.integration.simulated import SINCE, SimulatedDevice, status_of
from tests.natsserver import NatsServer


async def applied(
    operator: Operator, device: SimulatedDevice, name: str = "web", *, converged: bool = True
) -> Any:
    await operator(
        "apply", operator.file(name, a_file(f"{name}-a"), a_file(f"{name}-b")), "-d", device.name
    )
    wire = await device.when_desired(name)
    if converged:
        await device.say(status_of(wire))
    return wire


async def test_nothing_yet(nats_server: NatsServer, tmp_path: Path) -> None:
    operator = Operator(nats_server, tmp_path / "operator")
    for command in ("get", "status", "devices"):
        ran = await operator(command)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err
        assert (await operator(command, "-o", "json")).json == []
    assert (await operator("status", "web")).code == 2
    assert (await operator("get", "web", "-d", "pi-01")).code == 2
    assert (await operator("wait", "web", "-d", "pi-01")).code == 2
    assert (await operator("wait", "web", "-d", "pi-01", "--for", "removed")).code == 0
    assert (await operator("delete", "web", "-d", "pi-01")).code == 0


async def test_get(operator: Operator, device: SimulatedDevice) -> None:
    wire = await applied(operator, device)
    await applied(operator, device, "other")
    ran = await operator("get", "-d", device.name)
    assert ran.code == 0
    assert [line.split()[:3] for line in ran.out.splitlines()[1:]] == [
        [device.name, "other", "1"],
        [device.name, "web", "1"],
    ]
    assert wire.lineage[:8] in ran.out
    (shown,) = (await operator("get", "web", "-d", device.name, "-o", "json", "--show-values")).json
    assert shown == wire.wire()
    text = (await operator("get", "web", "-d", device.name, "-o", "yaml", "--show-values")).out
    assert YAML(typ="safe", pure=True).load(text) == [wire.wire()]
    assert (await operator("get", "nope", "-d", device.name, "-o", "json")).error[
        "code"
    ] == "NotFound"


async def test_what_get_gives_can_be_applied_again(
    operator: Operator, device: SimulatedDevice
) -> None:
    await applied(operator, device)
    for form in ("json", "yaml"):
        ran = await operator("get", "web", "-d", device.name, "-o", form, "--show-values")
        text = json.dumps(json.loads(ran.out)[0]) if form == "json" else ran.out
        path = operator.folder / f"again.{form}"
        path.write_text(text)
        assert (await operator("diff", str(path))).code == 0


async def test_status_of_converged_deployments_is_0(
    operator: Operator, device: SimulatedDevice
) -> None:
    await applied(operator, device)
    ran = await operator("status", "-d", device.name)
    assert ran.code == 0
    assert ran.out.splitlines()[1].split()[:5] == [device.name, "web", "Converged", "1/1", "2/2"]
    (row,) = (await operator("status", "web", "-d", device.name, "-o", "json")).json
    assert row["converged"]
    assert 0 <= row["age_seconds"] < 30
    assert row["status"]["generation"] == 1


async def test_status_of_anything_else_is_1(operator: Operator, device: SimulatedDevice) -> None:
    wire = await applied(operator, device, converged=False)
    waiting = await operator("status", "-d", device.name)
    assert (waiting.code, "Waiting" in waiting.out) == (1, True)
    drift = Drift(count=3, fields=["content"], first_seen=SINCE, last_seen=SINCE, action="repaired")
    status = status_of(
        wire,
        "Degraded",
        {"File/web-a": "Ready", "File/web-b": ("Degraded", "NoSpace")},
        reason="NoSpace",
    )
    resources = dict(status.resources)
    resources["File/web-a"] = resources["File/web-a"].model_copy(update={"drift": drift})
    await device.say(status.model_copy(update={"resources": resources}))
    ran = await operator("status", "-d", device.name, "--resources")
    assert ran.code == 1
    for part in ("1/2 ready", "NoSpace", "repaired 3x", "drift in content", "11-29 17:00"):
        assert part in ran.out
    await device.say(status_of(wire))
    await operator(
        "apply", operator.file("web", a_file("new")), "-d", device.name, "--allow-prune", "2"
    )
    outdated = await operator("status", "-d", device.name)
    assert (outdated.code, "Outdated" in outdated.out, "1/2" in outdated.out) == (1, True, True)


async def test_what_a_silent_device_said_is_shown_but_not_trusted(
    operator: Operator, device: SimulatedDevice
) -> None:
    silent = SimulatedDevice(device.client, f"{device.name}-b")
    await applied(operator, silent)
    ran = await operator("status", "-d", silent.name)
    assert (ran.code, "device silent" in ran.out) == (1, True)
    await silent.beat()
    assert (await operator("status", "-d", silent.name)).code == 0


async def test_one_unreadable_value_hides_no_other(
    operator: Operator, device: SimulatedDevice
) -> None:
    await applied(operator, device)
    await device.put("actual-state", f"{device.name}.bad", b"{}")
    await device.put("desired-state", f"{device.name}.worse", b"\xff")
    ran = await operator("status", "-d", device.name, "-o", "json")
    assert ran.code == 1
    assert {row["deployment"]: row["phase"] for row in ran.json} == {
        "bad": "Unreadable",
        "web": "Converged",
        "worse": "Waiting",
    }
    ran = await operator("get", "-d", device.name)
    assert "can't be read: NotUtf8" in ran.out


async def test_wait_until_converged(operator: Operator, device: SimulatedDevice) -> None:
    wire = await applied(operator, device, converged=False)
    words = ["wait", "web", "-d", device.name, "--timeout", "60s"]
    running = asyncio.create_task(operator(*words))
    await asyncio.sleep(0.3)
    await device.say(status_of(wire))
    ran = await running
    assert (ran.code, ran.out) == (0, f"{device.name}/web  Converged\n")
    assert (await operator(*words, "-o", "json")).json["phase"] == "Converged"


async def test_wait_that_fails_or_times_out(operator: Operator, device: SimulatedDevice) -> None:
    wire = await applied(operator, device, converged=False)
    assert (await operator("wait", "web", "-d", device.name, "--timeout", "300ms")).code == 1
    await device.say(
        status_of(
            wire,
            "Failed",
            {"File/web-a": ("Failed", "PathOutsideRoots")},
            reason="PathOutsideRoots",
        )
    )
    ran = await operator("wait", "web", "-d", device.name)
    assert (ran.code, "PathOutsideRoots" in ran.out) == (1, True)
    silent = SimulatedDevice(device.client, f"{device.name}-b")
    await applied(operator, silent, converged=False)
    ran = await operator("wait", "web", "-d", silent.name, "--timeout", "300ms", "-o", "json")
    assert (ran.code, ran.json["reason"]) == (4, "DeviceSilent")


async def test_wait_until_removed(operator: Operator, device: SimulatedDevice) -> None:
    await applied(operator, device)
    words = ["wait", "web", "-d", device.name, "--for", "removed", "--timeout", "60s"]
    running = asyncio.create_task(operator(*words))  # before anybody asked for it
    await asyncio.sleep(0.3)
    process = await operator.process("delete", "web", "-d", device.name, "--no-wait")
    await process.wait()
    await device.converge("web", 2)
    assert (await running).code == 0
    assert (await operator(*words)).code == 0
    ran = await operator("wait", "web", "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (2, "BeingRemoved")


async def answering(device: SimulatedDevice, answer: bytes) -> list[bytes]:
    """Answer the verb logs; the questions that came."""
    questions: list[bytes] = []

    async def on_question(message: Msg) -> None:
        questions.append(message.data)
        await message.respond(answer)

    await device.client.subscribe(command_subject(device.name, "logs"), cb=on_question)
    await device.client.flush()
    return questions


async def test_logs(operator: Operator, device: SimulatedDevice) -> None:
    questions = await answering(device, b'{"ok":true,"lines":["one","two \\u001b[31mred\\ttab"]}')
    ran = await operator("logs", "Container/web", "-d", device.name, "-n", "20")
    assert (ran.code, ran.out) == (0, "one\ntwo ?[31mred\ttab\n")
    assert questions == [b'{"lines":20,"resource":"Container/web"}']
    ran = await operator("logs", "SystemdUnit/x@a\\x2db.service", "-d", device.name, "-o", "json")
    assert ran.json["lines"] == ["one", "two \x1b[31mred\ttab"]


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (
            b'{"ok":false,"error":{"code":"UnknownResource","message":"no such resource here"}}',
            1,
            "UnknownResource",
        ),
        (b"not json", 1, "AnswerUnreadable"),
        (b"[]", 1, "AnswerUnreadable"),
        (b'{"ok":true}', 1, "AnswerUnreadable"),
        (b'{"ok":false,"error":"x"}', 1, "AnswerUnreadable"),
    ],
)
async def test_logs_that_are_refused(
    operator: Operator, device: SimulatedDevice, answer: bytes, code: int, reason: str
) -> None:
    await answering(device, answer)
    ran = await operator("logs", "Container/a", "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (code, reason)


async def test_logs_of_a_device_that_does_not_answer(
    operator: Operator, device: SimulatedDevice
) -> None:
    ran = await operator("logs", "Container/a", "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (4, "DeviceSilent")


@pytest.mark.parametrize("resource", ["File/motd", "SystemUpgrade/u"])
async def test_what_has_no_logs(operator: Operator, device: SimulatedDevice, resource: str) -> None:
    questions = await answering(device, b'{"ok":true,"lines":[]}')
    ran = await operator("logs", resource, "-d", device.name)
    assert ran.code == 2
    assert f"a {resource.partition('/')[0]} has no logs" in ran.err
    assert questions == []


async def test_logs_with_times(
    operator: Operator, device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = b'{"ok":true,"lines":["2026-11-29T17:00:00.123456Z one","not a time"]}'
    questions = await answering(device, answer)
    ran = await operator("logs", "Container/web", "-d", device.name, "-t", "--since", "1m30s")
    assert ran.code == 0
    local = datetime(2026, 11, 29, 17, 0, 0, 123000, UTC).astimezone()
    assert ran.out == f"{local.isoformat(timespec='milliseconds')} one\nnot a time\n"
    asked = json.loads(questions[0])
    assert (asked["timestamps"], asked["since_seconds"]) == (True, 90.0)


async def test_logs_of_an_older_agent(operator: Operator, device: SimulatedDevice) -> None:
    """It refuses fields that it doesn't know; what can be had without them is shown."""

    async def older(message: Msg) -> None:
        known = json.loads(message.data).keys() <= {"resource", "lines"}
        refusal = b'{"ok":false,"error":{"code":"bad-request","message":"the request is"}}'
        await message.respond(b'{"ok":true,"lines":["one"]}' if known else refusal)

    await device.client.subscribe(command_subject(device.name, "logs"), cb=older)
    await device.client.flush()
    ran = await operator("logs", "Container/web", "-d", device.name, "-t")
    assert (ran.code, ran.out) == (0, "one\n") or ran.out == "one \n"
    assert "older version" in ran.err
    for option in (["--since", "5s"], ["-f"]):
        ran = await operator("logs", "Container/web", "-d", device.name, *option)
        assert (ran.code, "older version" in ran.err) == (1, True)


async def test_following_shows_each_line_once_until_ctrl_c(
    operator: Operator, device: SimulatedDevice
) -> None:
    lines = [f"2026-11-29T17:00:00.00000{n}Z line {n}" for n in range(3)]

    async def on_question(message: Msg) -> None:
        asked = json.loads(message.data)
        assert asked["timestamps"] is True
        told = lines if "since_seconds" in asked else lines[-1:]
        await message.respond(json.dumps({"ok": True, "lines": told}).encode())
        n = len(lines)
        lines.append(f"2026-11-29T17:00:00.00000{n}Z line {n}")

    await device.client.subscribe(command_subject(device.name, "logs"), cb=on_question)
    await device.client.flush()
    process = await operator.process("logs", "Container/web", "-d", device.name, "-f", "-n", "1")
    assert process.stdout is not None
    shown = [await asyncio.wait_for(process.stdout.readline(), 20) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, b"Traceback" in err) == (130, False)
    assert b"".join(shown) == b"line 2\nline 3\nline 4\n"


async def test_devices(operator: Operator, device: SimulatedDevice) -> None:
    never = SimulatedDevice(device.client, f"{device.name}-b")
    await never.tell(labels={"site": device.name, "rack": "2"}, podman=None)
    ran = await operator("devices", "-l", f"site={device.name}", "-o", "wide")
    assert ran.code == 0
    first, second = ran.out.splitlines()[1:]
    assert first.split()[:2] == [device.name, "fresh"]
    assert second.split()[:2] == [never.name, "never"]
    for part in ("debian 12 aarch64", "0.1.0", "5b0e62a2", "Container (podman 4.3.1)"):
        assert part in first
    assert "Container (no podman)" in second
    ran = await operator("devices", "-l", f"site={device.name}", "-l", "rack=2", "-o", "json")
    (only,) = ran.json
    assert (only["device"], only["state"], only["info"]["labels"]["rack"]) == (
        never.name,
        "never",
        "2",
    )


async def test_a_device_that_only_beats_or_tells_nonsense(
    operator: Operator, device: SimulatedDevice
) -> None:
    beats = SimulatedDevice(device.client, f"{device.name}-b")
    await beats.beat()
    await device.put("device-info", f"info.{device.name}-c", b'{"api":"harmony/v9"}')
    found = {item["device"]: item for item in (await operator("devices", "-o", "json")).json}
    assert (found[beats.name]["state"], found[beats.name]["info"]) == ("fresh", None)
    assert found[f"{device.name}-c"]["problem"]
    assert (await operator("devices")).code == 0


async def test_lists_and_waits_leave_no_consumer_behind(
    operator: Operator, device: SimulatedDevice
) -> None:
    await applied(operator, device)
    for words in (["status"], ["get"], ["devices"], ["wait", "web", "-d", device.name]):
        await operator(*words)
    async with asyncio.timeout(30):
        while any(
            info.state.consumer_count for info in await device.client.jetstream().streams_info()
        ):
            await asyncio.sleep(0.02)


async def lines_until(process: asyncio.subprocess.Process, word: str) -> list[str]:
    """The lines that a watch prints, up to the one with `word`; then it is ended by Ctrl-C."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(60):
        while not lines or word not in lines[-1]:
            line = await process.stdout.readline()
            assert line, lines
            lines.append(line.decode())
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, b"Traceback" in err) == (130, False)
    return lines


async def test_events_are_told_as_they_come(operator: Operator, device: SimulatedDevice) -> None:
    await applied(operator, device)
    first = await operator("events", "-d", device.name)
    assert [line.split()[2:] for line in first.out.splitlines()] == [
        [f"{device.name}/web", "Converged", "generation", "1"]
    ]
    words = ["events", "web", "-d", device.name, "-f", "-n", "0", "-o", "json"]
    process = await operator.process(*words)
    wire = await device.when_desired("web")

    async def until_seen() -> None:
        """The watch begins at some time: say things until it tells of the last."""
        for turn in range(1000):
            phase = ("Degraded", "NoSpace") if turn % 2 else "Ready"
            await device.say(status_of(wire, resources={"File/web-a": phase}))
            await asyncio.sleep(0.1)

    saying = asyncio.create_task(until_seen())
    lines = [json.loads(line) for line in await lines_until(process, "NoSpace")]
    saying.cancel()
    told = lines[-1]
    assert (told["event"], told["resource"], told["after"]) == (
        "resource",
        "File/web-a",
        "Degraded",
    )
    assert all(line["device"] == device.name for line in lines)


async def test_a_device_that_falls_silent_is_an_event(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """By the server's clock: a heartbeat of long ago isn't to be had, so the watch waits for it."""
    async with nats_server.client() as link:
        device = SimulatedDevice(link, "pi-01")
        await device.tell()
        await device.beat()
        process = await Operator(nats_server, tmp_path / "home").process("events", "-f")
        lines = await lines_until(process, "no heartbeat any more")
    assert lines[-1].split()[2:] == ["pi-01", "no", "heartbeat", "any", "more"]


async def test_a_status_that_is_watched(operator: Operator, device: SimulatedDevice) -> None:
    await applied(operator, device)
    process = await operator.process("status", "-d", device.name, "--watch", "-o", "json")
    assert process.stdout is not None
    first = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    assert (first["phase"], first["converged"]) == ("Converged", True)
    wire = await device.when_desired("web")
    await device.say(status_of(wire, "Failed", {"File/web-a": "Failed"}))
    lines = await lines_until(process, "Failed")
    assert json.loads(lines[-1])["converged"] is False


async def test_a_tree(operator: Operator, device: SimulatedDevice) -> None:
    scores = [a_file(), a_file("b", after=["File/motd"])]
    path = operator.file("web", *scores)
    await operator("apply", path, "-d", device.name)
    wire = await device.when_desired("web")
    await device.say(status_of(wire, "Progressing", {"File/motd": ("Degraded", "NoSpace")}))
    ran = await operator("tree", device.name)
    assert ran.code == 1
    lines = [line.split("── ")[-1] for line in ran.out.splitlines()]
    assert lines[0].startswith(f"{device.name}  fresh")
    assert lines[1:] == [
        "web  Progressing  generation 1/1  0/1 ready",
        "File/motd  Degraded  NoSpace",
        "File/b  Waiting  waits for File/motd",
    ]
    told = (await operator("tree", device.name, "-o", "json")).json
    assert [item["resource"] for item in told["deployments"][0]["resources"]] == [
        "File/motd", "File/b"
    ]  # fmt: skip
    missing = await operator("tree", "nonesuch", "-o", "json")
    assert (missing.code, missing.error["code"]) == (2, "NotFound")
