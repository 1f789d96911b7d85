"""`harmony apply`, `diff` and `delete` against a real server, with a device that the test
simulates.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from scores import Manifest
from scores.status import Rejection
from tests.integration.operator import Operator, a_file
from tests.integration.simulated import OTHER, SimulatedDevice, rejection, status_of
from tests.natsserver import NatsServer

SECRET = "s3cret-value"


async def answered(operator: Operator, device: SimulatedDevice, *words: str, answer: Any) -> Any:
    """Apply and wait, while the device answers with `answer(wire)`."""
    running = asyncio.create_task(
        operator("apply", *words, "-d", device.name, "--wait", "--timeout", "60s", "-o", "json")
    )
    wire = await device.when_desired("web")
    await device.say(answer(wire))
    return await running


async def test_apply_writes_what_the_file_says(operator: Operator, device: SimulatedDevice) -> None:
    ran = await operator("apply", operator.file("web", a_file()), "-d", device.name)
    assert (ran.code, ran.err) == (0, "")
    assert f"{device.name}/web  create  generation 1\n  + File/motd" in ran.out
    wire = await device.desired("web")
    assert wire is not None
    assert (wire.device, wire.deployment, wire.generation) == (device.name, "web", 1)
    assert wire.lineage == (operator.home / "lineage").read_text().strip()
    assert [score.key for score in wire.scores] == ["File/motd"]


async def test_the_same_again_writes_nothing_a_change_writes_the_next(
    operator: Operator, device: SimulatedDevice
) -> None:
    first = operator.file("web", a_file())
    await operator("apply", first, "-d", device.name)
    again = await operator("apply", first, "-d", device.name, "-o", "json")
    assert [item["action"] for item in again.json["results"]] == ["unchanged"]
    assert not again.json["results"][0]["written"]
    other = operator.file("web", a_file(content="other"))
    ran = await operator("apply", other, "-d", device.name, "-o", "json")
    assert (ran.json["results"][0]["generation"], ran.json["results"][0]["written"]) == (2, True)
    wire = await device.desired("web")
    assert wire is not None
    assert wire.generation == 2


async def test_dry_run_and_diff_write_nothing(operator: Operator, device: SimulatedDevice) -> None:
    path = operator.file("web", a_file())
    assert (await operator("apply", path, "-d", device.name, "--dry-run")).code == 0
    ran = await operator("diff", path, "-d", device.name)
    assert (ran.code, "create" in ran.out) == (1, True)
    assert await device.desired("web") is None
    await operator("apply", path, "-d", device.name)
    assert (await operator("diff", path, "-d", device.name)).code == 0
    assert (
        await operator("diff", operator.file("web", a_file(mode="0600")), "-d", device.name)
    ).code == 1


async def test_no_value_is_ever_shown(operator: Operator, device: SimulatedDevice) -> None:
    def scores(extra: str) -> list[dict[str, Any]]:
        env = {"PASSWORD": SECRET + extra}
        unit = {
            "kind": "SystemdUnit",
            "name": "u.service",
            "content": SECRET + extra,
            "dropins": {"a.conf": SECRET + extra},
        }
        return [
            a_file(content=SECRET + extra),
            unit,
            {"kind": "Container", "name": "c", "image": "localhost/c", "env": env},
        ]

    said = []
    for extra in ("1", "2"):
        for words in (
            ["diff"],
            ["apply", "--no-wait"],
            ["apply", "-o", "json"],
            ["apply", "-o", "yaml", "--dry-run"],
        ):
            said.append(
                await operator(
                    words[0], operator.file("web", *scores(extra)), "-d", device.name, *words[1:]
                )
            )
    broken = [score | {"unknown": SECRET} for score in scores("3")]
    said.append(await operator("apply", operator.file("web", *broken), "-d", device.name))
    said.append(
        await operator("apply", operator.file("web", *broken), "-d", device.name, "-o", "json")
    )
    for form in ("table", "json", "yaml"):
        said.append(await operator("get", "web", "-d", device.name, "-o", form))
        said.append(await operator("status", "web", "-d", device.name, "-o", form))
    assert SECRET not in "".join(ran.out + ran.err for ran in said)
    shown = await operator("get", "web", "-d", device.name, "-o", "yaml", "--show-values")
    assert shown.out.count(f"{SECRET}2") == 4


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (status_of, 0, ""),
        (
            lambda wire: status_of(wire, "Failed", {"File/motd": ("Failed", "PathOutsideRoots")}),
            1,
            "",
        ),
        (lambda wire: rejection(wire, "Rejected", "Invalid"), 1, "Invalid"),
        (lambda wire: rejection(wire, "Fenced", "LineageChanged"), 3, "LineageChanged"),
        (lambda wire: rejection(wire, "Fenced", "StaleGeneration"), 3, "StaleGeneration"),
        (lambda wire: rejection(wire, "Held", "PruneGuard"), 5, "PruneGuard"),
        (lambda wire: rejection(wire, "Rejected", "KindNotAllowed"), 5, "KindNotAllowed"),
        (
            lambda wire: status_of(
                wire, "Degraded", {"File/motd": ("Blocked", "OwnershipConflict")}
            ),
            5,
            "OwnershipConflict",
        ),
        (lambda wire: status_of(wire, generation=wire.generation + 1), 3, "StaleGeneration"),
    ],
)
async def test_every_outcome_has_its_code(
    operator: Operator, device: SimulatedDevice, answer: Any, code: int, reason: str
) -> None:
    ran = await answered(operator, device, operator.file("web", a_file()), answer=answer)
    assert ran.code == code, ran
    (result,) = ran.json["results"]
    assert (result["exit_code"], result["reason"]) == (code, reason)


async def test_progress_is_told_on_the_way(operator: Operator, device: SimulatedDevice) -> None:
    path = operator.file("web", a_file("a"), a_file("b"))
    running = asyncio.create_task(
        operator("apply", path, "-d", device.name, "--wait", "--timeout", "60s")
    )
    wire = await device.when_desired("web")
    async with asyncio.timeout(60):  # else the first would be overwritten before anybody looked
        while not (
            await device.client.jetstream().stream_info("KV_actual-state")
        ).state.consumer_count:
            await asyncio.sleep(0.02)
    await device.say(
        status_of(wire, "Degraded", {"File/a": "Ready", "File/b": ("Degraded", "NoSpace")})
    )
    await asyncio.sleep(0.5)
    await device.say(status_of(wire))
    ran = await running
    assert ran.code == 0
    assert ran.err.splitlines() == [
        f"{device.name}/web  File/b  Degraded  NoSpace",
        f"{device.name}/web  Degraded  1/2 ready",
        f"{device.name}/web  File/b  Degraded → Ready",
        f"{device.name}/web  Converged  2/2 ready",
    ]
    assert ran.out.splitlines()[-1].split() == [device.name, "web", "created", "1", "Converged"]


async def test_an_older_verdict_is_not_taken_for_this_one_s(
    operator: Operator, device: SimulatedDevice
) -> None:
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    wire = await device.desired("web")
    assert wire is not None
    failed = status_of(
        wire,
        "Rejected",
        {},
        rejected=Rejection(generation=None, reason="NotJson"),
        reason="NotJson",
    )
    await device.say(failed)
    path = operator.file("web", a_file(content="2"))
    running = asyncio.create_task(
        operator("apply", path, "-d", device.name, "--wait", "--timeout", "60s")
    )
    await device.when_desired("web", 2)
    await asyncio.sleep(0.3)
    assert not running.done()
    await device.converge("web", 2)
    assert (await running).code == 0


async def test_time_is_up_and_the_device_works_on(
    operator: Operator, device: SimulatedDevice
) -> None:
    path = operator.file("web", a_file())
    running = asyncio.create_task(
        operator("apply", path, "-d", device.name, "--wait", "--timeout", "1s", "-o", "json")
    )
    wire = await device.when_desired("web")
    await device.say(status_of(wire, "Progressing", {"File/motd": "Progressing"}))
    ran = await running
    assert ran.code == 1
    assert ran.json["results"][0]["reason"] == "Timeout"


async def test_time_is_up_and_the_device_lives_but_never_answered(
    operator: Operator, device: SimulatedDevice
) -> None:
    ran = await operator(
        "apply", operator.file("web", a_file()), "-d", device.name, "--wait", "--timeout", "500ms"
    )
    assert ran.code == 1
    assert "not settled after 0.5 s" in ran.out


async def test_time_is_up_and_the_device_never_answered(operator: Operator) -> None:
    ran = await operator(
        "apply", operator.file("web", a_file()), "-d", "nobody", "--wait", "--timeout", "500ms"
    )
    assert ran.code == 4
    assert "warning: nobody never told of itself" in ran.out
    assert "DeviceSilent" in ran.out
    assert "hint:" in ran.err


async def test_the_next_generation_counts_what_the_device_shows(
    operator: Operator, device: SimulatedDevice
) -> None:
    path = operator.file("web", a_file())
    await operator("apply", path, "-d", device.name)
    wire = await device.desired("web")
    assert wire is not None
    refusal = Rejection(generation=6, reason="Invalid")
    await device.say(status_of(wire, "Rejected", reason="Invalid", generation=4, rejected=refusal))
    ran = await operator("apply", path, "-d", device.name, "-o", "json")
    assert ran.json["results"][0]["generation"] == 7


async def test_a_recreated_bucket_is_written_above_what_the_device_has(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    operator = Operator(nats_server, tmp_path / "operator")
    async with nats_server.client() as client:
        device = SimulatedDevice(client, "pi-01")
        path = operator.file("web", a_file())
        for content in ("1", "2", "3"):
            await operator(
                "apply", operator.file("web", a_file(content=content)), "-d", device.name
            )
        wire = await device.desired("web")
        assert wire is not None
        await device.say(status_of(wire))
        await client.jetstream().delete_key_value("desired-state")
        assert (await operator("apply", path, "-d", device.name, "-o", "json")).json["results"][0][
            "generation"
        ] == 4
        again = await device.desired("web")
        assert again is not None
        assert again.generation == 4


async def test_another_lineage_is_not_written_over(
    operator: Operator, device: SimulatedDevice, tmp_path: Path
) -> None:
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    stranger = Operator(operator.server, tmp_path / "stranger")
    path = stranger.file("web", a_file(content="other"))
    ran = await stranger("apply", path, "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (3, "LineageChanged")
    assert "--take-over" in ran.error["hint"]
    wire = await device.desired("web")
    assert wire is not None
    assert wire.generation == 1
    assert (await stranger("delete", "web", "-d", device.name)).code == 3
    ran = await stranger("apply", path, "-d", device.name, "--take-over")
    assert ran.code == 0
    taken = await device.desired("web")
    assert taken is not None
    assert (taken.generation, taken.supersedes) == (2, wire.lineage)
    assert taken.lineage != wire.lineage


async def test_the_lineage_option_and_variable(
    operator: Operator, device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONY_LINEAGE", OTHER)
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    wire = await device.desired("web")
    assert wire is not None
    assert wire.lineage == OTHER
    own = OTHER.replace("1", "2")
    assert (
        await operator("apply", operator.file("b", a_file()), "-d", device.name, "--lineage", own)
    ).code == 0
    other = await device.desired("b")
    assert other is not None
    assert other.lineage == own


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"device": "pi-other"}, 2),
        ({"lineage": OTHER}, 3),
        ({"generation": 5}, 3),
        ({"generation": 1}, 0),
    ],
)
async def test_a_file_is_held_to_what_it_carries(
    operator: Operator, device: SimulatedDevice, fields: dict[str, Any], code: int
) -> None:
    ran = await operator("apply", operator.file("web", a_file(), **fields), "-d", device.name)
    assert ran.code == code
    assert (await device.desired("web") is None) == bool(code)


async def test_a_file_may_name_its_device(operator: Operator, device: SimulatedDevice) -> None:
    path = operator.file("web", a_file(), device=device.name)
    assert (await operator("diff", path)).code == 1
    assert (await operator("apply", path)).code == 0
    assert await device.desired("web") is not None


async def test_prune_guard_before_anything_is_written(
    operator: Operator, device: SimulatedDevice
) -> None:
    await operator(
        "apply", operator.file("web", *(a_file(name) for name in "abcd")), "-d", device.name
    )
    fewer = operator.file("web", a_file("a"))
    ran = await operator("apply", fewer, "-d", device.name)
    assert (ran.code, ran.out) == (5, "")
    assert "File/b, File/c, File/d" in ran.err
    assert "--allow-prune 3" in ran.err
    ran = await operator("apply", fewer, "-d", device.name, "--allow-prune", "3")
    assert ran.code == 0
    wire = await device.desired("web")
    assert wire is not None
    assert (wire.generation, wire.allow_prune) == (2, 3)


async def test_a_missing_capability_before_anything_is_written(
    operator: Operator, device: SimulatedDevice
) -> None:
    await device.tell(kinds=("File", "Container"), podman=None)
    container = {"kind": "Container", "name": "c", "image": "localhost/c"}
    ran = await operator("apply", operator.file("web", container), "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (5, "MissingCapability")
    unit = {"kind": "SystemdUnit", "name": "a.service"}
    ran = await operator("apply", operator.file("web", unit), "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (5, "KindNotAllowed")
    assert ran.error["errors"] == [{"field": "scores[0].kind", "code": "KindNotAllowed"}]
    assert await device.desired("web") is None


async def test_one_refusal_refuses_all_before_anything_is_written(
    operator: Operator, device: SimulatedDevice
) -> None:
    other = SimulatedDevice(device.client, f"{device.name}-b")
    await other.tell(labels={"site": device.name})
    await other.put(
        "desired-state",
        f"{other.name}.web",
        Manifest(deployment="web").bind(other.name, OTHER, 1).canonical(),
    )
    ran = await operator("apply", operator.file("web", a_file()), "--select", f"site={device.name}")
    assert ran.code == 3
    assert other.name in ran.err
    assert await device.desired("web") is None


async def test_what_a_device_says_refuses_for_that_device_alone(
    operator: Operator, device: SimulatedDevice
) -> None:
    other = SimulatedDevice(device.client, f"{device.name}-b")
    await other.tell(kinds=("Container",), labels={"site": device.name})
    path = operator.file("web", a_file())
    assert (await operator("diff", path, "--select", f"site={device.name}")).code == 1
    ran = await operator("apply", path, "--select", f"site={device.name}", "-o", "json")
    assert ran.code == 5
    told = {item["device"]: (item["written"], item["reason"]) for item in ran.json["results"]}
    assert told == {device.name: (True, ""), other.name: (False, "KindNotAllowed")}
    assert await device.desired("web") is not None
    assert await other.desired("web") is None
    ran = await operator("apply", path, "--select", f"site={device.name}")
    assert (ran.code, "KindNotAllowed" in ran.out, "hint" in ran.err) == (5, True, True)


async def test_several_devices_and_several_manifests(
    operator: Operator, device: SimulatedDevice
) -> None:
    other = SimulatedDevice(device.client, f"{device.name}-b")
    elsewhere = SimulatedDevice(device.client, f"{device.name}-c")
    await other.tell(labels={"site": device.name, "rack": "2"})
    await other.beat()
    await elsewhere.tell(labels={"site": "elsewhere"})
    path = operator.folder / "two.yaml"
    path.write_text(
        "\n---\n".join(
            Path(operator.file(name, a_file(name))).read_text() for name in ("one", "two")
        )
    )
    words = [
        "apply",
        str(path),
        "-l",
        f"site={device.name}",
        "--wait",
        "--timeout",
        "60s",
        "-o",
        "json",
    ]
    running = asyncio.create_task(operator(*words))
    await asyncio.gather(*(at.converge(name) for at in (device, other) for name in ("one", "two")))
    ran = await running
    assert ran.code == 0
    assert {
        (item["device"], item["deployment"], item["phase"]) for item in ran.json["results"]
    } == {(at.name, name, "Converged") for at in (device, other) for name in ("one", "two")}
    assert await elsewhere.desired("one") is None
    ran = await operator(
        "apply", str(path), "-l", f"site={device.name}", "-l", "rack=2", "-o", "json", "--dry-run"
    )
    assert {item["device"] for item in ran.json["results"]} == {other.name}


async def test_one_device_of_several_fails(operator: Operator, device: SimulatedDevice) -> None:
    other = SimulatedDevice(device.client, f"{device.name}-b")
    await other.tell(labels={"site": device.name})
    path = operator.file("web", a_file())
    running = asyncio.create_task(
        operator(
            "apply", path, "-l", f"site={device.name}", "--wait", "--timeout", "60s", "-o", "json"
        )
    )
    await device.converge("web")
    wire = await other.when_desired("web")
    await other.say(rejection(wire, "Rejected", "Invalid"))
    ran = await running
    assert ran.code == 1
    assert {item["device"]: item["exit_code"] for item in ran.json["results"]} == {
        device.name: 0,
        other.name: 1,
    }


@pytest.mark.parametrize("words", [[], ["--select", "site=nowhere"]])
async def test_no_device_is_chosen(operator: Operator, words: list[str]) -> None:
    ran = await operator("apply", operator.file("web", a_file()), *words, "-o", "json")
    assert (ran.code, ran.error["code"]) == (2, "NoDevice")


async def test_two_at_once_one_wins(operator: Operator, device: SimulatedDevice) -> None:
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    paths = [operator.file("web", a_file(content=f"{n}")) for n in range(1)]
    for n in range(1, 8):
        path = operator.folder / f"web{n}.json"
        path.write_text(
            json.dumps({"deployment": "web", "scores": [a_file(content=f"content {n}")]})
        )
        paths.append(str(path))
    racers = [
        await operator.process("apply", path, "-d", device.name, "--no-wait", "-o", "json")
        for path in paths
    ]
    ends = [await racer.communicate() for racer in racers]
    codes = [racer.returncode for racer in racers]
    assert set(codes) <= {0, 3}, ends
    assert codes.count(0) >= 1
    written = [
        json.loads(out)["results"][0]["generation"]
        for code, (out, _) in zip(codes, ends, strict=True)
        if code == 0 and json.loads(out)["results"][0]["written"]
    ]
    assert len(set(written)) == len(written)  # never two of one generation
    wire = await device.desired("web")
    assert wire is not None
    assert wire.generation == max(written) == 1 + len(written)


async def test_a_lost_cas_is_3_and_writes_nothing_over(
    operator: Operator, device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another operator writes exactly between our read and our write."""
    from harmony_fleet.nats.kv import Store

    genuine = Store.ensure_buckets
    await operator("apply", operator.file("web", a_file(content="1")), "-d", device.name)
    first = await device.desired("web")
    assert first is not None
    theirs = first.model_copy(update={"generation": 2, "allow_prune": 1}).canonical()

    async def and_another_writes(store: Store, replicas: int = 1) -> None:
        await genuine(store, replicas)
        found = await store.get("desired-state", f"{device.name}.web")
        await store.put("desired-state", f"{device.name}.web", theirs, found.revision)

    monkeypatch.setattr(Store, "ensure_buckets", and_another_writes)
    ran = await operator(
        "apply",
        operator.file("web", a_file(content="2")),
        "-d",
        device.name,
        "--wait",
        "-o",
        "json",
    )
    assert ran.code == 3
    assert ran.json["results"][0]["reason"] == "Conflict"
    assert not ran.json["results"][0]["written"]
    wire = await device.desired("web")
    assert wire is not None
    assert wire.canonical() == theirs


async def test_what_cannot_be_read_is_not_written_over(
    operator: Operator, device: SimulatedDevice
) -> None:
    await device.put("desired-state", f"{device.name}.web", b"not json")
    path = operator.file("web", a_file())
    ran = await operator("apply", path, "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (3, "DesiredUnreadable")
    assert (await operator("apply", path, "-d", device.name, "--take-over")).code == 0
    await device.put("actual-state", f"{device.name}.web", b'{"api":"harmony/v9"}')
    ran = await operator("apply", operator.file("web"), "-d", device.name, "-o", "json")
    assert (ran.code, ran.error["code"]) == (1, "Unreadable")


async def test_missing_buckets_are_made(nats_server: NatsServer, tmp_path: Path) -> None:
    operator = Operator(nats_server, tmp_path / "operator")
    assert (await operator("apply", operator.file("web", a_file()), "-d", "pi-01")).code == 0
    async with nats_server.client() as client:
        names = {info.config.name for info in await client.jetstream().streams_info()}
    assert names >= {
        "KV_desired-state",
        "KV_actual-state",
        "KV_device-info",
        "KV_device-heartbeat",
        "KV_task-runs",
    }


POD = {"kind": "Container", "name": "web", "image": "busybox"}
UPGRADE = {
    "kind": "SystemUpgrade",
    "name": "u",
    "attempt_id": "a",
    "run_uid": "r",
    "expires_at": "2026-11-29T18:00:00Z",
}
REFUSED: dict[str, list[dict[str, Any]]] = {
    "too large for the server": [a_file(f"f{n}", "x" * 500_000) for n in range(3)],
    "a kind that isn't allowed": [UPGRADE],
    "a capability that is missing": [POD],
    "too many removals": [a_file("a")],
    "memory without a unit": [{**POD, "memory": 64}],
    "another generation": [a_file("g")],
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_dry_run_refuses_what_the_real_one_does(
    operator: Operator, device: SimulatedDevice, name: str
) -> None:
    await device.tell(podman=None)
    before = operator.file("web", *(a_file(letter) for letter in "abcd"))
    assert (await operator("apply", before, "-d", device.name)).code == 0
    fields = {"generation": 9} if name == "another generation" else {}
    path = operator.file("web", *REFUSED[name], **fields)
    dry = await operator("apply", path, "-d", device.name, "--dry-run")
    json_dry = await operator("apply", path, "-d", device.name, "--dry-run", "-o", "json")
    real = await operator("apply", path, "-d", device.name, "-o", "json")
    assert real.code not in (0, 1)
    assert (dry.code, json_dry.code) == (real.code, real.code)
    reasons = [_reasons(ran) for ran in (json_dry, real)]
    assert reasons[0] == reasons[1]
    assert reasons[0][0] in dry.err + dry.out or dry.err.startswith("error:")
    assert "create  generation" not in dry.err


def _reasons(ran: Any) -> list[str]:
    """The codes that a command told, of each deployment or of the whole."""
    if ran.out.startswith("{"):
        return [item["reason"] for item in ran.json["results"]]
    return [ran.error["code"]]


async def test_too_large_for_the_server(operator: Operator, device: SimulatedDevice) -> None:
    scores = [a_file(f"f{n}", "x" * 500_000) for n in range(3)]
    ran = await operator("apply", operator.file("web", *scores), "-d", device.name, "-o", "json")
    assert ran.code == 2
    assert ran.json["results"][0]["reason"] == "TooLarge"


async def test_delete_waits_then_purges_the_key(
    operator: Operator, device: SimulatedDevice
) -> None:
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    await device.converge("web")
    running = asyncio.create_task(
        operator("delete", "web", "-d", device.name, "--wait", "--timeout", "60s", "-o", "json")
    )
    wire = await device.when_desired("web", 2)
    assert (wire.removed, len(wire.scores)) == (True, 0)
    await device.say(status_of(wire, "Removing", {"File/motd": "Removing"}))
    await asyncio.sleep(0.2)
    assert not running.done()
    await device.say(status_of(wire))
    ran = await running
    assert (ran.code, ran.json["results"][0]["phase"]) == (0, "Removed")
    assert await device.desired("web") is None
    assert (await operator("status", "-d", device.name)).out.count("\n") == 1
    assert "Removed" in (await operator("status", "-d", device.name, "--all")).out
    again = await operator("delete", "web", "-d", device.name)
    assert (again.code, "nothing to do" in again.err) == (0, True)
    ran = await operator("apply", operator.file("web", a_file()), "-d", device.name, "-o", "json")
    assert (ran.json["results"][0]["generation"], ran.json["results"][0]["action"]) == (3, "create")


async def test_delete_without_waiting_then_again(
    operator: Operator, device: SimulatedDevice
) -> None:
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    assert (await operator("delete", "web", "-d", device.name, "--no-wait")).code == 0
    wire = await device.desired("web")
    assert wire is not None
    assert (wire.removed, wire.generation) == (True, 2)
    assert "to be removed" in (await operator("get", "web", "-d", device.name)).out
    ran = await operator(
        "delete", "web", "-d", device.name, "--wait", "--timeout", "500ms", "-o", "json"
    )
    assert (ran.code, ran.json["results"][0]["action"]) == (1, "unchanged")
    await device.say(status_of(wire))
    assert (
        await operator("delete", "web", "-d", device.name, "--wait", "--timeout", "5s")
    ).code == 0
    assert await device.desired("web") is None


async def test_delete_of_what_only_the_device_has(
    operator: Operator, device: SimulatedDevice
) -> None:
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    await device.converge("web")
    await device.client.jetstream().purge_stream(
        "KV_desired-state", subject=f"$KV.desired-state.{device.name}.web"
    )
    assert await device.desired("web") is None
    assert (await operator("delete", "web", "-d", device.name, "--no-wait")).code == 0
    wire = await device.desired("web")
    assert wire is not None
    assert (wire.removed, wire.generation) == (True, 2)


async def test_a_newer_generation_is_not_purged(
    operator: Operator, device: SimulatedDevice
) -> None:
    await operator("apply", operator.file("web", a_file()), "-d", device.name)
    running = asyncio.create_task(
        operator("delete", "web", "-d", device.name, "--wait", "--timeout", "60s")
    )
    wire = await device.when_desired("web", 2)
    process = await operator.process(
        "apply", operator.file("web", a_file(content="new")), "-d", device.name, "--no-wait"
    )
    await process.wait()
    await device.say(status_of(wire))
    await running
    kept = await device.desired("web")
    assert kept is not None
    assert (kept.generation, kept.removed) == (3, False)


async def test_an_interrupt_says_that_the_manifest_stays(
    operator: Operator, device: SimulatedDevice
) -> None:
    import signal

    process = await operator.process(
        "apply", operator.file("web", a_file()), "-d", device.name, "--wait"
    )
    await device.when_desired("web")
    await asyncio.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert process.returncode == 130
    assert b"what was applied stays applied" in err
    assert b"Traceback" not in out + err


async def test_unreachable_is_4_in_time(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats").start()
    server.stop()
    operator = Operator(server, tmp_path / "operator")
    path, at = operator.file("web", a_file()), ["-d", "pi-01"]
    commands = [
        ["apply", path, *at, "--wait", "--timeout", "1s"],
        ["diff", path, *at],
        ["get"],
        ["status"],
        ["wait", "web", *at, "--timeout", "1s"],
        ["delete", "web", *at, "--wait", "--timeout", "1s"],
        ["logs", "Container/web", *at],
        ["devices"],
    ]
    async with asyncio.timeout(120):  # one that waits for NATS would never end
        for words in commands:
            process = await operator.process(*words, "-o", "json")
            out, err = await process.communicate()
            assert (process.returncode, out) == (4, b""), (words, err)
            assert json.loads(err)["error"]["code"] == "NatsUnreachable"


async def test_unreachable_is_told_within_the_timeout(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats").start()
    server.stop()
    operator = Operator(server, tmp_path / "operator")
    started = time.monotonic()
    ran = await operator("wait", "web", "-d", "pi-01", "--timeout", "1s")
    assert ran.code == 4
    assert time.monotonic() - started < 50  # the default is 60


async def test_nats_is_lost_while_waiting(nats_server: NatsServer, tmp_path: Path) -> None:
    operator = Operator(nats_server, tmp_path / "operator")
    async with nats_server.client() as client:
        device = SimulatedDevice(client, "pi-01")
        process = await operator.process(
            "apply",
            operator.file("web", a_file()),
            "-d",
            "pi-01",
            "--wait",
            "--timeout",
            "3s",
            "-o",
            "json",
        )
        await device.when_desired("web")
    nats_server.stop()
    out, err = await process.communicate()
    assert process.returncode == 4, (out, err)
    assert json.loads(out)["results"][0]["reason"] == "NatsUnreachable"


async def test_nats_restarts_while_waiting(nats_server: NatsServer, tmp_path: Path) -> None:
    operator = Operator(nats_server, tmp_path / "operator")
    async with nats_server.client() as client:
        process = await operator.process(
            "apply",
            operator.file("web", a_file()),
            "-d",
            "pi-01",
            "--wait",
            "--timeout",
            "20s",
            "-o",
            "json",
        )
        await SimulatedDevice(client, "pi-01").when_desired("web")
    await asyncio.to_thread(nats_server.restart, kill=True, down=0.5)
    async with nats_server.client() as client:
        await SimulatedDevice(client, "pi-01").converge("web")
    out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
