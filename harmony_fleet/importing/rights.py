"""Options of a container that reach beyond it: nodes of /dev, namespaces of the device, guards."""

from __future__ import annotations

from typing import Final

from harmony_fleet.importing.resource import Handler, NotTakenError, Place, Resource
from harmony_fleet.importing.values import pair, size, truth, whole

ALLOW: Final = "only where the device allows it: [podman] allow in its agent.toml"


def device(resource: Resource, place: Place, text: str) -> None:
    """``/dev/ttyUSB0:/dev/ttyACM0:rw``."""
    del place
    source, _, rest = text.partition(":")
    target, _, access = rest.partition(":")
    if target and not target.startswith("/"):
        target, access = "", target
    if not source.startswith("/dev/"):
        raise NotTakenError("Container has nodes below /dev alone")
    made = {"source": source}
    made |= {"target": target} if target not in ("", source) else {}
    made |= {"access": access} if access not in ("", "rwm") else {}
    resource.add("devices", made)


def privileged(resource: Resource, place: Place, text: str) -> None:
    """The switch, with what it needs."""
    del place
    _allowed(resource, "privileged", text)


def of_the_device(field: str, name: str) -> Handler:
    """A namespace: the device's own, or the container's."""

    def handle(resource: Resource, place: Place, text: str) -> None:
        del place
        if text != "host":
            raise NotTakenError(f"Harmony knows host, and the container's own {name}")
        _allowed(resource, field, "true")

    return handle


def _allowed(resource: Resource, field: str, text: str) -> None:
    if not truth(text):
        raise NotTakenError("it is off by default")
    resource.set(field, True)
    resource.note(field, ALLOW)


_DRIVERS: Final = {
    "journald": "journald",
    "passthrough": "journald",
    "none": "none",
    **dict.fromkeys(("k8s-file", "json-file", "local"), "k8s-file"),
}


def log_driver(resource: Resource, place: Place, text: str) -> None:
    """Docker's files are podman's k8s-file."""
    del place
    if text not in _DRIVERS:
        raise NotTakenError("podman's default is kept, the journal: see harmony logs")
    resource.set("log_driver", _DRIVERS[text])


def log_opt(resource: Resource, place: Place, text: str) -> None:
    """``max-size=10m``."""
    del place
    name, value = pair(text)
    if name != "max-size":
        raise NotTakenError("Container has a size of the log alone")
    resource.set("log_size", size(value))
    resource.fields.setdefault("log_driver", "k8s-file")


def restart_tries(resource: Resource, place: Place, text: str) -> None:
    """A number of tries in a row."""
    del place
    resource.set("restart_tries", whole(text))


def security(resource: Resource, place: Place, text: str) -> None:
    """``no-new-privileges``, ``seccomp=unconfined``, ``label:disable``."""
    del place
    name, _, value = text.replace("=", ":", 1).partition(":")
    if name == "no-new-privileges":
        if not truth(value):
            raise NotTakenError("it is off by default")
        resource.set("no_new_privileges", True)
    elif name in ("seccomp", "apparmor"):
        resource.put("security_opt", name, value)
    elif name in ("label", "mask", "unmask"):
        held = resource.fields.setdefault("security_opt", {}).setdefault(name, [])
        held += [value] if name == "label" else value.split(":")
    else:
        raise NotTakenError("Container knows no such guard")
