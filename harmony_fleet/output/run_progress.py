"""Progress of a run of upgrades: a view that is redrawn on a terminal, a line a change elsewhere. Only
on standard error.

Use as ``with RunProgress(console) as progress``; `show` takes the run each time.
"""

from __future__ import annotations

from typing import Final

from rich.console import Console, Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from harmony_fleet.output.progress import MAX_SHOWN, Redrawn
from harmony_fleet.output.render import plain
from scores.task_run import TaskRun, TaskTarget

_BAD: Final = ("failed", "repair-required")
_ENDED: Final = ("succeeded", "skipped", *_BAD)


class RunProgress(Redrawn):
    """Hears of a run (`show`) and shows it."""

    def __init__(self, console: Console, *, live: bool = True) -> None:
        self._seen: dict[str, str] = {}
        self._run: TaskRun | None = None
        super().__init__(console, live=live)  # last: it draws at once

    def show(self, run: TaskRun) -> None:
        """The run as it is now."""
        self._run = run
        if self._live is not None:
            self._live.start()
            return
        for target in run.targets:
            words = target_words(target)
            if self._seen.get(target.device, "pending") != words:
                line = Text.assemble(plain(target.device, ""), ": ", plain(words, ""))
                self._console.print(line, soft_wrap=True)
            self._seen[target.device] = words

    def _view(self) -> RenderableType:
        if self._run is None:
            return Text("")
        targets = self._run.targets
        bad = [target for target in targets if target.state in _BAD]
        under_way = [target for target in targets if target.state not in ("pending", *_ENDED)]
        parts: list[RenderableType] = [
            Text.assemble(("✗ ", "red"), f"{target.device}  ", plain(target_words(target), "red"))
            for target in bad[:MAX_SHOWN]
        ]
        parts += [
            Spinner("dots", Text(f"{target.device}  {target_words(target)}"), style="yellow")
            for target in under_way[: MAX_SHOWN - len(parts)]
        ]
        return Group(*parts, Text(_count(self._run, len(under_way), len(bad)), "dim"))


def _count(run: TaskRun, under_way: int, bad: int) -> str:
    """``wave 2 of 3: 4 of 10 ended, 2 under way, 1 failed``."""
    ended = sum(1 for target in run.targets if target.state in _ENDED)
    waves = max(target.wave for target in run.targets)
    now = min((item.wave for item in run.targets if item.state not in _ENDED), default=waves)
    failed = f", {bad} failed" if bad else ""
    return (
        f"wave {now} of {waves}: {ended} of {len(run.targets)} ended, {under_way} under way{failed}"
    )


def target_words(target: TaskTarget) -> str:
    """``applying``, or ``failed DpkgInterrupted``: the updater's own phase while it works."""
    phase = target.phase if target.state == "upgrading" else target.state
    return plain(f"{phase} {target.reason}", "").plain
