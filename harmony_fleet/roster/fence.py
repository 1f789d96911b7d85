"""Which roster may follow which: the device's own table for manifests, held to the roster. Pure.

A seal is what this home saw last of its roster. With it a roster of another authority laid over this one, an older
one, or one changed by hand without a new generation is told from the right one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harmony_fleet.errors import Conflict, InvalidInput
from harmony_fleet.roster.model import Roster, check
from scores.canonical import NotCanonical, canonical, digest, read


@dataclass(frozen=True, slots=True)
class Seal:
    """The last roster seen: its authority, generation, content and text, and the roster itself."""

    lineage: str
    generation: int
    content: str
    text: str
    wire: dict[str, Any]

    def roster(self, where: str) -> Roster:
        """The sealed roster, which spares reading the same text again."""
        return check(self.wire, where)


def seal_of(roster: Roster, data: bytes) -> Seal:
    """The seal of `roster`, which `data` says."""
    return Seal(roster.lineage, roster.generation, roster.content_digest(), digest(data), roster.wire())


def to_bytes(seal: Seal) -> bytes:
    """A seal as it is kept."""
    told = {"lineage": seal.lineage, "generation": seal.generation, "content": seal.content, "text": seal.text}
    return canonical({"version": 1, **told, "roster": seal.wire})


def from_bytes(data: bytes, where: str, most: int) -> Seal:
    """Read a seal. Raises InvalidInput: what was seen last is then not known, and nothing is taken for it."""
    try:
        value = read(data, most)
        seal = Seal(value["lineage"], value["generation"], value["content"], value["text"], value["roster"])
        known = value["version"] == 1 and isinstance(seal.generation, int) and isinstance(seal.wire, dict)
    except (NotCanonical, KeyError, TypeError):
        known = False
    if not known:
        raise InvalidInput(
            "SealUnreadable",
            f"cannot read {where}, which knows the roster's last generation",
            "if roster.yaml is the right one: remove that file",
        )
    return seal


def admit(seal: Seal | None, roster: Roster) -> None:
    """Raise Conflict where `roster` can't follow the one that was sealed."""
    if seal is None or (roster.lineage == seal.lineage and roster.generation > seal.generation):
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
