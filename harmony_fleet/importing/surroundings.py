"""Volumes and networks that a file has: each becomes a Score of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from harmony_fleet.importing.resource import Handler, NotTakenError, Place, Resource, take
from harmony_fleet.importing.values import pair, truth

_DRIVERS: Final = {"volume": ("local", ""), "network": ("bridge", "default", "")}
_NETWORKS: Final = ("macvlan", "ipvlan")


def _driver(resource: Resource, place: Place, text: str) -> None:
    del place
    if text in _DRIVERS[resource.kind.lower()]:
        raise NotTakenError("it is the default")
    if resource.kind == "Network" and text not in _NETWORKS:
        raise NotTakenError("a Network knows bridge, macvlan and ipvlan")
    resource.set("driver", text)


def _label(resource: Resource, place: Place, text: str) -> None:
    del place
    resource.put("labels", *pair(text))


def _once(field: str) -> Handler:
    """A field that the file may have several of, and a Network one."""

    def handle(resource: Resource, place: Place, text: str) -> None:
        del place
        if field in resource.fields:
            raise NotTakenError("a Network has one")
        resource.set(field, text)

    return handle


def _internal(resource: Resource, place: Place, text: str) -> None:
    del place
    if not truth(text):
        raise NotTakenError("it is off by default")
    resource.set("internal", True)


def _no_dns(resource: Resource, place: Place, text: str) -> None:
    del place
    if not truth(text):
        raise NotTakenError("it is off by default")
    resource.set("dns", False)


OPTIONS: Final[Mapping[str, Mapping[str, Handler]]] = {
    "volume": {"driver": _driver, "label": _label},
    "network": {
        "disable-dns": _no_dns,
        "driver": _driver,
        "gateway": _once("gateway"),
        "internal": _internal,
        "label": _label,
        "subnet": _once("subnet"),
    },
}
"""Options of `podman volume create` and `podman network create`."""
WHY: Final[Mapping[str, str]] = {
    "attachable": "each container may be in it",
    "driver_opts": "Harmony leaves a driver's options to podman; a bind in mounts takes a disk of the device",
    "enable_ipv6": "podman sees it from the subnet",
    "external": "it has to be on the device already",
    "ip_range": "podman takes free addresses of the whole subnet",
}
_SAME: Final = {"labels": "label"}


def of_compose(
    place: Place, what: str, key: str, name: str, given: Mapping[str, Any]
) -> tuple[Resource, bool]:
    """The Score of an entry of a compose file, and whether it is to be made here."""
    made = Resource(what.capitalize(), name)
    outside = False
    for shown, option, value in _flat(given):
        if option == "name":
            continue
        if option == "external":
            outside = value not in ("", "false")
        handler = OPTIONS[what].get(_SAME.get(option, option))
        take(made, place, f"{what}s.{key}.{shown}", handler, value, why=WHY.get(option, ""))
    return made, not outside


def _flat(given: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each value: its path in the file, its name, its text."""
    for name, value in given.items():
        if name == "ipam" and isinstance(value, Mapping):
            yield from ((f"ipam.{path}", option, text) for path, option, text in _ipam(value))
        elif name == "labels" and isinstance(value, (Mapping, list)):
            pairs = value.items() if isinstance(value, Mapping) else ()
            texts = [f"{key}={_text(one)}" for key, one in pairs] or list(map(_text, value))
            yield from ((name, name, text) for text in texts)
        elif name == "external" and isinstance(value, Mapping):
            yield name, name, "true"
        else:
            yield name, str(name), _text(value)


def _ipam(value: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, part in value.items():
        if name != "config" or not isinstance(part, list):
            yield str(name), "ipam driver", _text(part)
            continue
        for one in part:
            for key, text in one.items() if isinstance(one, Mapping) else [("", one)]:
                yield f"config.{key}", str(key), _text(text)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
