"""Consoles and grids for people, JSON and YAML for programs. Decides nothing; the tables stand in
`tables`.

What comes from a device is text, never markup or an escape sequence of a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from io import StringIO
from typing import Any, Final, TextIO

from pydantic_core import to_json
from rich.console import Console
from rich.text import Text
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

STYLES: Final = {
    **dict.fromkeys(
        ("Converged", "Ready", "Completed", "fresh", "created", "updated", "adopted", "added"),
        "green",
    ),
    **dict.fromkeys(("Progressing", "Pending", "Removing", "Waiting", "changed", "Held"), "yellow"),
    **dict.fromkeys(
        (
            "Failed",
            "Degraded",
            "Blocked",
            "Fenced",
            "Rejected",
            "Unreadable",
            "stale",
            "removed",
            "revoked",
        ),
        "red",
    ),
    **dict.fromkeys(("Removed", "unchanged", "never", "Unknown"), "dim"),
}
Row = list[Text]
_MIN_LAST: Final = 16
_MIN_NAME: Final = 24


class Output(StrEnum):
    """Forms of ``-o``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The command ends well when its reader went away: see cli."""
        raise BrokenPipeError


def console(stream: TextIO) -> Console:
    """A console on `stream`: as wide as the terminal; into a pipe nothing is wrapped or cut."""
    wide = None if stream.isatty() or os.environ.get("COLUMNS") else 4096
    return _Console(
        file=stream, width=wide, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


def plain(value: object, style: str | None = None) -> Text:
    """`value` as text of one line, with what a terminal would act on replaced."""
    text = "".join(
        char if char.isprintable() else "?" for char in str(value).strip().replace("\n", " ")
    )
    return Text(text, style=STYLES.get(text, "") if style is None else style)


def machine(value: Any, output: Output) -> str:
    """`value` as JSON or YAML text, in the same shape."""
    if output is Output.JSON:
        # The standard library indents in Python: 30,000 results took it a second.
        text = to_json(value, indent=2, inf_nan_mode="constants").decode()
        return _unseen(text, lambda char: json.dumps(char)[1:-1])
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.width = 100
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    buffer = StringIO()
    yaml.dump(value, buffer)
    return _unseen(buffer.getvalue().rstrip("\n"), lambda char: f"\\U{ord(char):08x}")


def _unseen(text: str, escape: Callable[[str], str]) -> str:
    """With what a terminal acts on, or hides, spelt out; such characters stand in quoted text
    alone.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(char if char.isprintable() or char == "\n" else escape(char) for char in text)


def one_line(value: Any, output: Output) -> str:
    """`value` as one of many that follow: a line of JSON, or a document of YAML."""
    if output is Output.YAML:
        return f"---\n{machine(value, output)}"
    text = to_json(value, inf_nan_mode="constants").decode()
    return _unseen(text, lambda char: json.dumps(char)[1:-1])


def moment(at: datetime, timespec: str = "seconds") -> str:
    """A time as the clock here shows it ($TZ), without its year, with its distance from UTC."""
    with contextlib.suppress(OverflowError):  # a device may tell the year 1
        at = at.astimezone()
    return at.isoformat(" ", timespec)[5:]


class _Representer(SafeRepresenter):
    """Text of several lines in a block, as a person would write it."""

    def represent_str(self, data: str) -> Any:
        """A literal block where it can hold the text exactly."""
        readable = all(char.isprintable() or char == "\n" for char in data)
        block = readable and "\n" in data.rstrip("\n")
        style = (
            "|" if block else None if readable else '"'
        )  # the library's plain styles lose some line breaks
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def grid(header: Sequence[str], rows: Iterable[Row | Text], to: Console) -> None:
    """Columns as wide as their cells, the last one wrapped in what is left.

    A Text instead of a row is a line of its own. A header that ends in ``>`` is of a column that is
    set to the right.
    """
    body = list(rows)
    titles: Row = [Text(name.rstrip(">"), "bold") for name in header]
    cells = [titles, *(row for row in body if isinstance(row, list))]
    widths = [max(row[at].cell_len for row in cells) for at in range(len(header) - 1)]
    widest = max(range(len(widths)), key=widths.__getitem__)
    over = sum(widths) + 2 * len(widths) - to.width
    widths[widest] = max(widths[widest] - max(over, 0), min(widths[widest], _MIN_NAME))
    start = sum(widths) + 2 * len(widths)
    for row in [titles, *body]:
        if isinstance(row, Text):
            to.print(row, soft_wrap=True)
            continue
        line = Text()
        for at, width in enumerate(widths):
            cell = _cut(row[at], width)
            space, right = " " * (width - cell.cell_len), header[at].endswith(">")
            line.append_text(
                Text.assemble(space if right else "", cell, "" if right else space, "  ")
            )
        _print_last(line, row[-1], start, to)


def _cut(cell: Text, width: int) -> Text:
    """A name that is too long loses its middle: both its ends tell it from others."""
    over = cell.cell_len - width
    if over <= 0:
        return cell
    keep = (len(cell.plain) - over - 1) // 2
    return Text.assemble(
        cell[: len(cell.plain) - over - 1 - keep], "…", cell[len(cell.plain) - keep :]
    )


def _print_last(line: Text, last: Text, start: int, to: Console) -> None:
    """The last cell beside the others, further lines below its first; on lines of its own where
    there is no room.
    """
    room = to.width - start
    longest = max(map(len, last.plain.split()), default=0)
    if last.cell_len > room and room < max(_MIN_LAST, longest):
        to.print(stripped(line), soft_wrap=True)
        line, start = Text(" " * 4), 4
    wrapped = list(last.wrap(to, max(to.width - start, longest, 1)))  # no word is broken
    for part in wrapped or [last]:
        to.print(stripped(line.append_text(part)), soft_wrap=True)
        line = Text(" " * start)


def stripped(line: Text) -> Text:
    """Without spaces at its end."""
    line.rstrip()
    return line


def out() -> Console:
    """Standard output, for results."""
    return console(sys.stdout)


def err() -> Console:
    """Standard error, for progress and errors."""
    return console(sys.stderr)
