"""`harmony status --watch`: a view that is redrawn on a terminal, a line a change elsewhere.

Use as ``with StatusView(console) as view``; `show` takes all rows each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from io import StringIO
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harmony_fleet.observe.status import Row
from harmony_fleet.output.render import moment, plain
from harmony_fleet.output.tables import local

Table = Callable[[Sequence[Row], Console], None]


class StatusView:
    """Rows as `table` shows them; those that aren't converged first, where not all have room."""

    def __init__(self, console: Console, table: Table) -> None:
        self._console = console
        self._table = table
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> StatusView:
        self._live.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, rows: Sequence[Row]) -> None:
        """These are all rows now."""
        self._live.update(self.drawn(rows), refresh=True)

    def drawn(self, rows: Sequence[Row]) -> Text:
        """The table, cut to the height of the terminal, and the count of all."""
        room = max(self._console.height - 2, 2)
        lines = self._lines(rows[: room + 1])
        more = ""
        if len(lines) > room:
            lines = self._lines(sorted(rows, key=lambda row: row.converged)[:room])
            more = "; not all are shown"
        done = sum(1 for row in rows if row.converged)
        count = Text(f"{done} of {len(rows)} converged{more}", "dim")
        return Text("\n").join([*lines[:room], count])

    def _lines(self, rows: Sequence[Row]) -> list[Text]:
        to = Console(
            file=StringIO(),
            width=self._console.width,
            force_terminal=True,
            no_color=self._console.no_color,
            highlight=False,
        )
        with to.capture() as drawn:
            self._table(rows, to)
        return list(Text.from_ansi(drawn.get()).split("\n"))


class RowChanges:
    """Changes since the last look."""

    def __init__(self, *, removed: bool = False) -> None:
        self._removed = removed
        self._seen: dict[tuple[str, str], Row] | None = None

    def of(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Rows that changed; of the first look those that aren't hidden. One that is gone has the
        phase ``Gone``.
        """
        now = {(row.device, row.deployment): row for row in rows}
        before, self._seen = self._seen, now
        for place, row in now.items():
            old = before.get(place) if before is not None else None
            if old is None and row.hidden and not self._removed:
                continue
            if old is None or replace(old, age=row.age) != row:
                yield row
        for place in sorted((before or {}).keys() - now.keys()):
            old = (before or {})[place]
            yield replace(
                old, phase="Gone", reason="", message="", generation=None, wanted=None,
                ready=0, total=0, age=None, status=None,
            )  # fmt: skip


def row_line(row: Row, now: datetime) -> Text:
    """``11-29 17:00:03+00:00  pi-01/web  Progressing  1/3 ready  generation 2/3``."""
    parts = [
        Text(moment(now), "dim"),
        plain(f"{row.device}/{row.deployment}", "bold"),
        plain("silent" if row.silent else row.phase, "dim" if row.silent else None),
        Text(
            f"{row.ready}/{row.total} ready  generation {row.generation or '-'}/{row.wanted or '-'}"
        ),
    ]
    paused = f"paused until {local(row.paused)}" if row.paused else ""
    why = ": ".join(word for word in (paused, row.reason, row.message) if word)
    return Text("  ").join([*parts, *([plain(why, "")] if why else [])])
