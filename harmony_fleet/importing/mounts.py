"""Volumes, binds and tmpfs, in the short and the long form."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from typing import Any, Final

from harmony_fleet.importing.resource import NotTakenError, Place, Resource
from harmony_fleet.importing.values import path_there, size, truth

_SOCKETS: Final = re.compile(r"/(var/)?run/docker\.sock")
_DEFAULT: Final = frozenset({"rw", ""})
_WHY: Final = {
    "z": "Debian has no SELinux",
    "Z": "Debian has no SELinux",
    "cached": "it is of Docker Desktop alone",
    "delegated": "it is of Docker Desktop alone",
    "consistent": "it is of Docker Desktop alone",
}


def volume(resource: Resource, place: Place, text: str) -> None:
    """``data:/data:ro``, ``/srv/x:/x``, ``./x:/x``."""
    source, colon, rest = text.partition(":")
    if not colon:
        raise NotTakenError("it is a volume without a name: give it one, as name:/path")
    target, _, options = rest.partition(":")
    mount = _made(place, source, target)
    for option in options.split(","):
        _option(resource, mount, option, f"volume {target}")
    _add(resource, source, mount)


def _made(place: Place, source: str, target: str) -> dict[str, Any]:
    if source.startswith(("/", ".", "~", "$", "%")):
        return {"type": "bind", "source": path_there(place, source), "target": target}
    return {"type": "volume", "source": place.names.get(source, source), "target": target}


def _option(resource: Resource, mount: dict[str, Any], option: str, what: str) -> None:
    if option in ("ro", "readonly"):
        mount["read_only"] = True
    elif option == "U":
        mount["chown"] = True
    elif option not in _DEFAULT:
        resource.note(f"{what}, {option}", _WHY.get(option, "Harmony has no field for it"))


def _add(resource: Resource, written: str, mount: dict[str, Any]) -> None:
    source = mount.get("source")
    if source == "/":
        raise NotTakenError(
            "the whole device isn't bound into a container: run what looks at the device as a unit"
        )
    if source and _SOCKETS.fullmatch(source):
        raise NotTakenError("a device with podman has no socket of docker's")
    if any(one["target"] == mount["target"] for one in resource.fields.get("mounts", ())):
        raise NotTakenError("another mount has this target")
    resource.add("mounts", mount)
    if written.startswith("."):
        resource.note(
            f"volume {written}", f"it is {source} on the device: bring there what it holds"
        )


def tmpfs(resource: Resource, place: Place, text: str) -> None:
    """``/run:size=64m,mode=1777``."""
    del place
    target, _, options = text.partition(":")
    mount: dict[str, Any] = {"type": "tmpfs", "target": target}
    for option in filter(None, options.split(",")):
        if option.startswith("size="):
            mount["size"] = size(option[5:])
        else:
            _option(resource, mount, option, f"tmpfs {target}")
    _add(resource, "", mount)


def mount(resource: Resource, place: Place, text: str) -> None:
    """``type=bind,source=/a,target=/b,ro``."""
    parts = next(csv.reader([text]), [])
    given = {name: value for name, _, value in (part.partition("=") for part in parts)}
    long_form(resource, place, given)


_SAME: Final = {
    "src": "source",
    "dst": "target",
    "destination": "target",
    "ro": "read_only",
    "readonly": "read_only",
    "tmpfs-size": "size",
    "tmpfs.size": "size",
    "U": "chown",
}


def long_form(resource: Resource, place: Place, given: Mapping[str, str]) -> None:
    """A mount by the names of its parts."""
    parts = {_SAME.get(name, name): value for name, value in given.items()}
    kind, target = parts.pop("type", "volume"), parts.pop("target", "")
    source = parts.pop("source", "")
    if kind not in ("bind", "volume", "tmpfs"):
        raise NotTakenError(f"a mount of type {kind} isn't known here")
    if kind == "volume" and not source:
        raise NotTakenError("it is a volume without a name: give it one")
    made: dict[str, Any] = {"type": kind, "target": target}
    if kind == "bind":
        made["source"] = path_there(place, source)
    elif kind == "volume":
        made["source"] = place.names.get(source, source)
    for name in ("read_only", "chown"):
        if name in parts and truth(parts.pop(name)):
            made[name] = True
    if kind == "tmpfs" and "size" in parts:
        made["size"] = size(parts.pop("size"))
    for name in parts:
        resource.note(f"mount {target}, {name}", "Harmony has no field for it")
    _add(resource, source, made)
