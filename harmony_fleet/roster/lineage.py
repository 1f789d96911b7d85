"""The one authority of a home: `harmony apply` without a roster and the roster write by the same
lineage.

A roster of version 2 shares the home's lineage. One of version 1, as of before, has a lineage of
its own, and all of that lineage is the roster's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harmony_fleet.context import load_lineage
from harmony_fleet.errors import Refused
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.model import Roster
from scores.keys import DeploymentKey

SET_THERE: Final = "change it there: harmony fleet deployment set {deployment} --file FILE, then harmony fleet apply"
REMOVE_THERE: Final = (
    "take it out there: harmony fleet deployment remove {deployment}, or have it select other devices with harmony "
    "fleet deployment set {deployment}; then harmony fleet apply"
)


def sharing(home: Path) -> Roster | None:
    """The home's roster, if it shares the home's lineage. Raises where it can't be read: nobody
    knows then what is its own.
    """
    file = RosterFile(home)
    if not file.path.exists() and not file.seal_path.exists():
        return None
    roster = file.read()
    return roster if roster.shares_lineage else None


def home_lineage(home: Path, given: str | None = None) -> str:
    """The lineage that this home writes by: the one that is given, else the home's own, made once.

    A home that was given a roster only (by a pull) takes that one's.
    """
    made_before = given or (home / "lineage").exists()
    roster = None if made_before else sharing(home)
    return load_lineage(home, given, made=roster.lineage if roster is not None else None)


def check_by_hand(home: Path, lineage: str, keys: Iterable[DeploymentKey], hint: str) -> None:
    """Raise Refused where the roster manages one of `keys`: its next apply would undo it.

    `hint` says what to do there; it may name ``{deployment}``.
    """
    roster = sharing(home)
    if roster is None or roster.lineage != lineage:
        return
    for key in roster.manages(keys):
        raise Refused(
            "ManagedByRoster",
            f"cannot change {key.deployment} on {key.device} by hand: the roster has it",
            hint.format(deployment=key.deployment),
        )
