"""Compare two manifests without showing values: digests for content, names for variables. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from scores.base import Score
from scores.canonical import digest
from scores.manifest import Manifest

SHOWN: Final = frozenset(
    {
        "path",
        "type",
        "mode",
        "owner",
        "group",
        "parents",
        "target",
        "state",
        "enabled",
        "masked",
        "image",
        "pull",
    }
    | {
        "restart",
        "drift",
        "on_remove",
        "adopt",
        "network",
        "user",
        "working_dir",
        "hostname",
        "stop_signal",
        "cpus",
    }
    | {"stop_grace_seconds", "memory", "pids", "read_only", "no_new_privileges"}
)
"""Scalar fields whose value tells no secret."""
_DIGESTED: Final = frozenset({"content", "content_base64"})
_NAMED: Final = frozenset({"env", "dropins", "labels"})
"""Maps of which the names are told."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs; `before` and `after` are None where its value isn't to be shown or
    isn't set.
    """

    field: str
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one resource."""

    key: str
    how: Literal["added", "changed", "removed"]
    fields: tuple[FieldChange, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        fields = [
            {"field": item.field, "before": item.before, "after": item.after}
            for item in self.fields
        ]
        return {"resource": self.key, "change": self.how, "fields": fields}


def diff(old: Manifest | None, new: Manifest) -> tuple[Change, ...]:
    """From what is desired now to what will be; sorted by resource."""
    before = {score.key: score for score in (old.scores if old else ())}
    after = {score.key: score for score in new.scores}
    return tuple(
        _change(key, before.get(key), after.get(key))
        for key in sorted({*before, *after})
        if _differs(before.get(key), after.get(key))
    )


def diff_by_digest(known: Mapping[str, str], new: Manifest) -> tuple[Change, ...]:
    """The same where only the device's spec digests are known: which resources, not which
    fields.
    """
    after = {score.key: score.spec_digest() for score in new.scores}
    found: list[Change] = []
    for key in sorted({*known, *after}):
        if key not in known:
            found.append(Change(key, "added"))
        elif key not in after:
            found.append(Change(key, "removed"))
        elif known[key] != after[key]:
            found.append(Change(key, "changed"))
    return tuple(found)


def _differs(old: Score | None, new: Score | None) -> bool:
    return old is None or new is None or old.canonical() != new.canonical()


def _change(key: str, old: Score | None, new: Score | None) -> Change:
    if old is None or new is None:
        return Change(key, "added" if old is None else "removed")
    before, after = old.wire(), new.wire()
    fields: list[FieldChange] = []
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            fields.extend(_field(name, before.get(name), after.get(name)))
    return Change(key, "changed", tuple(fields) or (FieldChange("set"),))


def _field(name: str, before: Any, after: Any) -> Iterable[FieldChange]:
    if name in _DIGESTED:
        yield FieldChange(name, _digested(name, before), _digested(name, after))
    elif (
        name in _NAMED
        and (before is None or isinstance(before, dict))
        and (after is None or isinstance(after, dict))
    ):
        before, after = before or {}, after or {}
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                yield _entry(name, key, before.get(key), after.get(key))
    elif name in SHOWN:
        yield FieldChange(name, _plain(before), _plain(after))
    else:
        yield FieldChange(name)


def _entry(name: str, key: str, before: str | None, after: str | None) -> FieldChange:
    """One variable, drop-in or label: of a drop-in its digest, of the others only that it
    differs.
    """
    if name == "dropins":
        return FieldChange(f"{name}.{key}", _digested(name, before), _digested(name, after))
    return FieldChange(
        f"{name}.{key}", None if before is None else "set", None if after is None else "set"
    )


def _plain(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _digested(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        data = (
            base64.b64decode(value, validate=True) if name == "content_base64" else value.encode()
        )
    except (binascii.Error, ValueError):
        data = value.encode()
    return f"{len(data)} bytes, {digest(data)[:19]}"
