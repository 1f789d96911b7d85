"""What comes after what, what waits for what, and how each is; and how that is drawn."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harmony_fleet.observe.state import Deployment
from harmony_fleet.observe.status import rows
from harmony_fleet.observe.tree import MAX_DEPTH, Branch, branch, health
from harmony_fleet.output.device_tree import device_tree
from scores import (
    ContainerDetail,
    FileDetail,
    NetworkDetail,
    PackageDetail,
    SessionDetail,
    UnitDetail,
    UpgradeDetail,
    VolumeDetail,
)
from scores.status import Drift
from tests.unit.fleet.build import (
    NOW,
    SINCE,
    container,
    device,
    file,
    found,
    resource,
    status,
    wire,
)


def made(there: Deployment) -> Branch:
    (row,) = rows([there], [device()], NOW)
    return branch(row, there)


def drawn(*branches: Branch, width: int = 80) -> list[str]:
    out = io.StringIO()
    device_tree(device(), branches, NOW, Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def chain(count: int) -> list[Any]:
    first = file("f00")
    return [first, *(file(f"f{n:02}", after=[f"File/f{n - 1:02}"]) for n in range(1, count))]


def test_each_stands_below_what_it_waits_for() -> None:
    desired = wire(
        file("conf"),
        container(name="web", after=["File/conf"]),
        file("page", after=["File/conf", "Container/web"]),
    )
    crashed = resource("Degraded", "CrashLoop", message="three times",
                       status=ContainerDetail(state="Exited", exit_code=1, restarts=4))  # fmt: skip
    told = status("Progressing", resources={"File/conf": resource(), "Container/web": crashed})
    item = made(found(desired, told))
    assert [(node.key, node.below, node.waits_for) for node in item.nodes] == [
        ("File/conf", "", ()),
        ("Container/web", "File/conf", ()),
        ("File/page", "Container/web", ("Container/web",)),
    ]
    assert drawn(item) == [
        "pi-01  fresh  heard 0s ago  debian 12 aarch64  agent 0.1.0",
        "└── web  Progressing  generation 3/3  1/2 ready",
        "    └── File/conf  Ready",
        "        └── Container/web  Degraded  CrashLoop: three times  Exited 1, 4",
        "            restarts, not ready",
        "            └── File/page  Waiting  waits for Container/web  after File/conf",
    ]
    assert item.as_json()["resources"][2]["after"] == ["File/conf", "Container/web"]


def test_what_is_settled_waits_for_nothing() -> None:
    desired = wire(file("a"), file("b", after=["File/a"]))
    told = status(resources={"File/a": resource("Degraded", "Drifted"), "File/b": resource()})
    assert [node.waits_for for node in made(found(desired, told)).nodes] == [(), ()]


def test_what_is_told_and_not_desired_any_more_is_shown_too() -> None:
    told = status("Removing", resources={"File/old": resource("Removing")})
    assert [node.key for node in made(found(None, told)).nodes] == ["File/old"]
    assert [node.key for node in made(found(wire(file()), told)).nodes] == ["File/a", "File/old"]


def test_a_long_chain_stays_on_the_screen() -> None:
    item = made(found(wire(*chain(40))))
    lines = drawn(item)
    assert len(item.nodes) == 40
    assert max(map(len, lines)) <= 80
    assert sum("File/f" in line for line in lines) >= 40
    assert [node.below for node in item.nodes].count("") == 1 + (39 // MAX_DEPTH)


@given(st.permutations(chain(12)), st.sets(st.integers(0, 11)))
def test_the_order_of_work_doesnt_depend_on_the_order_of_the_manifest(
    scores: list[Any], ready: set[int]
) -> None:
    told = status(resources={f"File/f{n:02}": resource() for n in ready})
    nodes = made(found(wire(*scores), told)).nodes
    assert [node.key for node in nodes] == [f"File/f{n:02}" for n in range(12)]
    for n, node in enumerate(nodes):
        assert bool(node.waits_for) == (n > 0 and n not in ready and n - 1 not in ready)


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        (FileDetail(state="Symlink"), "Symlink"),
        (ContainerDetail(state="Running", ready=True), "Running"),
        (ContainerDetail(state="Exited", exit_code=0, restarts=1), "Exited 0, 1 restart, not ready"),
        (SessionDetail(state="Absent"), "Absent, not ready"),
        (VolumeDetail(state="Present"), "Present"),
        (NetworkDetail(state="Absent"), "Absent"),
        (PackageDetail(state="Installed", version="1"), "Installed"),
        (
            UnitDetail(load_state="loaded", active_state="failed", sub_state="oom", unit_file_state="enabled"),
            "failed/oom, not ready",
        ),
        (UpgradeDetail(attemptId="a", runUid="r", deviceId="pi-01", phase="applying"), "applying"),
    ],
)  # fmt: skip
def test_health_in_a_few_words(detail: Any, words: str) -> None:
    assert health(detail) == words


def test_drift_is_shown_and_no_control_character_is() -> None:
    nasty = "\x1b[2J\x9b\n"
    seen = Drift(count=3, fields=["mode"], first_seen=SINCE, last_seen=SINCE, action="reported")
    told = status(
        reason=nasty, message=nasty, resources={f"File/{nasty}": resource(reason=nasty, drift=seen)}
    )
    lines = drawn(made(found(wire(file()), told)))
    assert any("drift reported 3x" in line for line in lines)
    assert all(line.isprintable() for line in lines)
