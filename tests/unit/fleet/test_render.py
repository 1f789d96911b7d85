"""Tables fit the terminal, and hold text that a terminal can't act on; YAML reads back as it
was.
"""

from __future__ import annotations

import io
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from ruamel.yaml import YAML

from harmony_fleet.observe.state import Device
from harmony_fleet.observe.status import rows
from harmony_fleet.output import render, tables
from harmony_fleet.output.render import Output
from scores.status import Drift
from tests.unit.fleet.build import NOW, SINCE, device, file, found, resource, status, wire


def shown(show: Any, *args: Any, width: int = 80) -> list[str]:
    out = io.StringIO()
    show(*args, Console(file=out, width=width, highlight=False, markup=False))
    return out.getvalue().splitlines()


def told() -> Any:
    drift = Drift(
        count=3, fields=["content", "mode"], first_seen=SINCE, last_seen=SINCE, action="repaired"
    )
    resources = {
        "Container/web": resource(
            "Blocked", "OwnershipConflict", message="a container of that name isn't ours"
        ),
        "File/a": resource(drift=drift),
        "SystemdUnit/a-rather-long-name-of-a-unit.service": resource("Progressing"),
    }
    there = found(
        wire(file()),
        status("Degraded", resources=resources, reason="OwnershipConflict", message="1 of 3"),
    )
    return rows([there], [Device("pi-01", None, NOW)], NOW + timedelta(seconds=5))


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit(width: int) -> None:
    many = [device(), Device("garage-pi-with-a-long-name", None, None)]
    told_tables = [
        shown(tables.status_table, told(), width=width),
        shown(tables.resources_table, told(), width=width),
        shown(tables.devices_table, many, NOW + timedelta(seconds=7), width=width),
        shown(tables.desired_table, [found(wire(file("a"), file("b")))], NOW, width=width),
    ]
    for lines in told_tables:
        assert max(map(len, lines)) <= width, "\n".join(lines)
        assert [line for line in lines if line != line.rstrip()] == []


def test_a_status_line() -> None:
    header, line = shown(tables.status_table, told())
    assert header.split() == ["DEVICE", "DEPLOYMENT", "PHASE", "GEN", "READY", "AGE", "REASON"]
    assert line.split() == ["pi-01", "web", "Degraded", "3/3", "1/3", "5s", "OwnershipConflict"]


def test_resources_tell_what_is_behind() -> None:
    text = "\n".join(shown(tables.resources_table, told()))
    for part in (
        "OwnershipConflict",
        "a container of that name isn't ours",
        "repaired 3x",
        "drift in content, mode",
    ):
        assert part in text


def test_kinds_are_a_column_where_there_is_room() -> None:
    assert "KINDS" not in shown(tables.devices_table, [device()], NOW)[0]
    assert "KINDS" in shown(tables.devices_table, [device()], NOW, width=140)[0]
    assert "Container (podman 4.3.1)" in shown(tables.devices_table, [device()], NOW)[2]


def test_the_last_column_wraps_below_itself_or_below_the_line() -> None:
    rows: list[list[Text] | Text] = [[Text("a" * 10), Text("one two three four five six")]]
    assert shown(render.grid, ["A", "B"], rows, width=30) == [
        "A           B",
        "aaaaaaaaaa  one two three four",
        "            five six",
    ]
    assert shown(render.grid, ["A", "B"], rows, width=20) == [
        "A           B",
        "aaaaaaaaaa",
        "    one two three",
        "    four five six",
    ]


def test_what_a_device_says_is_no_escape_sequence() -> None:
    assert render.plain("a\x1b[31mb\r\nc\x07 [bold]d").plain == "a?[31mb? c? [bold]d"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(value=st.dictionaries(st.text("abc", min_size=1), values, max_size=4) | st.lists(values))
def test_yaml_and_json_read_back(value: Any) -> None:
    assert json.loads(render.machine(value, Output.JSON)) == value
    text = render.machine(value, Output.YAML)
    assert YAML(typ="safe", pure=True).load(text) == value, text


def test_several_lines_stand_in_a_block() -> None:
    text = render.machine({"content": "a: 1\n\n  b\n", "mode": "0644"}, Output.YAML)
    assert text == "content: |\n  a: 1\n\n    b\nmode: '0644'"
    assert render.machine([{"a": 1}, {"a": 2}], Output.YAML) == "- a: 1\n- a: 2"
    assert render.machine([], Output.YAML) == "[]"


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_no_word_is_broken(width: int) -> None:
    words = "OwnershipConflict: /srv/web/index.html exists and isn't ours"
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    row = [render.plain("pi-01"), render.plain("web"), render.plain(words, "")]
    render.grid(["DEVICE", "DEPLOYMENT", "REASON"], [row], console)
    shown = out.getvalue().split()
    assert [word for word in words.split() if word not in shown] == []


def test_a_time_is_the_reader_s(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        for zone, shown in (
            ("UTC", "11-29 17:30+00:00"),
            ("Europe/Berlin", "11-29 18:30+01:00"),
            ("America/St_Johns", "11-29 14:00-03:30"),
        ):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert tables.local("2026-11-29T17:30:15.123Z") == shown
    finally:
        monkeypatch.undo()
        time.tzset()
