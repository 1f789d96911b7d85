"""Mark of the last applied roster in the buckets, for every copy of a home; and the rules for its
successor. Pure.

A home that has seen the version of the mark goes on from it. Any other is behind, or went a way of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from harmony_fleet.errors import Conflict
from harmony_fleet.roster.model import Roster
from harmony_fleet.roster.seal import MAX_HISTORY, Version
from scores.base import Model
from scores.manifest import Generation
from scores.names import Digest, Lineage
from scores.signatures import KeyId

_TOLD: Final = 10
"""Differences that are named one by one."""
PULL: Final = "harmony fleet pull"
_CHOICE: Final = (
    f"take that one: {PULL}; to have this one's way from now on: harmony fleet apply --take-over"
)


class Behind(Conflict):
    """This home isn't the one to write: another copy of it was applied, and this one knows nothing
    of it.
    """


class Past(Model):
    """A version that the roster had."""

    generation: Generation
    content: Digest


class Mark(Model):
    """A value of ``fleet-authority`` at ``roster.<lineage>``. `history` are the versions before,
    oldest first.
    """

    api: Literal["harmony/v1"] = "harmony/v1"
    lineage: Lineage
    generation: Generation
    content: Digest
    history: Annotated[Sequence[Past], Field(max_length=MAX_HISTORY)] = ()
    keys: Sequence[KeyId] = ()
    """ids of the signing keys that were in use"""

    @property
    def version(self) -> Version:
        """The roster's that was applied."""
        return self.generation, self.content

    def past(self) -> tuple[Version, ...]:
        """Every version that led to this one, it included."""
        return (*((one.generation, one.content) for one in self.history), self.version)


def mark_of(lineage: str, history: Sequence[Version], keys: Sequence[str]) -> Mark:
    """The mark of a roster whose versions are `history`, the present one last."""
    generation, content = history[-1]
    fields: dict[str, Any] = {
        "lineage": lineage,
        "generation": generation,
        "content": content,
        "keys": sorted(keys),
    }
    past = [Past(generation=number, content=digest) for number, digest in history[:-1]]
    return Mark(api="harmony/v1", history=past[-MAX_HISTORY:], **fields)


def follows(mark: Mark | None, history: Sequence[Version]) -> bool:
    """Return whether a home with this history may be applied after what was applied last."""
    return mark is None or mark.version in history


def check_keys(mark: Mark, keys: Sequence[str]) -> None:
    """Raise Behind where a key that signed last isn't among `keys`, those of this home of any
    state.
    """
    if strange := sorted(set(mark.keys) - set(keys)):
        raise Behind(
            "SigningKeyUnknown",
            f"cannot apply the roster: it was last signed by {', '.join(strange)}, and that key isn't here",
            "bring fleet/keys from the home that has it; to sign without it: harmony fleet apply --take-over",
        )


def behind(mark: Mark, history: Sequence[Version], differs: Sequence[str]) -> Behind:
    """Explain why a home with this history must not write. `differs`: see `differences`."""
    own = history[-1]
    there = f"generation {mark.generation} ({mark.content[:19]}) was applied from another copy of this home"
    if own in mark.past():
        return Behind(
            "RosterStale",
            f"cannot apply the roster: it is of generation {own[0]}, and {there}",
            _CHOICE,
            details=differs,
        )
    return Behind(
        "RosterDiverged",
        f"cannot apply the roster: it is of generation {own[0]} ({own[1][:19]}), and {there}, which didn't lead to it",
        _CHOICE,
        details=differs,
    )


def differences(own: Roster, theirs: Roster) -> list[str]:
    """List the differences of `theirs` by name: ``devices: has pi-04, lacks pi-02, differs in
    pi-03``.
    """
    return list(_differences(own, theirs))


def _differences(own: Roster, theirs: Roster) -> Iterator[str]:
    for section in ("devices", "deployments", "schedules"):
        here, there = (
            {item.name: item for item in getattr(roster, section)} for roster in (own, theirs)
        )
        changed = [name for name in here if name in there and here[name] != there[name]]
        parts = (
            ("has", sorted(there.keys() - here.keys())),
            ("lacks", sorted(here.keys() - there.keys())),
        )
        told = [
            f"{verb} {_some(names)}"
            for verb, names in (*parts, ("differs in", sorted(changed)))
            if names
        ]
        if told:
            yield f"{section}: the other one {', '.join(told)}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _TOLD
    return ", ".join(names[:_TOLD]) + (f" and {more} more" if more > 0 else "")
