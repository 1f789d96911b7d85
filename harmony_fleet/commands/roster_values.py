"""Options of roster commands as changes of the roster: paths below an item, and values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harmony_fleet.commands.common import Common
from harmony_fleet.commands.roster import Values, not_there, roster_file
from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.load import drafts
from harmony_fleet.manifests.variables import pairs
from harmony_fleet.observe.state import parse_selectors
from harmony_fleet.roster.edit import UNSET
from harmony_fleet.roster.sources import kept_name, load_scores, scores_digest
from scores.manifest import SCORE_TYPES

_WHOLE: Final = 3


def source(common: Common, name: str, *, inline: bool) -> dict[str, Any]:
    """A file of Scores as a deployment keeps it: by name and digest, or as it is."""
    path = Path(name)
    if path.suffix != ".py":  # which is a program, and runs once
        for draft in drafts(name, "list"):
            draft.check({})
    scores = load_scores(path)
    if inline:
        return {"scores": list(scores)}
    return {"file": kept_name(path, roster_file(common).folder), "digest": scores_digest(scores)}


def selector(device_class: str | None, selectors: Sequence[str]) -> dict[str, Any]:
    """``--class`` and ``--select`` as the roster keeps them."""
    labels = parse_selectors(selectors)
    return ({"class": device_class} if device_class else {}) | (
        {"labels": labels} if labels else {}
    )


def members(common: Common, names: Sequence[str]) -> list[str]:
    """Names of devices that are in the roster, each once. Raises InvalidInput for another."""
    known = {device.name for device in roster_file(common).read().devices} if names else set()
    for name in names:
        if name not in known:
            raise not_there(name, "devices")
    return list(dict.fromkeys(names))


def excluding(common: Common, more: Sequence[str], fewer: Sequence[str]) -> Values:
    """The change of a selector's exceptions."""
    add = members(common, more)
    if not (add or fewer):
        return {}

    def changed(old: Any) -> Any:
        kept = [str(name) for name in old or () if name not in fewer]
        return [*kept, *(name for name in add if name not in kept)] or UNSET

    return {("select", "exclude"): changed}


def overriding(common: Common, words: Sequence[str], gone: Sequence[str]) -> Values:
    """``web/Container/web.memory=128Mi``, and without a value what goes: of a deployment, a resource
    or a field.
    """
    known = {item.name for item in roster_file(common).read().deployments} if words else set()
    values: Values = {}
    for word, value in pairs("override", words).items():
        path = _override_path(word)
        if len(path) != _WHOLE:
            raise _override_invalid()
        if path[0] not in known:
            raise not_there(path[0], "deployments")
        values["overrides", *path] = _json(value)
    return values | {("overrides", *_override_path(word)): UNSET for word in gone}


def _override_path(word: str) -> tuple[str, ...]:
    """Deployment, resource and field, as far as they are given. A kind has no dot, and a field has
    none: the last one stands before it, where what follows can be a field.
    """
    deployment, slash, rest = word.partition("/")
    if not slash:
        return (deployment,)
    key, dot, field = rest.rpartition(".")
    if not rest.partition("/")[2]:
        raise _override_invalid()
    return (deployment, key, field) if dot and _is_field(rest, field) else (deployment, rest)


def _is_field(resource: str, name: str) -> bool:
    """Return whether `name` is a field of the Score that `resource` (``Container/web.memory``) is
    of.
    """
    kind = SCORE_TYPES.get(resource.partition("/")[0])
    return kind is not None and name in kind.model_fields


def _override_invalid() -> InvalidInput:
    return InvalidInput(
        "OverrideInvalid",
        "cannot read an override",
        "write it as DEPLOYMENT/KIND/NAME.FIELD=VALUE, as web/Container/web.memory=128Mi; fields: harmony schema",
    )


def policy(words: Sequence[str]) -> dict[str, Any]:
    """``--rollout canary=1``: fields of a rollout, numbers as numbers."""
    return {
        name: int(value) if value.isdecimal() else value
        for name, value in pairs("rollout", words).items()
    }


def _json(text: str) -> Any:
    """A value in JSON; any other text is text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def unset(section: str, names: Sequence[str]) -> Values:
    """These keys of a map go."""
    return {(section, name): UNSET for name in names}


def nested(section: str, values: Mapping[str, Any]) -> Values:
    """These keys of a map are set."""
    return {(section, name): value for name, value in values.items()}


def flat(values: Mapping[str, Any]) -> Values:
    """Return the fields that were given."""
    return {(name,): value for name, value in values.items() if value is not None}


def selection(
    device_class: str | None, any_class: bool, select: list[str], no_select: list[str]
) -> Values:
    """Return the changes of a selector, as paths and values."""
    values: Values = {("select", "labels", name): UNSET for name in no_select}
    values |= {("select", "labels", name): value for name, value in parse_selectors(select).items()}
    if any_class or device_class:
        values["select", "class"] = device_class or UNSET
    return values
