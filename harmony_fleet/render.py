"""Tables for people, JSON and YAML for programs. Writes to the console it is given; decides nothing.

What comes from a device is text, never markup or an escape sequence of a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from io import StringIO
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from harmony_fleet.apply import Result
from harmony_fleet.changes import Change, FieldChange
from harmony_fleet.plan import Plan
from harmony_fleet.state import Deployment, Device
from harmony_fleet.status import Row, age, heartbeat_state, kinds
from harmony_fleet.wait import Verdict
from scores.status import Drift

_STYLES: Final = {
    **dict.fromkeys(("Converged", "Ready", "Completed", "fresh", "created", "updated", "added"), "green"),
    **dict.fromkeys(("Progressing", "Pending", "Removing", "Waiting", "changed", "Held"), "yellow"),
    **dict.fromkeys(("Failed", "Degraded", "Blocked", "Fenced", "Rejected", "Unreadable", "stale", "removed"), "red"),
    **dict.fromkeys(("Removed", "unchanged", "never", "Unknown"), "dim"),
}
_DONE: Final = {"create": "created", "update": "updated", "remove": "removing", "unchanged": "unchanged"}
_TO_DO: Final = {"create": "create", "update": "update", "remove": "remove", "unchanged": "unchanged"}
_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}


class Output(StrEnum):
    """Forms of ``-o``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def console(stream: TextIO) -> Console:
    """A console on `stream`: as wide as the terminal; into a pipe nothing is wrapped or cut."""
    wide = None if stream.isatty() or os.environ.get("COLUMNS") else 4096
    return Console(file=stream, width=wide, highlight=False, markup=False, emoji=False, soft_wrap=False)


def plain(value: object, style: str | None = None) -> Text:
    """`value` as text of one line, with what a terminal would act on replaced."""
    text = "".join(char if char.isprintable() else "?" for char in str(value).strip().replace("\n", " "))
    return Text(text, style=_STYLES.get(text, "") if style is None else style)


def machine(value: Any, output: Output) -> str:
    """`value` as JSON or YAML text. A list is several YAML documents."""
    if output is Output.JSON:
        return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)
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
        style = "|" if "\n" in data.rstrip("\n") and readable else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def _table(*columns: str, right: Sequence[str] = (), fold: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name not in fold, overflow="fold")
    return table


def plans_table(plans: Sequence[Plan], to: Console) -> None:
    """What an apply is about to do: a line a deployment, under it what becomes of its resources."""
    for item in plans:
        wire = item.wire
        line = Text.assemble(
            plain(f"{wire.device}/{wire.deployment}", "bold"),
            "  ",
            plain(_TO_DO[item.action]),
            f"  generation {wire.generation}",
        )
        to.print(line)
        for change in item.changes:
            to.print(change_lines(change))
        for warning in item.warnings:
            to.print(Text.assemble(("  warning: ", "yellow"), plain(warning, "")))


def change_lines(change: Change) -> Text:
    """``~ File/motd  content (3 bytes, sha256:… → 4 bytes, sha256:…)``."""
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
    table = _table("DEVICE", "DEPLOYMENT", "RESULT", "GEN", "PHASE", "REASON", right=("GEN",), fold=("REASON",))
    for item in results:
        wire, verdict = item.plan.wire, item.verdict
        table.add_row(
            plain(wire.device),
            plain(wire.deployment),
            plain("not written" if item.error else _DONE[item.plan.action], "red" if item.error else None),
            str(wire.generation),
            plain(verdict.phase if verdict else "-"),
            _words(item.error.code, item.error.message) if item.error else _verdict_words(verdict),
        )
    to.print(table)


def _verdict_words(verdict: Verdict | None) -> Text:
    return _words(verdict.reason, verdict.message) if verdict else Text()


def _words(reason: str, message: str) -> Text:
    return plain(": ".join(part for part in (reason, message) if part), "")


def status_table(shown: Sequence[Row], to: Console) -> None:
    """Deployments: where each is, and of what generation."""
    table = _table(
        "DEVICE",
        "DEPLOYMENT",
        "PHASE",
        "GEN",
        "READY",
        "AGE",
        "REASON",
        right=("GEN", "READY", "AGE"),
        fold=("REASON",),
    )
    for row in shown:
        reason = row.reason
        if row.silent:
            reason = f"{reason}, device silent" if reason else "device silent"
        if row.lineage_differs:
            reason = f"{reason}, of another lineage" if reason else "of another lineage"
        table.add_row(
            plain(row.device),
            plain(row.deployment),
            plain(row.phase, "dim" if row.silent else None),
            f"{row.generation or '-'}/{row.wanted or '-'}",
            f"{row.ready}/{row.total}",
            age(row.age),
            plain(reason, ""),
        )
    to.print(table)


def resources_table(shown: Sequence[Row], to: Console) -> None:
    """The resources of the deployments. SINCE is the device's own clock."""
    table = _table(
        "DEVICE", "DEPLOYMENT", "RESOURCE", "PHASE", "SINCE", "DRIFT", "REASON", fold=("RESOURCE", "DRIFT", "REASON")
    )
    for row in shown:
        for key, item in sorted((row.status.resources if row.status else {}).items()):
            table.add_row(
                plain(row.device),
                plain(row.deployment),
                plain(key, ""),
                plain(item.phase, "dim" if row.silent else None),
                plain(item.since[:19].replace("T", " "), ""),
                _drift_words(item.drift),
                _words(item.reason, item.message),
            )
    to.print(table)


def _drift_words(drift: Drift | None) -> Text:
    return plain(f"{drift.action} {drift.count}x: {', '.join(drift.fields)}" if drift else "-", "")


def desired_table(found: Iterable[Deployment], now: datetime, to: Console) -> None:
    """What is desired."""
    table = _table(
        "DEVICE", "DEPLOYMENT", "GEN", "AGE", "LINEAGE", "RESOURCES", right=("GEN", "AGE"), fold=("RESOURCES",)
    )
    for item in found:
        manifest, created = item.desired.manifest, item.desired.created
        if manifest is None:
            told = Text(f"can't be read: {item.desired.problem}", "red")
        elif manifest.removed:
            told = Text("to be removed", "yellow")
        else:
            told = plain(", ".join(score.key for score in manifest.scores) or "none", "")
        table.add_row(
            plain(item.key.device),
            plain(item.key.deployment),
            str(manifest.generation) if manifest else "-",
            age(now - created if created else None),
            plain(manifest.lineage[:8] if manifest else "-", ""),
            told,
        )
    to.print(table)


def devices_table(devices: Sequence[Device], now: datetime, to: Console) -> None:
    """Devices: whether each is heard of, and what it is capable of."""
    table = _table(
        "DEVICE",
        "STATE",
        "HEARD",
        "OS",
        "AGENT",
        "BOOT",
        "KINDS",
        "LABELS",
        right=("HEARD",),
        fold=("OS", "KINDS", "LABELS"),
    )
    for device in devices:
        info = device.info
        table.add_row(
            plain(device.name),
            plain(heartbeat_state(device, now)),
            age(now - device.heard if device.heard else None),
            plain(f"{info.os.id} {info.os.version_id} {info.os.arch}" if info else device.problem or "-", ""),
            plain(info.agent_version if info else "-", ""),
            plain(info.boot_id[:8] if info else "-", ""),
            plain(", ".join(kinds(device)) or "-", ""),
            plain(", ".join(f"{key}={value}" for key, value in sorted(info.labels.items())) if info else "-", ""),
        )
    to.print(table)


def out() -> Console:
    """Standard output, for results."""
    return console(sys.stdout)


def err() -> Console:
    """Standard error, for progress and errors."""
    return console(sys.stderr)
