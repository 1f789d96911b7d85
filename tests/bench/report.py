"""Rows of the table, printed and written as JSON and into RESULTS.md. Measures nothing."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tests.bench.reasons import why
from tests.natsserver import binary

LIBRARIES: Final = ("nats-py", "pydantic", "anyio", "sdbus", "h11")
HEAD: Final = ("what", "floor", "ours", "ratio", "target", "met")


@dataclass(frozen=True)
class Row:
    """One line. `met` None: it couldn't be measured here, and `note` says why."""

    what: str
    floor: str
    ours: str
    ratio: str
    target: str
    met: bool | None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        word = {True: "yes", False: "NO", None: "-"}[self.met]
        return (self.what, self.floor, self.ours, self.ratio, self.target, word)


@dataclass
class Report:
    """All rows of one run."""

    title: str
    rows: list[Row] = field(default_factory=list)
    load_before: tuple[float, float, float] = field(default_factory=os.getloadavg)

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows in, and show them as they come."""
        for row in rows:
            self.rows.append(row)
            print("  " + "  ".join(cell for cell in row.cells()), flush=True)

    def facts(self) -> dict[str, str]:
        """The machine and the versions."""
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {_cpu()}, {_memory()}",
            "system": f"{_os()}, kernel {platform.release()}",
            "load average before and after": f"{_load(self.load_before)}, {_load(os.getloadavg())}",
            "python": platform.python_version(),
            "nats-server": _says([binary(), "--version"]).removeprefix("nats-server: v"),
            **{name: _version(name) for name in LIBRARIES},
            "commit": _says(["git", "rev-parse", "--short", "HEAD"]),
        }

    def table(self) -> str:
        """For people, as wide as it needs."""
        cells = [HEAD, *(row.cells() for row in self.rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in cells
        ]
        notes = [f"{row.what}: {row.note}" for row in self.rows if row.note]
        missed = [f"not met: {row.what}: {why(row.what)}" for row in self.rows if row.met is False]
        return "\n".join([*lines, "", *notes, "", *missed]).rstrip()

    def markdown(self) -> str:
        """The same as Markdown."""
        lines = [f"## {self.title}", ""]
        lines += [f"- {name}: {value}" for name, value in self.facts().items()]
        lines += ["", "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
        lines += [
            "| " + " | ".join(cell.replace("|", "/") for cell in row.cells()) + " |"
            for row in self.rows
        ]
        lines += ["", *(f"- *{row.what}*: {row.note}" for row in self.rows if row.note)]
        missed = [f"- *{row.what}*: {why(row.what)}" for row in self.rows if row.met is False]
        if missed:
            lines += ["", "Not met, and why (ADR 0040 says how that was found):", "", *missed]
        return "\n".join(lines).rstrip() + "\n"

    def write(self, name: str, results: Path, out: Path) -> None:
        """JSON into `out`; the part `name` of RESULTS.md anew, the other parts as they are."""
        out.mkdir(parents=True, exist_ok=True)
        value: dict[str, Any] = {
            "title": self.title,
            **self.facts(),
            "rows": [asdict(row) for row in self.rows],
        }
        (out / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
        parts = _parts(results)
        parts[name] = self.markdown()
        text = "# Results of the last runs\n\nWritten by `make bench` and `make bench-peers`; better and worse alike.\n"
        for part, body in sorted(parts.items()):
            text += f"\n<!-- {part} -->\n{body}"
        results.write_text(text)


def _parts(results: Path) -> dict[str, str]:
    parts: dict[str, str] = {}
    if results.exists():
        for piece in results.read_text().split("\n<!-- ")[1:]:
            name, _, body = piece.partition(" -->\n")
            parts[name] = body
    return parts


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which `part` of them are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]


def compare(
    what: str,
    floor: float,
    ours: float,
    most: float,
    unit: str = "ms",
    scale: float = 1e3,
    note: str = "",
) -> Row:
    """A row whose target is a multiple of its floor; `floor` and `ours` in seconds, or what `scale`
    makes `unit` of.
    """
    ratio = ours / floor
    return Row(
        what,
        f"{floor * scale:.2f} {unit}",
        f"{ours * scale:.2f} {unit}",
        f"{ratio:.2f}",
        f"at most {most:g} x",
        ratio <= most,
        note,
    )


median = statistics.median


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return "unknown processor"


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _os() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def _load(load: tuple[float, float, float]) -> str:
    return " ".join(f"{value:.2f}" for value in load)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _says(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
