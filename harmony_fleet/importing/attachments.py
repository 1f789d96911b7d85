"""A container's place in networks: which ones, by which names, at which address.

Some of it is said for one network, and some for the only one there is: so it is put together at the
end, by `attached`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harmony_fleet.importing.resource import NotTakenError, Place, Resource

_DEFAULTS: Final = ("bridge", "default", "private", "slirp4netns", "pasta")
_ALONE: Final = ("host", "none")
_ONE: Final = "network of its own"
"""Key of what is said for the only network, until `attached` knows which that is."""


def network(resource: Resource, place: Place, text: str) -> None:
    """``iot``, ``host``, ``iot:alias=mqtt,ip=10.89.5.10``."""
    name, _, options = text.partition(":")
    if name in _DEFAULTS and not options:
        raise NotTakenError("it is podman's default")
    if name in ("container", "ns", "service") or name.endswith(".container"):
        raise NotTakenError("it shares another container's network: Harmony has no field for it")
    if name.endswith(".network") and name not in place.names:
        resource.note(f"network {name}", "it isn't among the files: its name here is a guess")
        name = f"systemd-{name.removesuffix('.network')}"
    join(resource, place.names.get(name, name))
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        why = _put(resource.fields["networks"][-1], key, value)
        if why:
            resource.note(f"network {name}, {option}", why)


def join(resource: Resource, name: str) -> dict[str, Any]:
    """One more network; what stands in the manifest of it."""
    made: dict[str, Any] = {"name": name}
    held = [one["name"] for one in resource.fields.get("networks", ())]
    if {*held, name} & {*_ALONE} and held:
        raise NotTakenError("host and none stand alone")
    if name in held:
        raise NotTakenError("it stands there twice")
    resource.add("networks", made)
    return made


def _put(made: dict[str, Any], key: str, value: str) -> str:
    """Put it in; the reason where it can't be."""
    if key == "alias":
        made.setdefault("aliases", []).append(value)
    elif key not in ("ip", "ip6"):
        return "Harmony has no field for it"
    elif "address" in made:
        return "a Container has one fixed address in a network"
    else:
        made["address"] = value
    return ""


def of_the_only_one(key: str) -> Callable[[Resource, Place, str], None]:
    """``--ip``, ``--ip6`` and ``--network-alias``."""

    def handle(resource: Resource, place: Place, text: str) -> None:
        del place
        if why := _put(resource.fields.setdefault(_ONE, {}), key, text):
            raise NotTakenError(why)

    return handle


def attached(resource: Resource) -> None:
    """Put together what was said of networks. One without more is `network`, the short form."""
    own = resource.fields.pop(_ONE, {})
    networks = resource.fields.pop("networks", [])
    named = [one for one in networks if one["name"] not in _ALONE]
    if own and len(named) == 1:
        for key, value in own.items():
            named[0].setdefault(key, value)
    elif own:
        shown = " ".join(str(value) for value in own.values())
        resource.note(
            f"{' and '.join(own)} {shown}", "only where it is in one network, by its name"
        )
    if len(networks) == 1 and set(networks[0]) == {"name"}:
        resource.set("network", networks[0]["name"])
    elif networks:
        resource.set("networks", networks)
