"""The fleet's view: what is counted where, and that entry by entry comes to the same as all at
once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_fleet.nats.consumer import Entry
from harmony_fleet.observe.view import Expected, FleetView, LastError, Reported, group_of
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO
from scores.manifest import Manifest
from tests.unit.fleet.build import NOW, OURS, THEIRS, resource, status


@pytest.mark.parametrize(
    ("wanted", "told", "group"),
    [
        (None, None, None),
        ((OURS, 1, False), None, "pending"),
        ((OURS, 3, False), ("Converged", OURS, 3), "succeeded"),
        ((OURS, 4, False), ("Converged", OURS, 3), "pending"),
        ((THEIRS, 3, False), ("Converged", OURS, 3), "pending"),
        ((OURS, 3, True), ("Converged", OURS, 3), "pending"),
        ((OURS, 3, True), ("Removed", OURS, 3), None),
        (None, ("Removed", OURS, 3), None),
        ((OURS, 4, False), ("Removed", OURS, 3), "pending"),
        (None, ("Converged", OURS, 3), "succeeded"),
        (None, ("Progressing", OURS, 3), "pending"),
        ((OURS, 3, False), ("Progressing", OURS, 3), "pending"),
        ((OURS, 3, False), ("Degraded", OURS, 3), "failed"),
        ((OURS, 3, False), ("Rejected", OURS, 3), "failed"),
        ((OURS, 3, False), ("Held", OURS, 3), "held"),
        ((OURS, 3, False), ("Fenced", OURS, 3), "held"),
    ],
)
def test_groups(wanted: Any, told: Any, group: str | None) -> None:
    seen = None if told is None else Reported(told[0], "", told[1], told[2], None)
    assert group_of(None if wanted is None else Expected(*wanted), seen) == group


def desired(
    device: str, deployment: str, *, generation: int = 3, removed: bool = False, at: int = 0
) -> Entry:
    wire = Manifest(deployment=deployment, removed=removed).bind(device, OURS, generation)
    return Entry(
        DESIRED, f"{device}.{deployment}", wire.canonical(), 1, NOW + timedelta(seconds=at)
    )


def actual(device: str, deployment: str, phase: Any, *, at: int = 0, **more: Any) -> Entry:
    told = status(phase, **more).model_copy(update={"device": device, "deployment": deployment})
    return Entry(ACTUAL, f"{device}.{deployment}", told.canonical(), 1, NOW + timedelta(seconds=at))


def test_tallies_and_the_last_error() -> None:
    view = FleetView()
    for number in range(5):
        view.feed(desired(f"d{number}", "web"))
    view.feed(actual("d0", "web", "Converged"))
    view.feed(
        actual("d1", "web", "Failed", at=5, resources={"File/a": resource("Failed", "NoSpace")})
    )
    view.feed(actual("d2", "web", "Held", at=9, reason="PruneGuard"))
    view.feed(Entry(ACTUAL, "d3.web", b"?", 1, NOW))
    [tally] = view.deployments()
    assert tally.counts == {"succeeded": 1, "failed": 2, "pending": 1, "held": 1}
    assert tally.last_error == LastError("d2", "Held", "PruneGuard", NOW + timedelta(seconds=9))
    view.feed(actual("d2", "web", "Converged", at=10))
    assert view.deployments()[0].last_error == LastError(
        "d1", "Failed", "NoSpace", NOW + timedelta(seconds=5)
    )
    for number in range(5):
        view.feed(Entry(DESIRED, f"d{number}.web", None, 2, NOW))
        view.feed(Entry(ACTUAL, f"d{number}.web", None, 2, NOW))
    assert view.deployments() == []


def test_stale_devices_are_judged_by_the_servers_time() -> None:
    view = FleetView()
    view.feed(Entry(INFO, "info.a", b"{}", 1, NOW))
    view.feed(Entry(HEARTBEAT, "heartbeat.b", b"{}", 1, NOW))
    view.feed(Entry(HEARTBEAT, "heartbeat.c", b"{}", 1, NOW + timedelta(seconds=20)))
    assert view.devices() == ["a", "b", "c"]
    assert view.stale(NOW + timedelta(seconds=30)) == ["a"]
    assert view.stale(NOW + timedelta(seconds=31)) == ["a", "b"]
    view.relist(HEARTBEAT, [])
    view.relist(INFO, [])
    assert view.as_json(NOW) == {"deployments": [], "devices": 0, "stale": []}


NAMES = st.sampled_from(["d1", "d2"])
DEPLOYMENTS = st.sampled_from(["web", "db"])
ENTRIES = st.lists(
    st.one_of(
        st.builds(desired, NAMES, DEPLOYMENTS, generation=st.integers(1, 4), removed=st.booleans()),
        st.builds(
            actual,
            NAMES,
            DEPLOYMENTS,
            st.sampled_from(["Converged", "Failed", "Held", "Progressing", "Removed"]),
            generation=st.integers(1, 4),
        ),
        st.builds(
            lambda bucket, name, deployment: Entry(bucket, f"{name}.{deployment}", None, 1, NOW),
            st.sampled_from([DESIRED, ACTUAL]),
            NAMES,
            DEPLOYMENTS,
        ),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(ENTRIES)
def test_entry_by_entry_is_as_all_at_once(entries: list[Entry]) -> None:
    fed, listed = FleetView(), FleetView()
    last: dict[str, dict[str, Entry]] = {DESIRED: {}, ACTUAL: {}}
    for entry in entries:
        fed.feed(entry)
        last[entry.bucket][entry.key] = entry
    listed.feed(desired("gone", "gone"))
    for bucket, found in last.items():
        listed.relist(bucket, [entry for entry in found.values() if entry.value is not None])
    assert fed.as_json(NOW) == listed.as_json(NOW)
