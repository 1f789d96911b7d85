"""Keys of a service in a compose file, as options of `podman run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from harmony_fleet.importing.mounts import long_form
from harmony_fleet.importing.options import NOT_YET, OPTIONS
from harmony_fleet.importing.resource import Handler, NotTakenError, Place, Resource

_KEPT: Final = (
    "cap_add cap_drop cpus dns dns_search env_file expose gpus group_add hostname image init ipc pid "
    "platform privileged read_only restart security_opt shm_size stop_signal tmpfs tty ulimits user uts"
)
SAME: Final[Mapping[str, str]] = {
    **{name: name.replace("_", "-") for name in _KEPT.split()},
    "annotations": "annotation",
    "device_cgroup_rules": "device-cgroup-rule",
    "devices": "device",
    "environment": "env",
    "extra_hosts": "add-host",
    "labels": "label",
    "links": "link",
    "mem_limit": "memory",
    "network_mode": "network",
    "pids_limit": "pids-limit",
    "ports": "publish",
    "pull_policy": "pull",
    "secrets": "secret",
    "stdin_open": "interactive",
    "stop_grace_period": "stop-timeout",
    "sysctls": "sysctl",
    "ulimits": "ulimit",
    "userns_mode": "userns",
    "volumes": "volume",
    "working_dir": "workdir",
}
"""Compose's keys whose values are those of an option of `podman run`."""
WHY: Final[Mapping[str, str]] = {
    "build": "Harmony builds no images: build it, push it to a registry, and write its name",
    "profiles": "Harmony has no profiles: leave the service out where it isn't wanted",
    "extends": "it isn't followed: write what it brings into this service",
    "scale": "Harmony runs one of each: write another Container",
    "runtime": "Harmony takes podman's own",
    "configs": "put it into a File, and bind that",
    "develop": "it is for developing alone",
}
Option = tuple[str, Handler | None, str, str]
"""As it is shown, its handler, its value, and the reason where it has none."""


def options_of(name: str, value: Any, containers: Mapping[str, str]) -> Iterator[Option]:
    """The options of one key of a service."""
    if name == "container_name":
        return
    special = SPECIAL.get(name)
    if special is not None:
        found = list(special(value, containers))
        odd: list[Option] = [(name, None, _text(value), "it isn't of the form that compose takes")]
        yield from found or (odd if value not in (None, "", [], {}) else [])
        return
    option = SAME.get(name, name)
    why = WHY.get(name) or NOT_YET.get(option, "")
    if name in ("ports", "volumes") and isinstance(value, list):
        for item in value:
            yield _long_item(name, item)
        return
    for item in _items(value):
        yield name, OPTIONS.get(option) if name in SAME else None, item, why


def _long_item(name: str, item: Any) -> Option:
    if not isinstance(item, Mapping):
        return name, OPTIONS[SAME[name]], _text(item), ""
    if name == "volumes":
        return name, lambda resource, place, _: long_form(resource, place, _flat(item)), "", ""
    return name, lambda resource, place, _: _port(resource, place, item), "", ""


def _flat(item: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``{"tmpfs": {"size": 1}}`` as ``{"tmpfs.size": "1"}``."""
    flat: dict[str, str] = {}
    for key, value in item.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _text(value)
    return flat


def _port(resource: Resource, place: Place, item: Mapping[str, Any]) -> None:
    outside, inside = item.get("published"), item.get("target")
    text = f"{_text(outside or '')}:{_text(inside or '')}/{item.get('protocol', 'tcp')}"
    host = item.get("host_ip")
    OPTIONS["publish"](resource, place, f"{host}:{text}" if host else text)
    for key in item:
        if key not in ("published", "target", "protocol", "host_ip"):
            resource.note(f"ports, {key}", "Harmony has no field for it")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _items(value: Any) -> list[str]:
    """A value as compose has it, as values of options: a list is several, a mapping is NAME=value."""
    if isinstance(value, Mapping):
        return [str(key) if one is None else f"{key}={_nested(one)}" for key, one in value.items()]
    if isinstance(value, list):
        return [_nested(item) for item in value]
    return [_text(value)]


_DEVICE: Final = ("source", "target", "permissions")


def _nested(value: Any) -> str:
    """A limit of two numbers as ``soft:hard``; a file by its path."""
    if isinstance(value, Mapping):
        if "soft" in value:
            return f"{value['soft']}:{value.get('hard', value['soft'])}"
        if "target" in value and str(value.get("source", "")).startswith("/dev/"):
            return ":".join(_text(value[key]) for key in _DEVICE if key in value)
        return _text(value.get("path") or value.get("source") or value)
    return _text(value)


def _command(value: Any, _containers: Mapping[str, str]) -> Iterator[Option]:
    def handle(resource: Resource, place: Place, text: str) -> None:
        scratch = Resource("", "")
        if isinstance(value, list):
            resource.set("args", [_text(one) for one in value])
            return
        OPTIONS["entrypoint"](scratch, place, text)
        resource.set("args", scratch.fields["command"])

    yield "command", handle, _text(value), ""


def _entrypoint(value: Any, _containers: Mapping[str, str]) -> Iterator[Option]:
    def handle(resource: Resource, place: Place, text: str) -> None:
        if isinstance(value, list):
            resource.set("command", [_text(one) for one in value])
        else:
            OPTIONS["entrypoint"](resource, place, text)

    yield "entrypoint", handle, _text(value), ""


def _listed(value: Any) -> dict[str, Any]:
    """Names, which a list has alone and a mapping has with more."""
    if isinstance(value, Mapping):
        return {str(key): one for key, one in value.items()}
    return {_text(one): None for one in value} if isinstance(value, list) else {}


def _depends(value: Any, containers: Mapping[str, str]) -> Iterator[Option]:
    for name, how in _listed(value).items():

        def handle(resource: Resource, _place: Place, service: str, how: Any = how) -> None:
            if service not in containers:
                raise NotTakenError("there is no such service")
            resource.add("after", f"Container/{containers[service]}")
            condition = how.get("condition") if isinstance(how, Mapping) else None
            if condition == "service_healthy":
                resource.note(
                    f"depends_on {service}, service_healthy",
                    "it waits until that one runs: give that one a readiness probe",
                )
            for key in how if isinstance(how, Mapping) else ():
                if key != "condition":
                    resource.note(f"depends_on {service}, {key}", "Harmony has no field for it")

        yield f"depends_on {name}", handle, name, ""


_NETWORK: Final = {"aliases": "alias", "ipv4_address": "ip", "ipv6_address": "ip6"}


def _networks(value: Any, _containers: Mapping[str, str]) -> Iterator[Option]:
    for name, how in _listed(value).items():
        given = how if isinstance(how, Mapping) else {}
        parts = [
            f"{_NETWORK[key]}={one}"
            for key in _NETWORK
            for one in _items(given.get(key))
            if given.get(key) not in (None, "", [], {})
        ]
        text = f"{name}:{','.join(parts)}" if parts else name
        yield f"networks {name}", _join(text), name, ""
        for key in given:
            if key not in _NETWORK:
                yield f"networks {name}, {key}", None, "", "Harmony has no field for it"


def _join(text: str) -> Handler:
    return lambda resource, place, _: OPTIONS["network"](resource, place, text)


_HEALTH: Final = {
    "interval": "health-interval",
    "timeout": "health-timeout",
    "retries": "health-retries",
    "start_period": "health-start-period",
}


def _healthcheck(value: Any, _containers: Mapping[str, str]) -> Iterator[Option]:
    given = dict(value) if isinstance(value, Mapping) else {}
    test = given.pop("test", None)
    if given.pop("disable", False) or test in ("NONE", ["NONE"]):
        yield "healthcheck", OPTIONS["no-healthcheck"], "true", ""
        return
    if isinstance(test, list) and test[:1] == ["CMD"]:
        command: Sequence[str] = [_text(one) for one in test[1:]]
        yield (
            "healthcheck.test",
            lambda resource, _place, _text: resource.put("healthcheck", "command", list(command)),
            "",
            "",
        )
    elif test is not None:
        text = test[-1] if isinstance(test, list) and test else test
        yield "healthcheck.test", OPTIONS["health-cmd"], _text(text), ""
    for key, one in given.items():
        yield f"healthcheck.{key}", OPTIONS.get(_HEALTH.get(key, "")), _text(one), ""


_LIMITS: Final = {"cpus": "cpus", "memory": "memory", "pids": "pids-limit"}


_POLICY: Final = {
    "restart_policy.condition": "restart",
    "restart_policy.max_attempts": "restart-tries",
}


def _deploy(value: Any, _containers: Mapping[str, str]) -> Iterator[Option]:
    for key, one in _flat(value if isinstance(value, Mapping) else {}).items():
        option = _LIMITS.get(key.removeprefix("resources.limits."), "")
        option = _POLICY.get(key, option)
        text = {"any": "always", "none": "no"}.get(one, one) if option == "restart" else one
        yield f"deploy.{key}", OPTIONS.get(option), text, ""


def _logging(value: Any, _containers: Mapping[str, str]) -> Iterator[Option]:
    for key, one in _flat(value if isinstance(value, Mapping) else {}).items():
        name = key.removeprefix("options.")
        option, text = ("log-driver", one) if key == "driver" else ("log-opt", f"{name}={one}")
        yield f"logging.{key}", OPTIONS[option], text, ""


SPECIAL: Final[Mapping[str, Callable[[Any, Mapping[str, str]], Iterator[Option]]]] = {
    "command": _command,
    "depends_on": _depends,
    "deploy": _deploy,
    "entrypoint": _entrypoint,
    "healthcheck": _healthcheck,
    "logging": _logging,
    "networks": _networks,
}
"""Compose's keys that have a form of their own."""
