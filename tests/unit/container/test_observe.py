"""What a relist costs and says, who is whose, and what the engine asks of the reconciler
besides.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from harmony_agent.core.env_files import EnvFilePolicy
from harmony_agent.core.errors import Transient
from harmony_agent.core.paths import PathSet
from harmony_agent.core.refusal import advice_of
from harmony_agent.kinds.container.observe import SWEEP
from harmony_agent.kinds.container.policy import ALLOWED_BY_NAME, ContainerPolicy
from harmony_agent.topology.containers import ContainerEvent, Subordinates
from scores.container import Container
from scores.manifest import FieldError
from tests.unit.container.bench import DEVICE, IMAGE, Bench, web


async def many(bench: Bench, count: int, **fields: Any) -> None:
    for number in range(count):
        bench.want(Container(name=f"c{number}", image=IMAGE, **fields))
        await bench.settle(f"c{number}")


async def test_a_relist_of_what_did_not_change_is_one_call() -> None:
    bench = Bench()
    await many(bench, 30)
    first = await bench.kind.relist()
    bench.containers.reads = 0
    assert await bench.kind.relist() == first
    assert bench.containers.reads == 1
    assert set(first) == {f"c{number}" for number in range(30)}


async def test_a_relist_inspects_what_changed_and_agrees_with_a_look() -> None:
    bench = Bench()
    await many(bench, 3)
    bench.containers.exits("c1", 1)
    bench.containers.reads = 0
    found = await bench.kind.relist()
    assert bench.containers.reads == 2
    assert found["c1"] == await bench.kind.observe("c1")
    assert found["c1"].main.exit_code == 1  # type: ignore[union-attr]


async def test_a_relist_sweeps_over_limits_that_the_list_does_not_show() -> None:
    bench = Bench()
    await many(bench, SWEEP + 5, memory="64Mi")
    bench.containers.get(f"c{SWEEP + 4}").config["memory"] = "1"
    bench.containers.reads = 0
    relists = [await bench.kind.relist() for _ in range(3)]
    assert bench.containers.reads == 3 + SWEEP + 5 + SWEEP
    limits = [found[f"c{SWEEP + 4}"].main.config["memory"] for found in relists]  # type: ignore[union-attr]
    assert "1" in limits[:2]


async def test_one_that_does_not_answer_stays_as_it_was_and_hides_no_other() -> None:
    bench = Bench()
    await many(bench, 2)
    before = await bench.kind.relist()
    bench.containers.exits("c0", 1)
    bench.containers.exits("c1", 1)
    bench.containers.silence("inspect")
    found = await bench.kind.relist()
    assert found["c0"] == before["c0"]
    assert found["c1"] != before["c1"]
    bench.restart_agent()
    bench.containers.silence("inspect")
    assert set(await bench.kind.relist()) == {"c1"}


@pytest.mark.parametrize(
    ("operation", "reason"), [("list", "Timeout"), ("inspect", "PodmanUnreachable")]
)
async def test_a_service_that_does_not_answer_is_unknown(operation: str, reason: str) -> None:
    bench = Bench()
    await many(bench, 1)
    bench.restart_agent()
    bench.containers.silence(operation, reason)
    with pytest.raises(Transient) as caught:
        await bench.kind.relist()
    assert (caught.value.reason, caught.value.phase) == (reason, "Unknown")


async def test_a_container_that_goes_between_list_and_inspection_is_absent() -> None:
    bench = Bench()
    await bench.made(web())
    listed = await bench.containers.list({})
    bench.containers.made.clear()

    async def stale(_labels: Any) -> Any:
        return listed

    bench.containers.list = stale  # type: ignore[assignment,method-assign]
    assert await bench.kind.observe("web") is None


async def test_others_containers_of_this_device_are_not_listed() -> None:
    bench = Bench()
    await bench.made(web())
    bench.containers.foreign(
        "x", labels={"io.harmony.device": DEVICE, "io.harmony.resource": "Container/unknown"}
    )
    assert set(await bench.kind.relist()) == {"web"}


async def test_relist_reads_env_files_once_for_all() -> None:
    bench = Bench()
    bench.env_files.files["/srv/e"] = b"A=1"
    await bench.made(web(env_files=["/srv/e"]))
    before = await bench.kind.relist()
    bench.env_files.files["/srv/e"] = b"A=2"
    assert (await bench.kind.relist()) != before


async def test_events_name_the_resource() -> None:
    bench = Bench()
    bench.want(web())
    ours = {"io.harmony.device": DEVICE, "io.harmony.resource": "Container/web"}
    heard: list[str] = []
    for event in (
        ContainerEvent("1", "anything", ours),
        ContainerEvent("2", "web", {}),
        ContainerEvent("3", "other", {}),
        ContainerEvent("4", "web.init-a", {**ours, "io.harmony.init": "a"}),
        ContainerEvent("5", "x", {**ours, "io.harmony.resource": "Container/gone"}),
    ):
        bench.containers.events_queue.put_nowait(event)
    watching = asyncio.create_task(bench.kind.watch(heard.append))
    while not bench.containers.events_queue.empty():
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait([watching])
    assert heard == ["web", "web", "web"]


async def test_instance_is_a_run_of_a_container() -> None:
    bench = Bench()
    made = await bench.made(web())
    first = bench.kind.instance(await bench.kind.observe("web"))
    assert made.id in first
    bench.containers.exits("web", 1)
    assert bench.kind.instance(await bench.kind.observe("web")) == ""
    await bench.settle()
    assert bench.kind.instance(await bench.kind.observe("web")) not in ("", first)
    assert bench.kind.instance(None) == ""


async def test_detail() -> None:
    bench = Bench()
    made = await bench.made(web())
    detail = bench.kind.detail(bench.store.record("web"), await bench.kind.observe("web"))
    assert detail.model_dump() == {  # type: ignore[union-attr]
        "kind": "Container",
        "state": "Running",
        "id": made.id,
        "image_digest": made.image.digest,
        "since": "2026-11-29T17:00:01.000Z",
        "restarts": 0,
        "exit_code": None,
        "ready": True,
    }
    bench.containers.exits("web", 7)
    ended = bench.kind.detail(bench.store.record("web"), await bench.kind.observe("web"))
    assert (ended.state, ended.exit_code, ended.since) == (  # type: ignore[union-attr]
        "Exited",
        7,
        "2026-11-29T17:00:02.000Z",
    )
    assert bench.kind.detail(bench.store.record("web"), None).state == "Absent"  # type: ignore[union-attr]


async def test_a_time_before_the_epoch_of_the_clock_is_shown_as_it_is() -> None:
    bench = Bench()
    bench.containers.now = datetime(1970, 1, 1, tzinfo=UTC)
    await bench.made(web())
    detail = bench.kind.detail(bench.store.record("web"), await bench.kind.observe("web"))
    assert detail.since == "1970-01-01T00:00:01.000Z"  # type: ignore[union-attr]


async def test_logs_and_probes_go_to_the_recorded_container() -> None:
    bench = Bench()
    with pytest.raises(Transient) as caught:
        await bench.kind.logs("web", 5)
    assert caught.value.reason == "NoContainer"
    made = await bench.made(web())
    bench.containers.said[made.id] = ["a", "b", "c"]
    bench.containers.exec_codes["/no"] = 4
    assert [line.text for line in await bench.kind.logs("web", 2)] == ["b", "c"]
    assert await bench.kind.exec_probe("web", ["/no"], 1.0) == 4
    bench.containers.refuse("logs")
    bench.containers.refuse("exec")
    for asked, reason in (
        (bench.kind.logs("web", 1), "LogsFailed"),
        (bench.kind.exec_probe("web", ["/ok"], 1.0), "ProbeFailed"),
    ):
        with pytest.raises(Transient) as refused:
            await asked
        assert refused.value.reason == reason


def test_admission() -> None:
    kind = Bench().kind
    assert list(kind.admit(web(env_files=["/srv/a"], stop_signal="SIGTERM"))) == []
    assert list(
        kind.admit(web(env_files=["/srv/a", "/etc/shadow", "/srvx/a"], stop_signal="SIGNOPE"))
    ) == [
        FieldError("env_files[1]", "PathOutsideRoots"),
        FieldError("env_files[2]", "PathOutsideRoots"),
        FieldError("stop_signal", "UnknownSignal"),
    ]


@pytest.mark.parametrize(("field", "name"), list(ALLOWED_BY_NAME.items()))
def test_rights_are_allowed_by_name_in_the_devices_own_configuration(field: str, name: str) -> None:
    closed = ContainerPolicy(EnvFilePolicy((), PathSet(())), PathSet(()))
    spec = web(**{field: True})
    (refused,) = closed.violations(spec)
    assert refused == FieldError(field, "RightNotAllowed")
    assert f'[podman] allow = ["{name}"]' in advice_of(refused)
    assert list(replace(closed, allowed=[name]).violations(spec)) == []
    others = [other for other in ALLOWED_BY_NAME.values() if other != name]
    assert list(replace(closed, allowed=others).violations(spec)) == [refused]
    assert list(closed.violations(web(**{field: False}))) == []


def test_rootless_podman_has_no_device_rules() -> None:
    policy = ContainerPolicy(EnvFilePolicy((), PathSet(())), PathSet(("/etc/harmony",)))
    spec = web(device_cgroup_rules=["c 189:* rwm"])
    (refused,) = policy.violations(spec)
    assert refused == FieldError("device_cgroup_rules", "RootlessUnsupported")
    assert "rootless" in advice_of(refused)
    assert list(replace(policy, rootless=False).violations(spec)) == []


@pytest.mark.parametrize(
    ("userns", "count", "refused"),
    [
        ("auto", 1023, True),
        ("auto", 1024, False),
        ("auto:size=5000", 1024, True),
        ("auto:size=5000", 5000, False),
        ("keep-id", 0, False),
    ],
)
def test_ids_of_its_own_need_subordinate_ids(userns: str, count: int, refused: bool) -> None:
    closed = ContainerPolicy(EnvFilePolicy((), PathSet(())), PathSet(()))
    policy = replace(closed, subordinates=Subordinates("fleet-agent", count))
    errors = list(policy.violations(web(userns=userns)))
    assert errors == ([FieldError("userns", "SubordinateIdsMissing")] if refused else [])
    assert not refused or "fleet-agent:" in advice_of(errors[0])


def test_a_seccomp_profile_is_read_from_nowhere_closed() -> None:
    policy = ContainerPolicy(EnvFilePolicy((), PathSet(())), PathSet(("/etc/harmony",)))
    for path, refused in {"unconfined": 0, "/srv/a.json": 0, "/etc/harmony/agent.toml": 1}.items():
        assert len(list(policy.violations(web(security_opt={"seccomp": path})))) == refused


def test_claims() -> None:
    spec = web(
        ports=[
            {"host_port": 80, "container_port": 80},
            {"host_port": 53, "container_port": 53, "protocol": "udp", "host_ip": "127.0.0.1"},
        ],
        init_containers=[{"name": "a"}],
    )
    assert Bench().kind.claims(spec) == {
        *("container:web", "container:web.init-a", "port:tcp:80", "port:udp:127.0.0.1:53"),
    }


async def test_close() -> None:
    bench = Bench()
    await bench.kind.close()
    assert bench.containers.closed
