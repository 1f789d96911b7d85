"""Progress while waiting: a live view on a terminal, a line a change elsewhere. Only on standard
error.

Use as ``with Progress(console) as progress``; `waiting` starts it, `observe` feeds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from harmony_fleet.client.events import resource_events
from harmony_fleet.client.watch import Change
from harmony_fleet.errors import ExitCode
from harmony_fleet.observe.wait import Target, Verdict, judge, target_of, unsettled
from harmony_fleet.output.event_lines import event_words
from harmony_fleet.output.render import plain
from harmony_fleet.rollout.apply import Result
from scores.keys import DeploymentKey
from scores.status import DeploymentStatus

MAX_SHOWN: Final = 12
"""Deployments that the live view shows at once, the unsettled first."""
MAX_RESOURCES: Final = 6


class Redrawn(ABC):
    """A view that is redrawn on a terminal while it is entered; elsewhere `_live` is None."""

    def __init__(self, console: Console, *, live: bool = True) -> None:
        self._console = console
        self._live: Live | None = None
        if live and console.is_terminal:
            self._live = Live(
                console=console, refresh_per_second=8, transient=True, get_renderable=self._view
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @abstractmethod
    def _view(self) -> RenderableType: ...


class Progress(Redrawn):
    """Hears of statuses (`observe`) and shows them."""

    def __init__(self, console: Console, *, live: bool = True) -> None:
        self._seen: dict[DeploymentKey, tuple[DeploymentStatus | None, Verdict]] = {}
        self._lines: dict[DeploymentKey, str] = {}
        super().__init__(console, live=live)  # last: it draws at once

    def waiting(self, results: Sequence[Result]) -> None:
        """These are waited for."""
        self.expect([target_of(result.plan.wire) for result in results if result.error is None])

    def expect(self, targets: Sequence[Target]) -> None:
        """Show these from the start, before any of them answers."""
        for target in targets:
            self.observe(target, None, judge(target, None, 0))

    def observe(self, target: Target, status: DeploymentStatus | None, verdict: Verdict) -> None:
        """One status came; None where there is none yet."""
        before, _ = self._seen.get(target.key, (None, None))
        self._seen[target.key] = (status, verdict)
        if self._live is not None:
            self._live.start()
            return
        if verdict.phase == "Waiting" and status is None:
            return
        if status is not None and verdict.phase != "Waiting":  # else it is of what was before
            told = Change(*target.key, status, "", 0, None)
            for event in resource_events(before, told):
                self._console.print(event_words(event), soft_wrap=True)
        line = summary(target.key, status, verdict).plain
        if self._lines.get(target.key) != line:
            self._lines[target.key] = line
            self._console.print(Text(line), soft_wrap=True)

    def _view(self) -> RenderableType:
        items = sorted(
            self._seen.items(), key=lambda item: (item[1][1].exit_code is not None, item[0])
        )
        parts: list[RenderableType] = []
        for key, (status, verdict) in items[:MAX_SHOWN]:
            line = summary(key, status, verdict)
            if verdict.exit_code is None:
                parts.append(Spinner("dots", line, style="yellow"))
                parts.extend(details(status))
            else:
                good = verdict.exit_code is ExitCode.DONE
                parts.append(Text.assemble(("✓ ", "green") if good else ("✗ ", "red"), line))
        settled = sum(1 for _, verdict in self._seen.values() if verdict.exit_code is not None)
        if len(self._seen) > 1:
            parts.append(Text(f"{settled} of {len(self._seen)} settled", "dim"))
        return Group(*parts)


def summary(key: DeploymentKey, status: DeploymentStatus | None, verdict: Verdict) -> Text:
    """``pi-01/web  Progressing  1/3 ready``."""
    text = Text.assemble(
        plain(f"{key.device}/{key.deployment}", "bold"), "  ", plain(verdict.phase)
    )
    if status is not None and status.resources and verdict.phase != "Waiting":
        total = len(status.resources)
        text.append(f"  {total - len(unsettled(status))}/{total} ready")
    if verdict.exit_code is None and verdict.phase in ("Waiting", "Unreadable") and verdict.message:
        text.append(f"  {plain(verdict.message, '').plain}", "dim")
    if verdict.exit_code not in (None, ExitCode.DONE) and verdict.reason:
        text.append(f"  {plain(verdict.reason, '').plain}")
    return text


def details(status: DeploymentStatus | None) -> list[Text]:
    """The resources that are behind, each with its phase and reason."""
    behind = unsettled(status)
    lines = [
        Text.assemble(
            "    ",
            plain(key, ""),
            " ",
            plain(item.phase),
            f" {plain(item.reason, '').plain}" if item.reason else "",
        )
        for key, item in behind[:MAX_RESOURCES]
    ]
    if len(behind) > MAX_RESOURCES:
        lines.append(Text(f"    and {len(behind) - MAX_RESOURCES} more", "dim"))
    return lines
