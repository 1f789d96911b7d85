"""`harmony fleet` against a real server, with devices that answer by themselves: five commands,
drift, exit codes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from scores import Manifest
from scores.canonical import canonical
from scores.jetstream import kv_subject
from scores.keys import ACTUAL, DESIRED, INFO, info_key
from scores.manifest import WireManifest, decode
from tests.integration.operator import Operator, Ran
from tests.integration.simfleet import SimFleet, resource
from tests.natsserver import NatsServer

OTHER = "00000000-0000-4000-8000-000000000009"
UNIT = {
    "kind": "SystemdUnit",
    "name": "web.service",
    "content": "[Service]\nExecStart=/bin/sleep 9\n",
    "enabled": True,
}
SCORES = [
    {
        "kind": "File",
        "name": "motd",
        "path": "/srv/motd",
        "content": {"$text": "s3cret ${device} ${port}\n"},
    },
    UNIT,
    {"kind": "Container", "name": "web", "image": "localhost/busybox"},
]
NAMES = ("pi-01", "pi-02", "pi-03")


class Site:
    """An operator with a roster, at a server of their own, and three devices of two classes."""

    def __init__(self, operator: Operator, fleet: SimFleet) -> None:
        self.operator, self.fleet = operator, fleet
        self.generation = 1

    async def __call__(self, *words: str, code: int = 0) -> Ran:
        ran = await self.operator(*words)
        assert ran.code == code, (words, ran.out, ran.err)
        return ran

    async def change(self, *words: str, code: int = 0) -> Ran:
        """A mutation at the current generation."""
        ran = await self("fleet", *words, "--generation", str(self.generation), code=code)
        self.generation += code == 0 and "nothing changed" not in ran.err
        return ran

    async def raw(self, bucket: str, key: str) -> bytes | None:
        request = json.dumps({"last_by_subj": kv_subject(bucket, key)}).encode()
        answer = await self.fleet.client.request(
            f"$JS.API.STREAM.MSG.GET.KV_{bucket}", request, timeout=30
        )
        import base64

        message = json.loads(answer.data).get("message")
        return (
            None if message is None or "data" not in message else base64.b64decode(message["data"])
        )

    async def wire(self, device: str, deployment: str = "web") -> WireManifest:
        data = await self.raw(DESIRED, f"{device}.{deployment}")
        assert data is not None
        return decode(data, device=device, deployment=deployment)

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        await self.fleet.client.request(kv_subject(bucket, key), value, timeout=30)

    async def findings(self) -> set[tuple[str, str, str]]:
        """What doctor names: code, device/deployment, resource. verify must find it too."""
        told = (await self("fleet", "doctor", "-o", "json")).json["findings"]
        assert all(item["response"] for item in told)
        again = await self("fleet", "verify", "-o", "json", code=1 if told else 0)
        assert again.json["findings"] == told
        assert (await self.operator("fleet", "plan", "-o", "json")).json["findings"] == told
        place = "{device}/{deployment}"
        return {
            (item["code"], place.format(**item).removesuffix("/None"), item["resource"] or "")
            for item in told
        }

    async def say(self, device: str, phase: Any, **resources: Any) -> None:
        await self.fleet.say(await self.wire(device), phase, **resources)
        await self.fleet.client.flush()


@pytest.fixture
async def site(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Site]:
    operator = Operator(nats_server, tmp_path / "operator")
    async with nats_server.client() as client:
        await client.jetstream().account_info()
        from harmony_fleet.context import Context
        from harmony_fleet.nats.kv import Store

        async with Store(Context((nats_server.url,), None, None, tmp_path)) as store:
            await store.ensure_buckets()
        async with SimFleet(client, NAMES) as fleet:
            made = Site(operator, fleet)
            await made("fleet", "init")
            yield made


@pytest.fixture
async def live(site: Site) -> Site:
    """Converged with the five commands of the README."""
    path = site.operator.folder / "web.json"
    path.write_text(json.dumps(SCORES))
    await site.change(
        "device", "add", "pi-01", "pi-02", "--class", "web", "--variable", "port=8080"
    )
    await site.change("device", "add", "pi-03", "--class", "edge", "--variable", "port=8081")
    await site.change("deployment", "add", "web", "--file", str(path))
    await site("fleet", "apply", "--wait", "--timeout", "20s")
    return site


async def test_from_empty_to_converged(live: Site) -> None:
    assert await live.findings() == set()
    told = (await live("fleet", "status", "-o", "json")).json
    assert told["deployments"] == [
        {
            "deployment": "web",
            "succeeded": 3,
            "failed": 0,
            "pending": 0,
            "held": 0,
            "last_error": None,
        }
    ]
    assert (told["generation"], told["members"], told["devices"], told["stale"]) == (4, 3, 3, [])
    shown = await live("fleet", "status")
    assert all(name in shown.out for name in NAMES)
    wire = await live.wire("pi-03")
    assert wire.scores[0].wire()["content"] == "s3cret pi-03 8081\n"
    before = [await live.raw(DESIRED, f"{name}.web") for name in NAMES]
    again = (await live("fleet", "apply", "-o", "json")).json
    assert (again["writes"], again["unchanged"]) == ([], 3)
    assert [await live.raw(DESIRED, f"{name}.web") for name in NAMES] == before


async def test_the_same_roster_gives_the_same_bytes(live: Site) -> None:
    before = [await live.raw(DESIRED, f"{name}.web") for name in NAMES]
    for name in NAMES:
        live.fleet[name].enforced.clear()
    await live.fleet.client.jetstream().purge_stream(f"KV_{DESIRED}")
    await live.fleet.client.jetstream().purge_stream(f"KV_{ACTUAL}")
    await live("fleet", "apply", "--wait")
    assert [await live.raw(DESIRED, f"{name}.web") for name in NAMES] == before


async def test_stopped_keeps_files_disabled_wins_and_back(live: Site) -> None:
    await live.change("device", "set", "pi-01", "--desired-state", "stopped")
    assert ("unexpected", "pi-01/web", "SystemdUnit/web.service") in await live.findings()
    await live.change("device", "set", "pi-02", "--disable")
    assert {
        ("disabled-running", "pi-02/web", name)
        for name in ("SystemdUnit/web.service", "Container/web")
    } <= (await live.findings())
    await live("fleet", "apply", "--wait")
    assert await live.findings() == set()
    for name in ("pi-01", "pi-02"):
        scores = {score.key: score.wire() for score in (await live.wire(name)).scores}
        assert scores["File/motd"]["content"] == f"s3cret {name} 8080\n"
        assert (
            scores["SystemdUnit/web.service"]["state"],
            scores["SystemdUnit/web.service"]["enabled"],
        ) == (
            "stopped",
            False,
        )
        assert scores["Container/web"]["state"] == "stopped"
    await live.change("device", "set", "pi-01", "pi-02", "--enable", "--desired-state", "running")
    await live("fleet", "reconcile", "--timeout", "20s")
    assert "state" not in (await live.wire("pi-02")).scores[1].wire()


async def test_a_disabled_device_gets_nothing_new(live: Site) -> None:
    await live.change("device", "set", "pi-03", "--disable")
    path = live.operator.folder / "b.json"
    path.write_text(json.dumps([{"kind": "File", "name": "b", "path": "/srv/b", "content": "b"}]))
    await live.change("deployment", "add", "b", "--file", str(path), "--inline")
    await live("fleet", "reconcile")
    assert await live.raw(DESIRED, "pi-03.b") is None
    assert await live.raw(DESIRED, "pi-02.b") is not None


async def test_what_leaves_the_roster_is_removed_and_its_keys_go(live: Site) -> None:
    await live.change("device", "remove", "pi-03")
    assert ("projection-differs", "pi-03/web", "") in await live.findings()
    await live("fleet", "apply", "--wait")
    assert await live.raw(DESIRED, "pi-03.web") is None
    assert json.loads(await live.raw(ACTUAL, "pi-03.web") or b"")["phase"] == "Removed"
    assert await live.findings() == {("unmanaged", "pi-03", "")}
    live.fleet["pi-02"].plugged = False
    await live.change("deployment", "remove", "web")
    assert (await live("fleet", "apply", "-o", "json", code=5)).error["code"] == "PruneGuard"
    words = ["--allow-removals", "2", "--wait", "--timeout", "1s", "-o", "json"]
    ran = await live("fleet", "apply", *words, code=1)
    assert {item["device"]: item["phase"] for item in ran.json["results"]} == {
        "pi-01": "Removed",
        "pi-02": "Waiting",
    }
    assert (await live.wire("pi-02")).removed
    await live.fleet.say(await live.wire("pi-02"))
    live.fleet["pi-02"].plugged = True
    await live("fleet", "apply")
    assert await live.raw(DESIRED, "pi-02.web") is None


async def test_what_left_the_roster_comes_back(live: Site) -> None:
    await live.change("deployment", "remove", "web")
    await live("fleet", "apply", "--wait", "--timeout", "20s", "--allow-removals", "3")
    assert await live.raw(DESIRED, "pi-01.web") in (None, b"")
    path = live.operator.folder / "web.json"
    await live.change("deployment", "add", "web", "--file", str(path))
    await live("fleet", "apply", "--wait", "--timeout", "20s")
    assert await live.findings() == set()
    assert (await live.wire("pi-01")).generation == 3


async def test_drift_in_desired_state(live: Site) -> None:
    wire = await live.wire("pi-01")
    other = wire.model_copy(update={"generation": 2, "scores": wire.scores[:2]})
    await live.put(DESIRED, "pi-01.web", other.canonical())
    await live.fleet.client.jetstream().purge_stream(
        f"KV_{DESIRED}", subject=kv_subject(DESIRED, "pi-02.web")
    )
    stolen = (await live.wire("pi-03")).model_copy(update={"lineage": OTHER})
    await live.put(DESIRED, "pi-03.web", stolen.canonical())
    assert await live.findings() == {
        ("projection-differs", "pi-01/web", ""),
        ("projection-missing", "pi-02/web", ""),
        ("ownership-mismatch", "pi-03/web", ""),
    }
    before = await live.raw(DESIRED, "pi-01.web")
    ran = await live("fleet", "apply", "-o", "json", code=3)
    assert ran.error["code"] == "LineageChanged"
    assert await live.raw(DESIRED, "pi-01.web") == before
    await live("fleet", "apply", "-d", "pi-01", "-d", "pi-02", "--wait")
    assert await live.findings() == {("ownership-mismatch", "pi-03/web", "")}
    assert (await live.wire("pi-01")).generation == 3
    await live("fleet", "apply", "--take-over", "--wait")
    assert await live.findings() == set()


async def test_drift_on_devices(live: Site) -> None:
    wire = await live.wire("pi-01")
    unit, container = wire.scores[1], wire.scores[2]
    down = resource(wire, unit)
    down = down.model_copy(
        update={"status": down.status.model_copy(update={"active_state": "inactive"})}
    )  # type: ignore[union-attr]
    taken = resource(wire, container).model_copy(
        update={"phase": "Blocked", "reason": "OwnershipConflict", "status": None}
    )
    await live.say("pi-01", "Degraded", **{unit.key: down, container.key: taken})
    fenced = json.loads(await live.raw(ACTUAL, "pi-02.web") or b"")
    fenced |= {"rejected": {"generation": 1, "reason": "StaleGeneration", "errors": []}}
    await live.put(ACTUAL, "pi-02.web", json.dumps(fenced).encode())
    live.fleet["pi-03"].updater = False
    told = json.loads(await live.raw(INFO, "info.pi-03") or b"")
    told["capabilities"]["podman"] = None
    await live.put(INFO, "info.pi-03", json.dumps(told).encode())
    assert await live.findings() == {
        ("not-converged", "pi-01/web", ""),
        ("missing", "pi-01/web", "SystemdUnit/web.service"),
        ("unmanaged", "pi-01/web", "Container/web"),
        ("fenced", "pi-02/web", ""),
        ("capability-missing", "pi-03/web", ""),
    }
    await live.change("device", "set", "pi-03", "--variable", "port=9")
    await live.change("device", "set", "pi-02", "--variable", "port=9")
    ran = await live("fleet", "apply", "-o", "json", code=5)
    assert [(item["device"], item["code"]) for item in ran.json["refused"]] == [
        ("pi-03", "MissingCapability")
    ]
    assert [item["device"] for item in ran.json["writes"]] == ["pi-02"]


async def test_what_is_not_ours_is_reported_and_left(live: Site) -> None:
    theirs = Manifest(deployment="theirs").bind("pi-01", OTHER, 7).canonical()
    await live.put(DESIRED, "pi-01.theirs", theirs)
    async with SimFleet(live.fleet.client, ["stranger"]):
        assert await live.findings() == {
            ("unmanaged", "pi-01/theirs", ""),
            ("unmanaged", "stranger", ""),
        }
        await live("fleet", "reconcile", code=1)
    assert await live.raw(DESIRED, "pi-01.theirs") == theirs


async def test_a_silent_device_is_stale(live: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    live.fleet["pi-02"].plugged = False
    monkeypatch.setattr("harmony_fleet.observe.state.STALE_AFTER", timedelta(seconds=5))
    await asyncio.sleep(5.5)
    assert await live.findings() == {("heartbeat-stale", "pi-02", "")}


async def test_a_saved_plan_holds_until_something_moves(live: Site) -> None:
    plan = str(live.operator.folder / "friday.plan")
    await live.change("device", "set", "pi-01", "--variable", "port=1")
    await live("fleet", "plan", "-o", plan)
    assert b"s3cret" not in Path(plan).read_bytes()
    before = await live.raw(DESIRED, "pi-01.web")
    await live.change("device", "set", "pi-02", "--variable", "port=2")
    ran = await live("fleet", "apply", plan, "-o", "json", code=3)
    assert (ran.error["code"], "roster" in ran.error["message"]) == ("PlanStale", True)
    await live("fleet", "plan", "-o", plan)
    await live.put(
        DESIRED,
        "pi-03.web",
        (await live.wire("pi-03")).model_copy(update={"generation": 2}).canonical(),
    )
    ran = await live("fleet", "apply", plan, "-o", "json", code=3)
    assert (ran.error["code"], "buckets" in ran.error["message"]) == ("PlanStale", True)
    assert await live.raw(DESIRED, "pi-01.web") == before
    await live("fleet", "plan", "-d", "pi-01", "-o", plan)
    await live("fleet", "apply", plan, "--wait")
    assert (await live.wire("pi-01")).generation == 2
    assert (await live.wire("pi-02")).generation == 1
    await live("fleet", "apply", plan, code=3)
    Path(plan).write_text("{}")
    await live("fleet", "apply", plan, code=2)
    await live("fleet", "apply", "nowhere.plan", code=2)


async def test_a_file_that_changed_is_taken_by_a_mutation_alone(live: Site) -> None:
    path = live.operator.folder / "web.json"
    path.write_text(json.dumps(SCORES[:2]))
    before = [await live.raw(DESIRED, f"{name}.web") for name in NAMES]
    assert await live.findings() == {("file-changed", "None/web", "")}
    ran = await live("fleet", "apply", "-o", "json", code=1)
    assert [item["code"] for item in ran.json["refused"]] == ["FileChanged"]
    assert [await live.raw(DESIRED, f"{name}.web") for name in NAMES] == before
    await live.change("deployment", "set", "web", "--file", str(path))
    await live("fleet", "apply", "--wait")
    assert await live.findings() == set()


@pytest.mark.parametrize("text", [json.dumps(SCORES[:2]), "[", '{"scores": 7}'])
async def test_one_file_that_changed_holds_its_own_deployment_alone(live: Site, text: str) -> None:
    other = live.operator.folder / "other.json"
    other.write_text(json.dumps([{"kind": "File", "name": "o", "path": "/srv/o", "content": "o"}]))
    web = live.operator.folder / "web.json"
    was = web.read_text()
    web.write_text(text)
    await live.change("deployment", "add", "other", "--file", str(other), "--class", "edge")
    await live.change("deployment", "set", "web", "--class", "web")  # pi-03 is to lose it
    before = [await live.raw(DESIRED, f"{name}.web") for name in NAMES]
    await live("fleet", "apply", "-d", "pi-03", "--wait")
    assert (await live.wire("pi-03", "other")).generation == 1
    ran = await live("fleet", "apply", code=1)
    assert ran.out.count("FileChanged") + ran.err.count("FileChanged") == 1
    assert await live.findings() == {("file-changed", "None/web", "")}
    assert [await live.raw(DESIRED, f"{name}.web") for name in NAMES[:2]] == before[:2]
    web.write_text(was)
    await live("fleet", "apply", "--wait")
    assert await live.findings() == set()


async def test_the_prune_guard_holds_a_roster_up(live: Site) -> None:
    path = live.operator.folder / "web.json"
    path.write_text(json.dumps(SCORES[:1]))
    await live.change("deployment", "set", "web", "--file", str(path))
    ran = await live("fleet", "apply", "-o", "json", code=5)
    assert ran.error["code"] == "PruneGuard"
    await live("fleet", "apply", "--allow-prune", "2", "--wait")
    assert await live.findings() == set()


async def test_no_value_is_shown(live: Site) -> None:
    await live.change("device", "set", "pi-01", "--variable", "port=s3cret")
    said = [
        await live.operator("fleet", *words)
        for words in (["doctor"], ["plan"], ["plan", "-o", "json"], ["apply"])
    ]
    assert "s3cret" not in "".join(ran.out + ran.err for ran in said)


async def test_without_a_server_it_is_code_4(
    live: Site, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nats_server.stop()
    monkeypatch.setattr("harmony_fleet.nats.connection.CONNECT_SECONDS", 0.3)
    for verb in ("status", "doctor", "verify", "plan", "apply", "reconcile"):
        await live("fleet", verb, code=4)


async def test_an_apply_killed_anywhere_is_carried_on_by_the_next(live: Site) -> None:
    for at, wait in enumerate((0.3, 0.6, 0.7), 2):
        await live.change("device", "set", *NAMES, "--variable", f"port={at}")
        process = await live.operator.process("fleet", "apply", "--no-wait")
        await asyncio.sleep(wait)
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
        await process.communicate()
        assert sorted(os.listdir(live.operator.home / "fleet")) == ["roster.seal", "roster.yaml"]
        await live("fleet", "apply", "--wait", "--timeout", "10s")
        assert {(await live.wire(name)).generation for name in NAMES} == {at}
    assert await live.findings() == set()


async def test_a_partial_failure_leaves_the_roster_and_says_how_to_go_on(
    live: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harmony_fleet.errors import Conflict
    from harmony_fleet.nats.kv import Store

    original = Store.put

    async def put(store: Store, bucket: str, key: str, value: bytes, *more: Any) -> int:
        if key == "pi-02.web":
            raise Conflict(
                "Conflict",
                "cannot write pi-02.web: somebody else wrote it meanwhile",
                "look, try again",
            )
        return await original(store, bucket, key, value, *more)

    await live.change("device", "set", *NAMES, "--variable", "port=1")
    monkeypatch.setattr(Store, "put", put)
    ran = await live("fleet", "apply", "--no-wait", code=3)
    assert (
        "2 of 3 were written; the roster stays at generation 5: go on with: harmony fleet apply"
        in ran.err
    )
    monkeypatch.undo()
    assert [(await live.wire(name)).generation for name in NAMES] == [2, 1, 2]
    await live("fleet", "apply", "--wait")
    assert [(await live.wire(name)).generation for name in NAMES] == [2, 2, 2]
    assert (await live("fleet", "status", "-o", "json")).json["generation"] == 5


async def test_a_change_waits_for_an_apply_that_is_writing(
    live: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harmony_fleet.nats.kv import Store

    original, going = Store.put, asyncio.Event()
    loop = asyncio.get_running_loop()

    async def put(store: Store, bucket: str, key: str, value: bytes, *more: Any) -> int:
        loop.call_soon_threadsafe(going.set)
        await asyncio.sleep(0.7)
        return await original(store, bucket, key, value, *more)

    await live.change("device", "set", *NAMES, "--variable", "port=1")
    monkeypatch.setattr(Store, "put", put)
    monkeypatch.setattr("harmony_fleet.roster.file.LOCK_SECONDS", 0.2)
    applying = asyncio.create_task(live("fleet", "apply"))
    await going.wait()
    process = await live.operator.process(
        "fleet", "device", "set", "pi-01", "--disable", "-g", "5", "-o", "json"
    )
    out, _ = await process.communicate()
    assert (process.returncode, json.loads(out)["generation"]) == (0, 6)
    await applying


async def _get(where: str, path: str, host: str = "localhost") -> tuple[int, bytes]:
    """One request; the status and the content."""
    address, _, port = where.partition("//")[2].strip("/").rpartition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), content


async def test_the_dashboard_and_metrics_follow_the_fleet(live: Site) -> None:
    printed = (await live("fleet", "metrics")).out
    assert (
        'harmony_fleet_deployment_devices{deployment="web",state="succeeded"} 3.0'
        in printed.splitlines()
    )
    assert (await live("fleet", "dashboard", "--listen", "0.0.0.0:0", code=2)).err
    process = await live.operator.process("fleet", "dashboard", "--listen", "127.0.0.1:0")
    try:
        assert process.stderr is not None
        where = (await process.stderr.readline()).decode().partition(";")[0]
        assert (await _get(where, "/"))[1].startswith(b"<!doctype html>")
        assert (await _get(where, "/data.json", "evil.example"))[0] == 403
        assert b"s3cret" not in (await _get(where, "/data.json"))[1]
        await live.say("pi-01", "Failed")
        async with asyncio.timeout(60):
            while json.loads((await _get(where, "/data.json"))[1])["totals"]["failed"] != 1:
                await asyncio.sleep(0.05)
        assert b'state="failed"} 1.0' in (await _get(where, "/metrics"))[1]
    finally:
        process.terminate()
        out, err = await process.communicate()
    assert (process.returncode, out) == (0, b""), err


async def test_a_key_of_an_invalid_name_is_removed_and_no_other_is_touched(live: Site) -> None:
    """A purge or a compare-and-set of such a key would take it for a wildcard."""
    odd = ["pi-01.*", "pi-01.>", "pi-01.Web", "*.web", "pi-01.a.b"]
    for key in odd:
        await live.put(DESIRED, key, b"secret")
    names = [f"{name}.web" for name in NAMES]
    before = [await live.raw(DESIRED, key) for key in names]
    told = await live.raw(INFO, info_key("pi-01")) or b""
    ignored = json.loads(told) | {"ignored_keys": ["pi-01.*"]}
    await live.put(INFO, info_key("pi-01"), canonical(ignored))
    ran = await live("fleet", "verify", code=1)
    assert "InvalidKey pi-01.*" in ran.out
    assert "harmony fleet remove-key 'KEY'" in ran.err
    for key in odd:
        removed = (await live("fleet", "remove-key", key, "-o", "json")).json
        assert (removed["key"], removed["removed"]) == (key, True)
        ran = await live("fleet", "remove-key", key, "-o", "json", code=2)
        assert ran.error["code"] == "NotFound"
    assert [await live.raw(DESIRED, key) for key in names] == before
    ran = await live("fleet", "remove-key", "pi-01.web", "-o", "json", code=2)
    assert ran.error["code"] == "ValidKey"
    await live.put(INFO, info_key("pi-01"), told)
    assert await live.findings() == set()


async def test_one_device_overrides_and_another_is_excluded(live: Site) -> None:
    before = await live.wire("pi-02")
    words = ("device", "set", "pi-01", "--override", "web/Container/web.memory=64Mi")
    await live.change(*words)
    await live.change("deployment", "set", "web", "--exclude", "pi-03")
    planned = await live("fleet", "plan")
    assert "otherwise at pi-01 alone: web/Container/web.memory" in planned.out
    told = (await live("fleet", "plan", "-o", "json")).json
    assert told["overridden"] == [
        {"device": "pi-01", "deployment": "web", "fields": ["Container/web.memory"]}
    ]
    actions = {(item["device"], item["action"]) for item in told["writes"]}
    assert actions == {("pi-01", "update"), ("pi-03", "remove")}
    await live("fleet", "apply", "--wait", "--timeout", "20s")
    assert await live.wire("pi-02") == before
    wire = await live.wire("pi-01")
    (box,) = [score for score in wire.wire()["scores"] if score["kind"] == "Container"]
    assert box["memory"] == "64Mi"
    assert await live.findings() == set()


async def test_only_what_is_nowhere_is_renamed(live: Site) -> None:
    before = (await live("fleet", "show", "-o", "json")).json
    refused = await live("fleet", "deployment", "rename", "web", "site", "-o", "json", code=5)
    assert refused.error["code"] == "DeploymentThere"
    refused = await live("fleet", "device", "rename", "pi-01", "pi-1", "-o", "json", code=5)
    assert refused.error["code"] == "DeviceKnown"
    assert (await live("fleet", "show", "-o", "json")).json == before
    assert (await live("fleet", "apply")).code == 0
    path = live.operator.folder / "web.json"
    await live.change("device", "add", "pi-9", "--class", "new", "--variable", "port=1")
    await live.change("deployment", "add", "wbe", "--file", str(path), "--class", "nobody")
    await live.change("device", "rename", "pi-9", "pi-09")
    await live.change("deployment", "rename", "wbe", "later")
    assert (await live("fleet", "device", "show", "pi-09", "-o", "json")).json["class"] == "new"
    assert (await live("fleet", "deployment", "show", "later", "-o", "json")).json["devices"] == []
