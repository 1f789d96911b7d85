"""Moments at which the agent changed something on the device, and if a process is older. Pure.

A token names the last change of what a resource restarts or reloads on. A process that started
before that change, and that was not restarted for it, has yet to read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from harmony_agent.core.actions import Act, Action
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import OwnershipRecord


@frozen()
class Moment:
    """A time on this device: microseconds since the boot `boot`, and since 1970.

    `monotonic` is 0 where only the wall clock tells.
    """

    boot: str
    monotonic: int
    wall: int

    def __str__(self) -> str:
        return f"{self._boot}:{self.monotonic}:{self.wall}"

    @property
    def _boot(self) -> str:
        return self.boot.replace("-", "")  # the kernel and the journal spell it differently

    @classmethod
    def parse(cls, text: str) -> Moment | None:
        """Read a token; None where it names no moment."""
        boot, *numbers = text.split(":")
        try:
            monotonic, wall = map(int, numbers)
        except ValueError:
            return None
        return cls(boot, monotonic, wall)

    def same_boot(self, other: Moment) -> bool:
        """Tell if both are of one boot."""
        return self._boot == other._boot

    def before(self, other: Moment) -> bool:
        """Tell if it is earlier in the same boot.

        A process of this boot has read whatever changed in an earlier boot.
        """
        if not self.same_boot(other):
            return False
        if self.monotonic and other.monotonic:
            return self.monotonic < other.monotonic
        return self.wall < other.wall


def is_due(token: str, noted: str, started: Moment | None) -> bool:
    """Tell if a process is to read anew what `token` names.

    `noted` is the token for which that was done last, `started` the start of the process (None: it
    never ran). A token that names no moment asks once.
    """
    if token in ("", noted):
        return False
    changed, done = Moment.parse(token), Moment.parse(noted)
    if changed is None:
        return True
    if done is not None and done.same_boot(changed) and not done.before(changed):
        return False  # a later change was read: what it restarts on names fewer resources now
    return started is not None and started.before(changed)


def first_token(noted: str, token: str) -> str:
    """The token to note at a claim: a first one that names no moment is taken as it is."""
    if noted and token:
        return noted
    return "" if Moment.parse(token) is not None else token


def newest(tokens: Iterable[str]) -> str:
    """The latest of the moments of one device; "" where there is none."""
    moments = [moment for moment in map(Moment.parse, tokens) if moment is not None]
    return str(max(moments, key=lambda moment: moment.wall)) if moments else ""


def of_this_form(record: OwnershipRecord) -> OwnershipRecord:
    """The record as this agent would have written it.

    An older agent put digests in the place of tokens; what was reached then is reached.
    """
    digest, *tokens = record.reached.split("+")
    if not any(token.startswith("sha256:") for token in tokens):
        return record
    return replace(record, applied=digest + record.applied[len(record.reached) :])


def is_change(plan: Act[Action]) -> bool:
    """Tell if carrying out `plan` changes a resource for those that restart or reload on it.

    A start doesn't count: after it ended, after it was stopped by hand, or because something else
    changed.
    """
    if plan.is_restart or plan.ahead or plan.for_others or not plan.drift:
        return False
    return plan.fields != ("state",)
