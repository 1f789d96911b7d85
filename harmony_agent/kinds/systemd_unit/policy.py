"""Units that a SystemdUnit may reach: by its name, by its files, and by the names that the manager
gives it. Pure.

Bounds the agent alone. A running unit's program is bounded by its user's rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from harmony_agent.core.frozen import frozen
from harmony_agent.topology.units import Unit
from scores.manifest import FieldError
from scores.systemd_unit import SystemdUnit

FORBIDDEN: Final = (
    "harmony-agent[.@]*",
    "harmony-updater[.@-]*",
    "harmony-sessions[.@]*",
    "harmony-.*",
)
"""Our own units: a manifest must not be able to cut off the branch that it sits on. The last is of
drop-ins for all.
"""
_OWN: Final = (
    "harmony-agent.service",
    "harmony-updater.service",
    "harmony-updater.socket",
    "harmony-updater-apt.service",
    "harmony-sessions.service",
)
_INSTALL: Final = frozenset({"Alias", "Also"})
"""Settings by which enabling a unit enables, or becomes, another."""
_REACHING: Final = _INSTALL | {
    *(
        "WantedBy",
        "RequiredBy",
        "UpheldBy",
        "Requires",
        "Requisite",
        "Wants",
        "BindsTo",
        "BindTo",
        "Upholds",
    ),
    *(
        "RequiresOverridable",
        "RequisiteOverridable",
        "Conflicts",
        "OnFailure",
        "OnSuccess",
        "JoinsNamespaceOf",
    ),
    *("PropagatesStopTo", "PropagatesReloadTo", "PropagateReloadTo", "Unit", "Service", "Sockets"),
}
"""Settings by which a unit starts, stops, joins or changes others. After=, Before= and PartOf= bind
only itself.
"""
_SPECIFIER: Final = re.compile("%(.)")


def own(name: str) -> bool:
    """Return whether it is one of our own units, or stands for some of them."""
    return any(fnmatchcase(name, pattern) for pattern in FORBIDDEN)


def allowed(name: str, patterns: Sequence[str]) -> bool:
    """Return whether the configuration lets this unit be touched."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@frozen()
class UnitPolicy:
    """Globs of the unit names that may be touched, and whether a user's manager keeps them."""

    patterns: Sequence[str]
    for_user: bool = True

    def violations(self, spec: SystemdUnit) -> Iterator[FieldError]:
        """Units outside the patterns, our own units, and an empty unit file (which would be a
        mask).
        """
        yield from _reaches(spec, self.patterns)
        if spec.content == "":
            yield FieldError("content", "UnitFileEmpty")

    def stranger(self, unit: Unit | None) -> str:
        """The unit that is really meant where that is one which may not be touched."""
        real = unit.id if unit is not None and unit.id != unit.name else ""
        return real if real and (own(real) or not allowed(real, self.patterns)) else ""


def _reaches(spec: SystemdUnit, patterns: Sequence[str]) -> Iterator[FieldError]:
    """List where the spec reaches further than it may."""
    if own(spec.name):
        yield FieldError("name", "UnitForbidden")
    elif not allowed(spec.name, patterns):
        yield FieldError("name", "UnitNotAllowed")
    texts = {} if spec.content is None else {"content": spec.content}
    for field, text in (
        texts | {f"dropins.{name}": text for name, text in spec.dropins.items()}
    ).items():
        found = list(settings(text))
        if any(
            _may_be_own(unit, spec.name)
            for keys, units in found
            if keys & _REACHING
            for unit in units
        ):
            yield FieldError(field, "UnitForbidden")
        elif any(not allowed(_expanded(unit, spec.name), patterns) for keys, units in found if keys & _INSTALL
                 for unit in units):  # fmt: skip
            yield FieldError(field, "UnitNotAllowed")


def settings(text: str) -> Iterator[tuple[frozenset[str], list[str]]]:
    """Keys, and the words of their values, without quotes; one key, but where lines are joined by
    backslashes.

    When a line goes on in the next isn't the same in all versions of systemd: so all that might be
    is taken together.
    """
    keys: set[str] = set()
    words: list[str] = []
    for raw in re.split("[\n\r\0]", text):
        line = raw.strip("\ufeff \t")
        if line.startswith(("#", ";")):
            continue
        key, equals, value = line.partition("=")
        keys |= {key.strip()} if equals else set()
        words += re.sub("[\"'\\\\]+(?=\\s|$)|[\"']", "", value if equals else line).split()
        if not line.endswith("\\"):
            yield frozenset(keys), words
            keys, words = set(), []
    yield frozenset(keys), words


def _expanded(unit: str, name: str) -> str:
    """The unit with those specifiers filled in that the name says; others stay, and no pattern but
    * allows them.
    """
    stem = name.rpartition(".")[0]
    prefix, at, instance = stem.partition("@")
    known = {
        "n": name,
        "N": stem,
        "p": prefix,
        "%": "%",
        **({"i": instance} if instance or not at else {}),
    }
    return _SPECIFIER.sub(lambda match: known.get(match[1], match[0]), unit)


def _may_be_own(unit: str, name: str) -> bool:
    """Return whether it is one of ours, or can be by a specifier."""
    text = _expanded(unit, name)
    if own(text):
        return True
    return "%" in text and any(fnmatchcase(ours, _SPECIFIER.sub("*", text)) for ours in _OWN)
