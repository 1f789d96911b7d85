"""Files of NAME=value lines, and `${VAR:-x}`, as compose reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from harmony_fleet.importing.resource import Place, Resource
from harmony_fleet.importing.values import path_there
from harmony_fleet.manifests.files import MAX_FILE

_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*(?:=(.*))?", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$$"}
_MOST_DEPTH: Final = 20
Missing = Callable[[str], None]
"""Told a variable that has no value."""


def read_env_file(resource: Resource, place: Place, text: str) -> None:
    """Take the file's values into `env`, below what stands there; where it isn't here, name it on
    the device.
    """
    path = place.folder / text
    try:
        data = path.read_bytes()[:MAX_FILE].decode("utf-8-sig")
    except (OSError, ValueError):
        there = path_there(place, text)
        resource.add("env_files", there)
        resource.note(f"env file {text}", f"it isn't here: put it to {there} on the device")
        return
    values = parse_env(data, {}, lambda name: resource.note(f"${name} in {text}", "it isn't set"))
    for name, value in values.items():
        if value is None:
            resource.note(f"{name} in {text}", "it has the value of the shell that started it")
        else:
            resource.put("env", name, value)
    resource.note(f"env file {text}", "its values stand in env: to keep them apart, use env_files")


def parse_env(text: str, env: Mapping[str, str], missing: Missing) -> dict[str, str | None]:
    """The values of a file's lines: quotes go, comments go, variables are filled in from `env` and
    from the lines before.
    """
    values: dict[str, str | None] = {}
    lines = iter(text.splitlines())
    for line in lines:
        found = _LINE.fullmatch(line)
        if not found or line.lstrip().startswith("#"):
            continue
        name, value = found[1], found[2]
        if value is None:
            values[name] = env.get(name)
            continue
        value = value.strip()
        if value[:1] in ("'", '"'):
            while not re.search(rf"(?<!\\){value[0]}", value[1:]):
                more = next(lines, None)
                if more is None:
                    break
                value += f"\n{more}"
        known = {**{key: one for key, one in values.items() if one is not None}, **env}
        values[name] = _value(value, known, missing)
    return values


def _value(text: str, env: Mapping[str, str], missing: Missing) -> str:
    if text.startswith("'"):
        return text[1:].partition("'")[0]
    if text.startswith('"'):
        inner = re.match(r'((?:[^"\\]|\\.)*)', text[1:], re.DOTALL)
        body = re.sub(
            r"\\(.)",
            lambda one: _ESCAPES.get(one[1], one[0]),
            inner[1] if inner else "",
            flags=re.S,
        )
        return filled(body, env, missing)
    return filled(re.sub(r"\s+#.*$", "", text), env, missing)


def filled(text: str, env: Mapping[str, str], missing: Missing, depth: int = 0) -> str:
    """`text` with its variables filled in: ``$A``, ``${A}``, ``${A:-x}``, ``${A?x}``, ``${A:+x}``;
    ``$$`` is a plain one.
    """
    made, at = "", 0
    while (start := text.find("$", at)) >= 0 and depth < _MOST_DEPTH:
        made += text[at:start]
        after = text[start + 1 : start + 2]
        name = _NAME.match(text, start + 1)
        if after == "$":
            made, at = f"{made}$", start + 2
        elif after == "{" and (end := _closing(text, start + 2)):
            made, at = made + _braced(text[start + 2 : end], env, missing, depth), end + 1
        elif name:
            made, at = made + _known(name[0], env, missing), name.end()
        else:
            made, at = f"{made}$", start + 1
    return made + text[at:]


def _closing(text: str, at: int) -> int:
    """Index of the brace that closes the one before `at`; 0 where there is none."""
    deep = 1
    for index in range(at, len(text)):
        deep += {"{": 1, "}": -1}.get(text[index], 0)
        if not deep:
            return index
    return 0


def _braced(inner: str, env: Mapping[str, str], missing: Missing, depth: int) -> str:
    name = _NAME.match(inner)
    if not name:
        missing(inner[:40])
        return ""
    rest = inner[name.end() :]
    sign = next((one for one in (":-", "-", ":?", "?", ":+", "+") if rest.startswith(one)), "")
    other = rest[len(sign) :]
    value = env.get(name[0])
    there = value is not None and (value != "" or not sign.startswith(":"))
    if sign.endswith("-"):
        return value or "" if there else filled(other, env, missing, depth + 1)
    if sign.endswith("+"):
        return filled(other, env, missing, depth + 1) if there else ""
    if there:
        return value or ""
    return _known(name[0], {}, missing)


def _known(name: str, env: Mapping[str, str], missing: Missing) -> str:
    if name not in env:
        missing(name)
    return env.get(name, "")
