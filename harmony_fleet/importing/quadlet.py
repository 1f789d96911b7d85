"""Quadlets: `.container` files become Containers, `.network` and `.pod` Networks, `.volume` Volumes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from harmony_fleet.importing.attachments import attached, join
from harmony_fleet.importing.options import NOT_YET, OPTIONS
from harmony_fleet.importing.resource import Handler, NotTakenError, Place, Resource, take
from harmony_fleet.importing.run_line import DEFAULT_RESTART, podman_args
from harmony_fleet.importing.surroundings import OPTIONS as OF_SURROUNDINGS
from harmony_fleet.importing.values import truth, words

SUFFIXES: Final = (".container", ".volume", ".network", ".pod")
Entry = tuple[str, str, str]
"""Section, key and value of a line."""
KEYS: Final[Mapping[str, str]] = {
    "AddCapability": "cap-add",
    "AddDevice": "device",
    "AddHost": "add-host",
    "Annotation": "annotation",
    "DNS": "dns",
    "DNSSearch": "dns-search",
    "DropCapability": "cap-drop",
    "Entrypoint": "entrypoint",
    "Environment": "env",
    "EnvironmentFile": "env-file",
    "ExposeHostPort": "expose",
    "GroupAdd": "group-add",
    "HealthCmd": "health-cmd",
    "HealthInterval": "health-interval",
    "HealthRetries": "health-retries",
    "HealthStartPeriod": "health-start-period",
    "HealthTimeout": "health-timeout",
    "HostName": "hostname",
    "IP": "ip",
    "IP6": "ip6",
    "Image": "image",
    "Label": "label",
    "LogDriver": "log-driver",
    "LogOpt": "log-opt",
    "Memory": "memory",
    "Mount": "mount",
    "Network": "network",
    "NetworkAlias": "network-alias",
    "Notify": "sdnotify",
    "PidsLimit": "pids-limit",
    "Pod": "pod",
    "PublishPort": "publish",
    "Pull": "pull",
    "ReadOnly": "read-only",
    "RunInit": "init",
    "Secret": "secret",
    "ShmSize": "shm-size",
    "StopSignal": "stop-signal",
    "StopTimeout": "stop-timeout",
    "Sysctl": "sysctl",
    "Timezone": "tz",
    "Tmpfs": "tmpfs",
    "Ulimit": "ulimit",
    "UserNS": "userns",
    "Volume": "volume",
    "WorkingDir": "workdir",
}
"""Keys of [Container] whose values are those of an option of `podman run`."""
SEVERAL: Final = frozenset(
    ["AddCapability", "Annotation", "DropCapability", "Environment", "Label", "Sysctl"]
)
"""Keys that may have several values on a line."""
WHY: Final[Mapping[str, str]] = {
    "Container.AutoUpdate": "Harmony pulls by the manifest: pull, and a new tag or digest",
    "Container.ContainersConfModule": "Harmony takes podman's own configuration",
    "Unit.Description": "a Container is known by its name",
    "Unit.Documentation": "a Container is known by its name",
    "Install.WantedBy": "Harmony starts what is to run, at each boot too",
    "Install.DefaultInstance": "Harmony has no templates of containers",
    "Network.NetworkDeleteOnStop": "it goes when no manifest wants it any more",
    "Service.RestartSec": "Harmony has pauses of its own, from 10 s to 300 s",
    "Service.TimeoutStartSec": "Harmony bounds a pull by itself",
    "Service.Type": "a Container is no unit",
}
_NAMING: Final = {"volume": "VolumeName", "network": "NetworkName", "pod": "PodName"}
_BESIDE: Final = {
    "DisableDNS": "disable-dns",
    "Driver": "driver",
    "Gateway": "gateway",
    "Internal": "internal",
    "Label": "label",
    "Subnet": "subnet",
}
"""Keys of [Network] and [Volume] whose values are those of an option of podman's."""
_ORDER: Final = frozenset({"After", "Requires", "BindsTo", "Wants", "Requisite"})
_RESTART: Final = {
    **dict.fromkeys(("always", "on-success"), "always"),
    **dict.fromkeys(("on-failure", "on-abnormal", "on-abort", "on-watchdog"), "on-failure"),
    "no": "no",
}


def entries(text: str) -> Iterator[Entry]:
    """The lines of a unit file; what a backslash joins is one."""
    section = ""
    kept = "\n".join(line for line in text.splitlines() if not re.match(r"\s*[#;]", line))
    for line in re.sub(r"\\\n", " ", kept).splitlines():
        head = re.fullmatch(r"\s*\[([^\]]*)\]\s*", line)
        if head:
            section = head[1]
        elif line.strip():
            key, _, value = line.partition("=")
            yield section, key.strip(), value.strip()


def names(files: Mapping[str, str]) -> dict[str, str]:
    """Names on the device of what volumes, networks and pods are called here. A pod is a network."""
    known: dict[str, str] = {}
    for file, text in files.items():
        stem, _, suffix = file.rpartition(".")
        if suffix in _NAMING:
            given = (one for _, key, one in entries(text) if key == _NAMING[suffix])
            known[file] = next(given, f"systemd-{stem}")
    return known


def beside(files: Mapping[str, str], place: Place) -> list[Resource]:
    """The Networks and Volumes of the files."""
    found = []
    for file, text in files.items():
        suffix = file.rpartition(".")[2]
        if suffix in _NAMING and not (suffix == "pod" and _pod_networks(text)):
            kind = "Volume" if suffix == "volume" else "Network"
            made = Resource(kind, place.names[file])
            for section, key, value in entries(text) if suffix != "pod" else ():
                if key == _NAMING[suffix]:
                    continue
                option = OF_SURROUNDINGS[suffix].get(_BESIDE.get(key, ""))
                why = WHY.get(f"{section}.{key}", "")
                for one in _split(value) if key == "Label" else [value]:
                    take(made, place, f"[{section}] {key}", option, one, why=why)
            if suffix == "pod":
                made.note(file, "it is the pod's: in a pod they found each other at localhost")
            found.append(made)
    return found


def _pod_networks(text: str) -> list[str]:
    return [one for section, key, one in entries(text) if (section, key) == ("Pod", "Network")]


def _pod(made: Resource, place: Place, files: Mapping[str, str], pod: str) -> None:
    """What a pod has, for one container in it."""
    text = files[pod]
    members = [one for one in files.values() if ("Container", "Pod", pod) in set(entries(one))]
    alone = len(members) == 1
    if not _pod_networks(text):
        join(made, place.names[pod])
    for section, key, value in entries(text):
        shown, option = f"{pod}, [{section}] {key}", KEYS.get(key, "")
        if key == "PodName":
            continue
        if key == "PublishPort" and not alone:
            made.note(f"{shown} {value}", "give it to the container that listens there, as ports")
            continue
        handler = OPTIONS.get(option) if section == "Pod" else None
        for one in _split(value) if key in SEVERAL else [value]:
            take(made, place, shown, handler, one, why=WHY.get(f"{section}.{key}", ""))


def read(
    file: str, files: Mapping[str, str], place: Place, containers: Mapping[str, str]
) -> Resource:
    """The container of a `.container` file. `containers` are names of containers by their units."""
    text = files[file]
    made = Resource("Container", containers[file])
    place = replace(place, docker=False)
    restarted = False
    for section, key, value in entries(text):
        shown = f"[{section}] {key}"
        if (section, key) == ("Container", "Pod") and value in place.names:
            _pod(made, place, files, value)
        elif section == "Container":
            _container(made, place, shown, key, value)
        elif section == "Unit" and key in _ORDER:
            for unit in value.split():
                _after(made, f"{shown} {unit}", unit, containers)
        elif section == "Service" and key == "Restart":
            restarted = True
            policy = _RESTART.get(value)
            take(made, place, shown, OPTIONS["restart"], policy or value)
            if value not in ("always", "on-failure", "no") and policy:
                made.note(f"{shown}={value}", f"it became {policy}")
        else:
            take(made, place, shown, None, value, why=WHY.get(f"{section}.{key}", ""))
    if not restarted:
        made.note("[Service] Restart", DEFAULT_RESTART)
    attached(made)
    if made.fields.get("user", "").endswith(":"):
        made.fields["user"] = made.fields["user"].rstrip(":")
    return made


def _container(made: Resource, place: Place, shown: str, key: str, value: str) -> None:
    if key == "ContainerName":
        return
    if key in _OWN:
        take(made, place, shown, _OWN[key], value)
        return
    option = KEYS.get(key, "")
    for one in _split(value) if key in SEVERAL else [value]:
        why = NOT_YET.get(option, WHY.get(f"Container.{key}", ""))
        take(made, place, shown, OPTIONS.get(option), one, why=why)


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return [value]


def _after(made: Resource, shown: str, unit: str, containers: Mapping[str, str]) -> None:
    if unit not in containers:
        made.note(shown, "it isn't among the files: Harmony waits for resources of this manifest")
    elif f"Container/{containers[unit]}" not in made.fields.get("after", ()):
        made.add("after", f"Container/{containers[unit]}")


def _user(resource: Resource, place: Place, text: str) -> None:
    del place
    _, colon, group = resource.fields.get("user", "").partition(":")
    resource.set("user", f"{text}{colon}{group}")


def _group(resource: Resource, place: Place, text: str) -> None:
    del place
    user = resource.fields.get("user", "").partition(":")[0]
    if not text:
        raise NotTakenError("it is empty")
    resource.set("user", f"{user or '0'}:{text}")


def _exec(resource: Resource, place: Place, text: str) -> None:
    del place
    resource.set("args", words(text))


def _privileges(resource: Resource, place: Place, text: str) -> None:
    OPTIONS["security-opt"](resource, place, f"no-new-privileges:{text}")


def _guard(name: str) -> Handler:
    return lambda resource, place, text: OPTIONS["security-opt"](
        resource, place, f"{name}{':' if '=' in name else '='}{text}"
    )


def _label_off(resource: Resource, place: Place, text: str) -> None:
    if not truth(text):
        raise NotTakenError("it is off by default")
    OPTIONS["security-opt"](resource, place, "label=disable")


_OWN: Final[Mapping[str, Handler]] = {
    "AppArmor": _guard("apparmor"),
    "Mask": _guard("mask"),
    "SeccompProfile": _guard("seccomp"),
    "SecurityLabelDisable": _label_off,
    "SecurityLabelType": _guard("label=type"),
    "SecurityLabelLevel": _guard("label=level"),
    "Unmask": _guard("unmask"),
    "Exec": _exec,
    "Group": _group,
    "NoNewPrivileges": _privileges,
    "PodmanArgs": podman_args,
    "User": _user,
}
"""Keys that have a form of their own."""


def unit_names(files: Mapping[str, str]) -> dict[str, str]:
    """Names of the containers, by their files and by the units that systemd makes of them."""
    found: dict[str, str] = {}
    for file, text in files.items():
        stem, _, suffix = file.rpartition(".")
        if suffix == "container":
            given = (value for _, key, value in entries(text) if key == "ContainerName")
            found[file] = found[f"{stem}.service"] = next(given, f"systemd-{stem}")
    return found
