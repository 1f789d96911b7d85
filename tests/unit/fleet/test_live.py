"""`status --watch`: rows that are kept up to date, what is told of their changes, and the view; and an
upgrade's progress.
"""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harmony_fleet.client.live import LiveRows
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.observe.state import STALE_AFTER
from harmony_fleet.observe.status import Row
from harmony_fleet.output import tables
from harmony_fleet.output.live_status import RowChanges, StatusView, row_line
from harmony_fleet.output.run_progress import RunProgress
from scores.keys import ACTUAL, DESIRED, HEARTBEAT
from tests.unit.fleet.build import NOW, file, resource, status, wire
from tests.unit.fleet.test_events import beat
from tests.unit.fleet.test_runs import run

DESIRED_ENTRY = Entry(DESIRED, "pi-01.web", wire(file()).canonical(), 5, NOW)
TOLD = Entry(ACTUAL, "pi-01.web", status(resources={"File/a": resource()}).canonical(), 6, NOW)
GONE = [Entry(bucket, "pi-01.web", None, 9, NOW) for bucket in (DESIRED, ACTUAL)]


def rows_of(*entries: Entry, late: timedelta = timedelta()) -> list[Row]:
    live = LiveRows()
    for entry in entries:
        live.feed(entry)
    return live.rows(NOW + late)


@given(st.permutations([DESIRED_ENTRY, TOLD, beat(NOW)]))
def test_the_order_of_entries_makes_no_difference(entries: list[Entry]) -> None:
    [row] = rows_of(*entries)
    assert (row.phase, row.wanted, row.generation, row.converged) == ("Converged", 3, 3, True)


def test_a_row_falls_silent_and_ends_with_its_keys() -> None:
    every = [DESIRED_ENTRY, TOLD, beat(NOW)]
    [row] = rows_of(*every, late=STALE_AFTER + timedelta(seconds=1))
    assert (row.silent, row.converged) == (True, False)
    assert rows_of(*every, *GONE) == []
    assert [item.phase for item in rows_of(*every, GONE[1])] == ["Waiting"]
    assert rows_of(Entry(ACTUAL, "nonsense", b"", 1, NOW), beat(NOW)) == []
    assert rows_of(Entry(HEARTBEAT, "heartbeat.pi-01", None, 1, NOW)) == []


def test_only_changes_are_told() -> None:
    changes, first = RowChanges(), rows_of(DESIRED_ENTRY, TOLD, beat(NOW))
    later = rows_of(DESIRED_ENTRY, TOLD, beat(NOW), late=timedelta(seconds=9))
    assert list(changes.of(first)) == first
    assert list(changes.of(later)) == []  # its age alone
    silent = rows_of(DESIRED_ENTRY, TOLD, beat(NOW), late=timedelta(hours=1))
    assert list(changes.of(silent)) == silent
    [gone] = changes.of([])
    assert (gone.phase, gone.status, gone.wanted) == ("Gone", None, None)
    assert list(changes.of([])) == []


def test_what_was_removed_before_is_told_only_where_it_is_asked_for() -> None:
    removed = Entry(ACTUAL, "pi-01.web", status("Removed").canonical(), 7, NOW)
    hidden = rows_of(removed, beat(NOW))
    assert list(RowChanges().of(hidden)) == []
    assert list(RowChanges(removed=True).of(hidden)) == hidden
    changes = RowChanges()
    assert len(list(changes.of(rows_of(TOLD, beat(NOW))))) == 1
    assert [row.phase for row in changes.of(hidden)] == ["Removed"]


def test_a_line_of_a_row() -> None:
    nasty = "\x1b[2J\n"
    told = status("Failed", reason="NoSpace", message=nasty).canonical()
    [row] = rows_of(DESIRED_ENTRY, Entry(ACTUAL, "pi-01.web", told, 6, NOW), beat(NOW))
    line = row_line(row, NOW).plain
    assert line.isprintable()
    assert line.split("  ")[1:] == [
        "pi-01/web", "Failed", "0/1 ready", "generation 3/3", "NoSpace: ?[2J"
    ]  # fmt: skip


def view(height: int, table: Any = tables.status_table) -> StatusView:
    out = io.StringIO()
    return StatusView(Console(file=out, width=80, height=height, force_terminal=True), table)


def many(count: int, bad: int) -> list[Row]:
    entries = []
    for n in range(count):
        name = f"pi-{n:03}"
        phase: Any = "Failed" if n == bad else "Converged"
        told = status(phase).model_copy(update={"device": name})
        entries += [Entry(ACTUAL, f"{name}.web", told.canonical(), n + 1, NOW), beat(NOW, 1, name)]
        made = wire(file()).model_copy(update={"device": name})
        entries.append(Entry(DESIRED, f"{name}.web", made.canonical(), n + 1, NOW))
    return rows_of(*entries)


def test_the_view_fits_and_shows_first_what_isnt_converged() -> None:
    lines = view(24).drawn(many(300, bad=250)).plain.splitlines()
    assert len(lines) <= 23
    assert "pi-250" in lines[1]
    assert "Failed" in lines[1]
    assert lines[-1] == "299 of 300 converged; not all are shown"
    few = view(24).drawn(many(3, bad=2)).plain.splitlines()
    assert [line.split()[0] for line in few[1:4]] == ["pi-000", "pi-001", "pi-002"]
    assert few[-1] == "2 of 3 converged"
    assert max(map(len, [*lines, *few])) <= 80
    deep = view(9, tables.resources_table).drawn(many(5, bad=4)).plain.splitlines()
    assert len(deep) <= 8
    assert "pi-004/web" in deep[0]


def test_an_upgrade_is_told_line_by_line_or_drawn() -> None:
    begun = run(1, 2)
    first, *others = begun.targets
    failed = first.model_copy(update={"state": "failed", "reason": "DpkgInterrupted"})
    going = first.model_copy(update={"state": "upgrading", "phase": "applying"})
    looks = [begun.model_copy(update={"targets": [one, *others]}) for one in (going, going, failed)]
    out = io.StringIO()
    with RunProgress(Console(file=out, width=80)) as progress:
        for look in looks:
            progress.show(look)
    name = first.device
    assert out.getvalue().splitlines() == [f"{name}: applying", f"{name}: failed DpkgInterrupted"]
    with RunProgress(Console(file=io.StringIO(), width=80, force_terminal=True)) as live:
        live.show(looks[0])
        page = io.StringIO()
        Console(file=page, width=80).print(live._view())
    assert f"{name}  applying" in page.getvalue()
    assert "wave 1 of 2: 0 of 2 ended, 1 under way" in page.getvalue()
