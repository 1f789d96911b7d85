"""Tables fit the terminal, and hold text that a terminal can't act on; YAML reads back as it
was.
"""

from __future__ import annotations

import functools
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

from harmony_fleet.nats.objects import Object
from harmony_fleet.observe.objects import Uses
from harmony_fleet.observe.state import Device
from harmony_fleet.observe.status import rows
from harmony_fleet.output import fleet_tables, render, tables
from harmony_fleet.output.render import Output
from scores.status import Drift
from tests.unit.fleet.build import (
    DIGEST,
    NOW,
    OURS,
    SINCE,
    device,
    file,
    found,
    resource,
    status,
    wire,
)


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


def test_wide_is_wide_on_request_alone() -> None:
    def header(table: Any, *args: Any, width: int) -> list[list[str]]:
        usual = shown(table, *args, width=width)[0].split()
        return [usual, shown(functools.partial(table, wide=True), *args, width=width)[0].split()]

    for width in (80, 4096):
        usual, wide = header(tables.devices_table, [device()], NOW, width=width)
        assert usual == ["DEVICE", "STATE", "HEARD", "OS", "AGENT", "LABELS"]
        assert wide == [*usual, "BOOT", "KINDS"]
        usual, wide = header(tables.status_table, told(), width=width)
        assert (usual[-1], wide[len(usual)]) == ("REASON", "LINEAGE")
        there = [Object("site.tar", 5, DIGEST, "n", 1, 1)]
        usual, wide = header(tables.objects_table, there, Uses(), (), width=width)
        assert (usual[-2:], wide[2]) == (["NAMED", "BY"], "DIGEST")
    desired = [found(wire(file("a")))]
    assert OURS not in "\n".join(shown(tables.desired_table, desired, NOW))
    full = shown(functools.partial(tables.desired_table, wide=True), desired, NOW)
    assert OURS in "\n".join(full)
    assert "Container (podman 4.3.1)" in shown(tables.devices_table, [device()], NOW)[2]


def test_a_list_of_the_roster_names_all_on_request() -> None:
    item = {"name": "web", "source": "inline", "devices": [f"pi-{at:02}" for at in range(30)]}
    item["select"] = {"class": None, "labels": {}, "exclude": ["pi-99"]}
    usual = " ".join(shown(fleet_tables.items_table, [item]))
    assert "pi-04 and 25 more" in " ".join(usual.split())
    wide = " ".join(shown(functools.partial(fleet_tables.items_table, wide=True), [item]))
    assert "pi-29" in wide


WORDS = st.text(alphabet="abcdefghij-/.:0123456789", min_size=1, max_size=60)


@given(
    first=st.lists(WORDS, min_size=3, max_size=6),
    last=st.lists(WORDS, min_size=1, max_size=20),
    width=st.sampled_from([40, 80]),
)
def test_no_word_of_the_last_column_is_broken(
    first: list[str], last: list[str], width: int
) -> None:
    row: list[Text] = [*(Text(word[:8]) for word in first), Text(" ".join(last))]
    lines = shown(render.grid, ["X"] * len(row), [row], width=width)
    assert " ".join(" ".join(lines).split()).endswith(" ".join(last))


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
