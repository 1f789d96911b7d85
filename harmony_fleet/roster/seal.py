"""Rules for the succession of rosters: the device's table for manifests, applied to the roster.
Pure.

A seal is what this home saw last of its roster. It tells the right roster from three others: one of
another authority, an older one, and one that was changed by hand without a new generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from harmony_fleet.errors import Conflict, InvalidInput
from harmony_fleet.roster.model import Roster
from scores.canonical import NotCanonical, canonical, digest, read

MAX_HISTORY: Final = 256
"""Versions that a seal remembers: edits since the last apply, and some more."""

Version = tuple[int, str]
"""A roster's generation and the digest of its content."""


@dataclass(frozen=True, slots=True)
class RosterSeal:
    """The last roster seen: its authority, generation, content and text; the versions before it,
    oldest first; and its `version` as `form`, 0 in a seal of before, which doesn't tell.
    """

    lineage: str
    generation: int
    content: str
    text: str
    history: tuple[Version, ...] = ()
    form: int = 0

    @property
    def version(self) -> Version:
        """The last roster's own."""
        return self.generation, self.content


def seal_of(roster: Roster, data: bytes, before: tuple[Version, ...] = ()) -> RosterSeal:
    """The seal of `roster`, which `data` says, after the versions `before`."""
    version = roster.generation, roster.content_digest()
    history = (*(one for one in before if one != version), version)[-MAX_HISTORY:]
    return RosterSeal(roster.lineage, *version, digest(data), history, roster.version)


def to_bytes(seal: RosterSeal) -> bytes:
    """A seal as it is kept: digests, and nothing that a roster says."""
    told = {
        "lineage": seal.lineage,
        "generation": seal.generation,
        "content": seal.content,
        "text": seal.text,
        "form": seal.form,
    }
    return canonical({"version": 2, **told, "history": [list(one) for one in seal.history]})


def from_bytes(data: bytes, where: str, most: int) -> RosterSeal:
    """Read a seal, also one of version 1, whose copy of the roster is ignored.

    Raises InvalidInput: it isn't known then what was seen last, and nothing takes its place.
    """
    try:
        value = read(data, most)
        words = (value["lineage"], value["generation"], value["content"], value["text"])
        form = value.get("form", 0)
        known = value["version"] in (1, 2) and _types((*words, form)) == (str, int, str, str, int)
        history = _history(value["history"]) if value["version"] == 2 else ((words[1], words[2]),)
        seal = RosterSeal(*words, history, form)
    except (NotCanonical, KeyError, TypeError, ValueError):
        known = False
    if not known:
        raise InvalidInput(
            "SealUnreadable",
            f"cannot read {where}, which knows the roster's last generation",
            "if roster.yaml is the right one: remove that file",
        )
    return seal


def _types(values: tuple[Any, ...]) -> tuple[type, ...]:
    return tuple(type(value) for value in values)


def _history(value: Any) -> tuple[Version, ...]:
    """Parse the history. Raises ValueError or TypeError if it is invalid."""
    found = tuple((generation, content) for generation, content in value)
    if any(_types(one) != (int, str) for one in found):
        raise TypeError
    return found


def admit(seal: RosterSeal | None, roster: Roster) -> None:
    """Raise Conflict where `roster` can't follow the one that was sealed."""
    if seal is None:
        return
    if roster.lineage == seal.lineage and roster.version < seal.form:
        raise Conflict(
            "RosterVersionLowered",
            f"cannot use this roster: it is of version {roster.version}, and version {seal.form} was there already; "
            "all that was applied by hand would be taken off",
            f"set version: {seal.form} again; what was applied by hand goes by harmony delete",
        )
    if roster.lineage == seal.lineage and roster.generation > seal.generation:
        return
    if roster.lineage != seal.lineage:
        raise Conflict(
            "LineageChanged",
            f"cannot use this roster: it is of lineage {roster.lineage}, and this fleet's is {seal.lineage}",
            "put this fleet's roster back; another fleet needs a HARMONY_HOME of its own",
        )
    if roster.generation < seal.generation:
        raise Conflict(
            "StaleGeneration",
            f"cannot use this roster: it is of generation {roster.generation}, and {seal.generation} was there already",
            f"put the newer one back; to go back to what this one says, set its generation to {seal.generation + 1}",
        )
    if roster.content_digest() != seal.content:
        raise Conflict(
            "GenerationReused",
            f"cannot use this roster: it was changed by hand, and still says generation {roster.generation}",
            f"if the change is meant, set generation to {seal.generation + 1}",
        )


def expect(roster: Roster, generation: int) -> None:
    """Raise Conflict where a change was made for another generation."""
    if roster.generation != generation:
        raise Conflict(
            "StaleGeneration",
            f"cannot change the roster: it is at generation {roster.generation}, not at {generation}",
            "see what changed, then try again with the current --generation",
        )
