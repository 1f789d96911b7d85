"""Rollouts in words and tables, and the progress of one: a view that is redrawn on a terminal, a line a
change elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from harmony_fleet.errors import ExitCode
from harmony_fleet.output.progress import MAX_SHOWN, Redrawn
from harmony_fleet.output.render import Row, grid, plain
from harmony_fleet.rollout.staged.record import Rollout, Target

_STYLES: Final = {"Succeeded": "green", "Paused": "red", "RolledBack": "red"}
_STATES: Final = {"succeeded": "green", "failed": "red", "pending": "dim", "away": "dim"}
_UNDER_WAY: Final = ("asked", "ready", "returning")
_NAMES: Final = 5


class RolloutProgress(Redrawn):
    """Hears of a rollout (`show`) and shows it."""

    def __init__(self, console: Console, *, live: bool = True) -> None:
        self._seen: dict[str, str] = {}
        self._rollout: Rollout | None = None
        super().__init__(console, live=live)  # last: it draws at once

    def show(self, rollout: Rollout) -> None:
        """The rollout as it is now."""
        self._rollout = rollout
        if self._live is not None:
            self._live.start()
            return
        for target in rollout.targets:
            told = target_words(target)
            if self._seen.get(target.device, "pending") != told:
                line = f"{target.device}/{rollout.deployment}: {told}"
                self._console.print(plain(line, ""), soft_wrap=True)
            self._seen[target.device] = told

    def _view(self) -> RenderableType:
        if self._rollout is None:
            return Text("")
        targets = self._rollout.targets
        bad = [target for target in targets if target.state == "failed"]
        going = [target for target in targets if target.state in _UNDER_WAY]
        parts: list[RenderableType] = [
            Text.assemble(("✗ ", "red"), f"{target.device}  ", plain(target_words(target), "red"))
            for target in bad[:MAX_SHOWN]
        ]
        parts += [
            Spinner("dots", plain(f"{target.device}  {target_words(target)}", ""), style="yellow")
            for target in going[: MAX_SHOWN - len(parts)]
        ]
        return Group(*parts, Text(words(self._rollout), "dim"))


def target_words(target: Target) -> str:
    """``ready``, or ``failed CrashLoop: …``."""
    told = f"{target.reason}: {target.message}" if target.message else target.reason
    return plain(f"{target.state} {told}", "").plain.rstrip()


def words(rollout: Rollout) -> str:
    """``Running, wave 2 of 3: 1 of 5 succeeded, 2 under way``."""
    under_way, bad = rollout.count(*_UNDER_WAY), rollout.count("failed")
    returned, away = rollout.count("returned"), rollout.count("away")
    told = [
        f"{rollout.count('succeeded')} of {len(rollout.targets)} succeeded",
        *([f"{under_way} under way"] if under_way else []),
        *([f"{bad} failed"] if bad else []),
        *([f"{returned} back at what they had"] if returned else []),
        *([f"{away} away"] if away else []),
    ]
    phase = f"{rollout.phase} {rollout.reason}".rstrip()
    return f"{phase}, wave {wave_now(rollout)} of {rollout.waves}: {', '.join(told)}"


def wave_now(rollout: Rollout) -> int:
    """The wave that is under way; the last one where all are over."""
    over = ("succeeded", "away", "returned")
    waves = [target.wave for target in rollout.targets if target.state not in over]
    return min(waves, default=rollout.waves)


def exit_code(rollout: Rollout) -> ExitCode:
    """0 where it succeeded or goes on."""
    going = rollout.phase in ("Running", "Succeeded")
    return ExitCode.DONE if going else ExitCode.NOT_CONVERGED


def next_step(rollout: Rollout) -> str:
    """The next thing to do; "" where it ended well."""
    name = rollout.deployment
    match rollout.phase:
        case "Running" | "RollingBack":
            return f"carry it on with: harmony rollout watch {name}, or by harmony fleet controller"
        case "Paused" if rollout.reason == "Asked":
            return f"go on with: harmony rollout resume {name}"
        case "Paused":
            return (
                f"mend the deployment and apply it; or harmony rollout resume {name} to try again, "
                f"harmony rollout undo {name} to go back"
            )
        case "RolledBack":
            return (
                f"mend the deployment and apply it; or harmony rollout resume {name} to try again"
            )
        case _:
            return ""


def rollouts_table(rollouts: Sequence[Rollout], to: Console) -> None:
    """A line each."""
    rows: list[Row] = [
        [
            plain(item.deployment),
            Text(item.phase, _STYLES.get(item.phase, "yellow")),
            Text(f"{wave_now(item)}/{item.waves}"),
            Text(str(len(item.targets))),
            Text(str(item.count("succeeded"))),
            Text(str(item.count("failed"))),
            plain(item.reason, ""),
        ]
        for item in rollouts
    ]
    header = ["DEPLOYMENT", "PHASE", "WAVE>", "DEVICES>", "SUCCEEDED>", "FAILED>", "REASON"]
    grid(header, rows, to)


def rollout_view(rollout: Rollout, to: Console) -> None:
    """One rollout: its waves, and what failed, grouped by what is told of it."""
    style = _STYLES.get(rollout.phase, "yellow")
    head = Text.assemble(plain(rollout.deployment, "bold"), "  ", Text(words(rollout), style))
    to.print(head, soft_wrap=True)
    began = rollout.created_at[:19].replace("T", " ")
    policy = rollout.policy
    told = f"begun {began} UTC by roster generation {rollout.roster_generation}, at most {policy.max_unavailable} at once"
    to.print(Text(told, "dim"), soft_wrap=True)
    rows: list[Row] = []
    for number in range(1, rollout.waves + 1):
        wave = [target for target in rollout.targets if target.wave == number]
        states = Counter(target.state for target in wave)
        counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
        rows.append([Text(str(number)), Text(str(len(wave))), plain(counts, ""), _names(wave)])
    grid(["WAVE>", "DEVICES>", "STATES", "NAMES"], rows, to)
    _failures(rollout, to)


def _failures(rollout: Rollout, to: Console) -> None:
    """The first failure, and how many have the same."""
    bad = sorted(
        (target for target in rollout.targets if target.reason),
        key=lambda target: target.since or "",
    )
    groups: dict[tuple[str, str], list[Target]] = {}
    for target in bad:
        groups.setdefault((target.reason, target.message), []).append(target)
    rows: list[Row] = [
        [
            plain(reason, "red"),
            Text(str(len(group))),
            plain((group[0].since or "")[:19].replace("T", " "), ""),
            _names(group),
            plain(message, ""),
        ]
        for (reason, message), group in groups.items()
    ]
    if rows:
        to.print()
        grid(["REASON", "DEVICES>", "FIRST AT", "NAMES", "MESSAGE"], rows, to)


def _names(targets: Sequence[Target]) -> Text:
    names = [target.device for target in targets[:_NAMES]]
    more = f" and {len(targets) - _NAMES} more" if len(targets) > _NAMES else ""
    return plain(", ".join(names) + more, "")


def history_table(rollout: Rollout, to: Console) -> None:
    """The present rollout and those of before, the newest first."""
    now = [
        (rollout.roster_generation, rollout.phase, rollout.created_at, rollout.ended_at or "-",
         len(rollout.targets), rollout.count("succeeded"), rollout.count("failed"), rollout.reason)
    ]  # fmt: skip
    before = [
        (past.roster_generation, past.phase, past.created_at, past.ended_at,
         past.devices, past.succeeded, past.failed, past.reason)
        for past in rollout.past
    ]  # fmt: skip
    rows: list[Row] = [
        [
            Text(str(generation)),
            Text(phase, _STYLES.get(phase, "yellow")),
            *(Text(moment[:19].replace("T", " ")) for moment in (begun, ended)),
            *(Text(str(count)) for count in counts),
            plain(reason, ""),
        ]
        for generation, phase, begun, ended, *counts, reason in [*now, *before]
    ]
    header = ["ROSTER>", "PHASE", "BEGUN", "ENDED", "DEVICES>", "SUCCEEDED>", "FAILED>", "REASON"]
    grid(header, rows, to)
