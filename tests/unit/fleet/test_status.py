"""Rows, ages, and what may be shown of a manifest."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.load import load
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.observe.state import Actual, Deployment, Desired, Device, to_actual, to_desired
from harmony_fleet.observe.status import age, device_json, heartbeat_state, kinds, masked, rows
from scores import Container, File, InitContainer, Secret, SystemdUnit
from scores.canonical import canonical
from tests.unit.fleet.build import KEY, NOW, THEIRS, device, file, found, resource, status, wire

SECRET = "s3cret-value"


def row(there: Deployment, heard: timedelta = timedelta(seconds=1)) -> Any:
    (only,) = rows([there], [Device("pi-01", None, NOW - heard)], NOW + timedelta(seconds=5))
    return only


def test_a_converged_row() -> None:
    told = row(found(wire(file()), status(resources={"File/a": resource()})))
    assert (told.phase, told.reason, told.generation, told.wanted, told.ready, told.total) == (
        "Converged",
        "",
        3,
        3,
        1,
        1,
    )
    assert told.converged
    assert told.age == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("there", "phase", "reason"),
    [
        (found(wire(file())), "Waiting", ""),
        (found(wire(file()), status(generation=2)), "Converged", "Outdated"),
        (found(None, status()), "Converged", "NotDesired"),
        (found(wire(file()), status("Degraded", reason="NoSpace")), "Degraded", "NoSpace"),
        (found(wire(file()), status("Removed")), "Removed", ""),
        (
            Deployment(KEY, Desired(), Actual(None, 9, NOW, "UnknownField")),
            "Unreadable",
            "UnknownField",
        ),
        (
            Deployment(KEY, Desired(problem="NotJson"), Actual(status(), 9, NOW)),
            "Converged",
            "DesiredUnreadable",
        ),
    ],
)
def test_what_a_row_tells(there: Deployment, phase: str, reason: str) -> None:
    told = row(there)
    assert (told.phase, told.reason) == (phase, reason)
    if (phase, reason) != ("Removed", ""):
        assert not told.converged
        assert not told.hidden


def test_what_a_silent_device_said_is_not_converged() -> None:
    there = found(wire(file()), status())
    assert row(there).converged
    assert not row(there, timedelta(seconds=40)).converged
    (never,) = rows([there], [], NOW)
    assert never.silent
    assert not never.converged


def test_of_another_lineage_is_not_converged() -> None:
    assert not row(found(wire(file()), status(lineage=THEIRS))).converged


def test_removed_is_hidden_once_it_is_wanted_no_more() -> None:
    assert row(found(None, status("Removed"))).hidden
    assert row(found(wire(removed=True), status("Removed"))).hidden
    assert not row(found(wire(file(), generation=4), status("Removed"))).hidden


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-3, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h00m"),
        (11_100, "3h05m"),
        (259_200, "3d"),
    ],
)
def test_age(seconds: float, text: str) -> None:
    assert age(timedelta(seconds=seconds)) == text
    assert age(None) == "-"


def test_heartbeats() -> None:
    known = device()
    assert heartbeat_state(known, NOW + timedelta(seconds=30)) == "fresh"
    assert heartbeat_state(known, NOW + timedelta(seconds=30.1)) == "stale"
    assert heartbeat_state(Device("pi-01", None), NOW) == "never"
    assert device_json(known, NOW + timedelta(seconds=2))["heartbeat_age_seconds"] == 2.0
    assert device_json(Device("pi-01", None), NOW)["info"] is None


def test_kinds_with_what_they_stand_on() -> None:
    assert kinds(device(podman=None)) == [
        "File",
        "SystemdUnit (systemd 252)",
        "Container (no podman)",
    ]
    assert kinds(device(("SystemUpgrade",))) == ["SystemUpgrade (no updater)"]
    assert kinds(Device("pi-01", None)) == []


def full() -> Any:
    return wire(
        file("a", SECRET),
        file("b", content=None, content_base64="czNjcmV0LXZhbHVl"),
        SystemdUnit(name="u.service", content=SECRET, dropins={"a.conf": SECRET}),
        Container(
            name="c",
            image="localhost/c",
            env={"PASSWORD": SECRET},
            init_containers=[InitContainer(name="i", env={"PASSWORD": SECRET})],
        ),
    )


def test_a_masked_manifest_holds_no_value_but_digests() -> None:
    shown = masked(full())
    text = json.dumps(shown)
    assert SECRET not in text
    assert "czNjcmV0LXZhbHVl" not in text
    a, b, _unit, c = shown["scores"]
    assert a["content"] == b["content_base64"]  # the same bytes, the same digest
    assert c["env"] == {"PASSWORD": {"hidden": True}}


def test_a_masked_manifest_cannot_be_applied_by_mistake(tmp_path: Any) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(canonical(masked(full())))
    with pytest.raises(InvalidInput) as caught:
        load(str(path))
    assert {error.code for error in caught.value.errors} == {"WrongType"}


def test_of_a_template_the_names_of_its_secrets_are_shown_and_no_text() -> None:
    template = File(name="t", path="/srv/t", template=[f"user {SECRET} ", Secret("pw")])
    (shown,) = masked(wire(template))["scores"]
    text, secret = shown["template"]
    assert (text["hidden"], secret) == (True, {"secret": "pw"})
    assert SECRET not in json.dumps(shown)


def entry(key: str, value: bytes | None) -> Entry:
    return Entry("b", key, value, 5, NOW)


@pytest.mark.parametrize(
    ("value", "problem", "claimed"),
    [
        (b"", "NotJson", 0),
        (b'{"generation":7}', "Invalid", 7),
        (b'{"generation":"7"}', "Invalid", 0),
        (b'{"generation":true}', "Invalid", 0),
        (b"[]", "WrongType", 0),
        (wire(file()).canonical().replace(b'"pi-01"', b'"pi-02"'), "KeyMismatch", 3),
    ],
)
def test_a_desired_value_that_cannot_be_read(value: bytes, problem: str, claimed: int) -> None:
    told = to_desired(entry("pi-01.web", value))
    assert (told.manifest, told.claimed, told.revision) == (None, claimed, 5)
    assert told.problem


def test_values_of_other_keys_are_not_taken() -> None:
    assert to_desired(entry("pi-01.web", wire(file()).canonical())).manifest is not None
    assert to_desired(entry("pi-02.web", wire(file()).canonical())).problem == "KeyMismatch"
    assert to_actual(entry("pi-01.web", status().canonical())).status is not None
    assert to_actual(entry("pi-01.other", status().canonical())).problem == "KeyMismatch"
    assert to_actual(entry("pi-01.web", None)).status is None
