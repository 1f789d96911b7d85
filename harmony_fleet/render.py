"""Tables for people, JSON and YAML for programs. Writes to the console it is given; decides nothing.

What comes from a device is text, never markup or an escape sequence of a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from io import StringIO
from typing import Any, Final, TextIO

from pydantic_core import to_json
from rich.console import Console
from rich.text import Text
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from harmony_fleet import status
from harmony_fleet.apply import Result
from harmony_fleet.changes import Change, FieldChange
from harmony_fleet.plan import Plan
from harmony_fleet.state import Deployment, Device
from scores.status import DeploymentStatus

_STYLES: Final = {
    **dict.fromkeys(("Converged", "Ready", "Completed", "fresh", "created", "updated", "added"), "green"),
    **dict.fromkeys(("Progressing", "Pending", "Removing", "Waiting", "changed", "Held"), "yellow"),
    **dict.fromkeys(("Failed", "Degraded", "Blocked", "Fenced", "Rejected", "Unreadable", "stale", "removed"), "red"),
    **dict.fromkeys(("Removed", "unchanged", "never", "Unknown"), "dim"),
}
_DONE: Final = {"create": "created", "update": "updated", "remove": "removing", "unchanged": "unchanged"}
Row = list[Text]
_WIDE: Final = 110
_MIN_LAST: Final = 16
_MIN_NAME: Final = 24
_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}


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
    return _Console(file=stream, width=wide, highlight=False, markup=False, emoji=False, soft_wrap=False)


def plain(value: object, style: str | None = None) -> Text:
    """`value` as text of one line, with what a terminal would act on replaced."""
    text = "".join(char if char.isprintable() else "?" for char in str(value).strip().replace("\n", " "))
    return Text(text, style=_STYLES.get(text, "") if style is None else style)


def machine(value: Any, output: Output) -> str:
    """`value` as JSON or YAML text. A list is several YAML documents."""
    if output is Output.JSON:
        # The standard library indents in Python: 30,000 results took it a second.
        return to_json(value, indent=2, inf_nan_mode="constants").decode()
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.width = 100
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    buffer = StringIO()
    documents = value if isinstance(value, list) else [value]
    if documents:
        yaml.dump_all(documents, buffer)
    return buffer.getvalue().rstrip("\n")


class _Representer(SafeRepresenter):
    """Text of several lines in a block, as a person would write it."""

    def represent_str(self, data: str) -> Any:
        """A literal block where it can hold the text exactly."""
        readable = all(char.isprintable() or char == "\n" for char in data)
        block = readable and "\n" in data.rstrip("\n")
        style = "|" if block else None if readable else '"'  # the library's plain styles lose some line breaks
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def grid(header: Sequence[str], rows: Iterable[Row | Text], to: Console) -> None:
    """Columns as wide as their cells, the last one wrapped in what is left.

    A Text instead of a row is a line of its own. A header that ends in ``>`` is of a column that is set to the right.
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
            line.append_text(Text.assemble(space if right else "", cell, "" if right else space, "  "))
        _print_last(line, row[-1], start, to)


def _cut(cell: Text, width: int) -> Text:
    """A name that is too long loses its middle: both its ends tell it from others."""
    over = cell.cell_len - width
    if over <= 0:
        return cell
    keep = (len(cell.plain) - over - 1) // 2
    return Text.assemble(cell[: len(cell.plain) - over - 1 - keep], "…", cell[len(cell.plain) - keep :])


def _print_last(line: Text, last: Text, start: int, to: Console) -> None:
    """The last cell beside the others, further lines below its first; on lines of its own where there is no room."""
    room = to.width - start
    if not last.plain or last.cell_len <= room or room >= _MIN_LAST:
        wrapped = list(last.wrap(to, max(room, 1)))
    else:
        to.print(_stripped(line), soft_wrap=True)
        line, start = Text(" " * 4), 4
        wrapped = list(last.wrap(to, max(to.width - start, 1)))
    for part in wrapped or [last]:
        to.print(_stripped(line.append_text(part)), soft_wrap=True)
        line = Text(" " * start)


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line


def plans_table(plans: Sequence[Plan], to: Console) -> None:
    """What an apply is about to do: a line a deployment, under it what becomes of its resources.

    Devices at which the same becomes of them share it.
    """
    groups: dict[object, list[Plan]] = {}
    for item in plans:
        groups.setdefault((item.wire.deployment, item.action, item.changes), []).append(item)
    for group in groups.values():
        for item in group:
            name = plain(item.name, "bold")
            to.print(Text.assemble(name, f"  {item.action}  generation {item.wire.generation}"), soft_wrap=True)
            for warning in item.warnings:
                to.print(Text.assemble(("  warning: ", "yellow"), plain(warning, "")), soft_wrap=True)
        for change in group[0].changes:
            to.print(change_lines(change), soft_wrap=True)


def change_lines(change: Change) -> Text:
    """``~ File/motd``, and its fields below: ``content: 3 bytes, sha256:… → 4 bytes, sha256:…``."""
    text = Text.assemble("  ", (_SIGNS[change.how], _STYLES.get(change.how, "")), " ", plain(change.key, ""))
    for item in change.fields:
        text.append(f"\n      {_field_words(item)}")
    return text


def _field_words(item: FieldChange) -> Text:
    name = plain(item.field, "").plain
    if item.before is None and item.after is None:
        return Text(f"{name}: changed")
    if item.before == item.after:
        return Text(f"{name}: changed, not shown")
    before, after = (plain("(unset)" if value is None else value, "").plain for value in (item.before, item.after))
    return Text(f"{name}: {before} → {after}")


def results_table(results: Sequence[Result], to: Console) -> None:
    """How an apply ended."""
    grid(["DEVICE", "DEPLOYMENT", "RESULT", "GEN>", "PHASE", "REASON"], map(_result_row, results), to)


def _result_row(item: Result) -> Row:
    wire, verdict, error = item.plan.wire, item.verdict, item.error
    done = "removed" if verdict and verdict.phase == "Removed" else _DONE[item.plan.action]
    reason = (error.code, error.message) if error else (verdict.reason, verdict.message) if verdict else ("", "")
    return [
        plain(wire.device),
        plain(wire.deployment),
        plain("not written", "red") if error else plain(done, None if done != "removed" else ""),
        Text(str(wire.generation)),
        plain(verdict.phase if verdict else "-"),
        _words(*reason),
    ]


def _words(reason: str, message: str) -> Text:
    return plain(": ".join(part for part in (reason, message) if part), "")


def status_table(shown: Sequence[status.Row], to: Console) -> None:
    """Deployments: where each is, and of what generation (enforced/desired)."""
    grid(["DEVICE", "DEPLOYMENT", "PHASE", "GEN>", "READY>", "AGE>", "REASON"], map(_status_row, shown), to)


def _status_row(row: status.Row) -> Row:
    notes = [row.reason, "device silent" if row.silent else "", "of another lineage" if row.lineage_differs else ""]
    return [
        plain(row.device),
        plain(row.deployment),
        plain(row.phase, "dim" if row.silent else None),
        Text(f"{row.generation or '-'}/{row.wanted or '-'}"),
        Text(f"{row.ready}/{row.total}"),
        Text(status.age(row.age)),
        plain(", ".join(filter(None, notes)), ""),
    ]


def resources_table(shown: Sequence[status.Row], to: Console) -> None:
    """The resources of each deployment, with what is behind told below. SINCE is the device's own clock."""
    for at, row in enumerate(shown):
        cells = _status_row(row)
        if at:
            to.print()
        name = plain(f"{row.device}/{row.deployment}", "bold")
        age = f"  {row.ready}/{row.total} ready  {cells[5]} ago" if row.status else ""
        line = Text.assemble(name, "  ", cells[2], f"  generation {cells[3]}{age}  ", cells[6])
        to.print(_stripped(line), soft_wrap=True)
        if row.message:
            to.print(Text.assemble("  ", plain(row.message, "dim")), soft_wrap=True)
        if row.status and row.status.resources:
            grid(["  RESOURCE", "PHASE", "SINCE", "DRIFT", "REASON"], _resource_rows(row.status, silent=row.silent), to)


def _resource_rows(told: DeploymentStatus, *, silent: bool) -> Iterable[Row | Text]:
    for key, item in sorted(told.resources.items()):
        yield [
            Text.assemble("  ", plain(key, "")),
            plain(item.phase, "dim" if silent else None),
            plain(item.since[5:16].replace("T", " "), ""),
            plain(f"{item.drift.action} {item.drift.count}x" if item.drift else "-", ""),
            plain(item.reason, ""),
        ]
        if item.message:
            yield Text.assemble("    ", plain(item.message, "dim"))
        if item.drift:
            yield Text.assemble("    ", plain(f"drift in {', '.join(item.drift.fields)}", "dim"))


def desired_table(found: Iterable[Deployment], now: datetime, to: Console) -> None:
    """What is desired."""
    rows = (_desired_row(item, now) for item in found)
    grid(["DEVICE", "DEPLOYMENT", "GEN>", "AGE>", "LINEAGE", "RESOURCES"], rows, to)


def _desired_row(item: Deployment, now: datetime) -> Row:
    manifest, created = item.desired.manifest, item.desired.created
    if manifest is None:
        told = Text(f"can't be read: {item.desired.problem}", "red")
    elif manifest.removed:
        told = Text("to be removed", "yellow")
    else:
        told = plain(", ".join(score.key for score in manifest.scores) or "none", "")
    return [
        plain(item.key.device),
        plain(item.key.deployment),
        Text(str(manifest.generation) if manifest else "-"),
        Text(status.age(now - created if created else None)),
        plain(manifest.lineage[:8] if manifest else "-", ""),
        told,
    ]


def devices_table(devices: Sequence[Device], now: datetime, to: Console) -> None:
    """Devices: whether each is heard of, and what it is capable of; that below each where the terminal is narrow."""
    wide = to.width >= _WIDE
    header = ["DEVICE", "STATE", "HEARD>", "OS", "AGENT", "BOOT", "LABELS", *(["KINDS"] if wide else [])]
    rows: list[Row | Text] = []
    for device in devices:
        row, kinds = _device_row(device, now), plain(", ".join(status.kinds(device)), "")
        rows.append([*row, kinds] if wide else row)
        if not wide and kinds.plain:
            rows.append(Text.assemble("  ", plain(kinds.plain, "dim")))
    grid(header, rows, to)


def _device_row(device: Device, now: datetime) -> Row:
    info = device.info
    return [
        plain(device.name),
        plain(status.heartbeat_state(device, now)),
        Text(status.age(now - device.heard if device.heard else None)),
        plain(f"{info.os.id} {info.os.version_id} {info.os.arch}" if info else device.problem or "-", ""),
        plain(info.agent_version if info else "-", ""),
        plain(info.boot_id[:8] if info else "-", ""),
        plain(", ".join(f"{key}={value}" for key, value in sorted(info.labels.items())) if info else "-", ""),
    ]


def out() -> Console:
    """Standard output, for results."""
    return console(sys.stdout)


def err() -> Console:
    """Standard error, for progress and errors."""
    return console(sys.stderr)
