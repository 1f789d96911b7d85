"""Options of a container, by the long names of `podman run`, and the field that each becomes.

Compose keys and quadlet keys are other names of the same options. So a new field of Container is one
line of `OPTIONS`, and its line of `NOT_YET` goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from harmony_fleet.importing import attachments, rights
from harmony_fleet.importing.env_file import read_env_file
from harmony_fleet.importing.mounts import mount, tmpfs, volume
from harmony_fleet.importing.resource import Handler, NotTakenError, Place, Resource
from harmony_fleet.importing.values import (
    SHELL_SIGNS,
    pair,
    ports,
    seconds,
    size,
    truth,
    whole,
    words,
)


def field(name: str, read: Callable[[str], Any] = str) -> Handler:
    """A field that is one value."""
    return lambda resource, _place, text: resource.set(name, read(text))


def each(name: str, read: Callable[[str], Any] = str) -> Handler:
    """A field that is a list: one item an option."""
    return lambda resource, _place, text: resource.add(name, read(text))


def named(name: str) -> Handler:
    """A field that has names: one `NAME=value` an option."""
    return lambda resource, _place, text: resource.put(name, *pair(text))


def flag(name: str) -> Handler:
    """A field that is a switch, off by default."""

    def handle(resource: Resource, _place: Place, text: str) -> None:
        if not truth(text):
            raise NotTakenError("it is off by default")
        resource.set(name, True)

    return handle


def health(part: str, read: Callable[[str], Any]) -> Handler:
    """One part of the health check."""
    return lambda resource, _place, text: resource.put("healthcheck", part, read(text))


def _health_command(text: str) -> list[str]:
    """A command for the container's shell, as a list: its end alone says whether it is healthy."""
    plain = re.sub(r"\s*\|\|\s*(exit 1|false)\s*;?\s*$", "", text)
    if SHELL_SIGNS.search(plain):
        raise NotTakenError(
            "it needs the container's shell: write it as an argument list in healthcheck.command"
        )
    return words(plain)


def _health_cmd(resource: Resource, place: Place, text: str) -> None:
    if text.strip().lower() == "none":
        resource.set("no_healthcheck", True)
        return
    health("command", _health_command)(resource, place, text)


def _image(resource: Resource, place: Place, text: str) -> None:
    first, slash, _ = text.partition("/")
    full = bool(slash) and ("." in first or ":" in first or first == "localhost")
    if not full and place.docker:
        text = f"docker.io/{text}" if slash else f"docker.io/library/{text}"
    elif not full:
        resource.note(
            "image", "a short name is looked up as the device says: write it with its registry"
        )
    resource.set("image", text)


def _env(resource: Resource, place: Place, text: str) -> None:
    del place
    name, equals, value = text.partition("=")
    if not equals:
        raise NotTakenError("it has the value of the shell that started it: write one here")
    resource.put("env", name, value)


def _env_file(resource: Resource, place: Place, text: str) -> None:
    read_env_file(resource, place, text)


def _publish(resource: Resource, place: Place, text: str) -> None:
    del place
    for port in ports(text):
        resource.add("ports", port)


def _restart(resource: Resource, place: Place, text: str) -> None:
    del place
    policy, _, tries = text.partition(":")
    known = {
        **dict.fromkeys(("always", "unless-stopped"), "always"),
        "on-failure": "on-failure",
        **dict.fromkeys(("no", "false", "none"), "never"),
    }
    if policy not in known:
        raise NotTakenError("Harmony knows always, on-failure and never")
    resource.set("restart", known[policy])
    if tries:
        resource.set("restart_tries", whole(tries))


def _pull(resource: Resource, place: Place, text: str) -> None:
    del place
    known = {
        **dict.fromkeys(("missing", "if_not_present"), "missing"),
        **dict.fromkeys(("always", "newer"), "always"),
        "never": "never",
    }
    if text not in known:
        raise NotTakenError("Harmony knows missing, always and never")
    resource.set("pull", known[text])
    if text == "newer":
        resource.note("pull newer", "it is always: once for each new spec")


def _signal(text: str) -> str:
    word = text.strip().upper()
    if word.isdigit():
        raise NotTakenError("write the signal's name, as SIGINT")
    return word if word.startswith("SIG") else f"SIG{word}"


def _ulimit(resource: Resource, place: Place, text: str) -> None:
    del place
    name, value = pair(text)
    soft, _, hard = value.partition(":")
    resource.put("ulimits", name, {"soft": whole(soft), "hard": whole(hard or soft)})


def _host(resource: Resource, place: Place, text: str) -> None:
    del place
    name, sign, address = text.partition("=" if "=" in text else ":")
    if not sign:
        raise NotTakenError("it is no name:address")
    resource.put("extra_hosts", name, address.strip("[]"))


def _cpus(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise NotTakenError("it is no number") from None
    return int(number) if number == int(number) else number


def _group_add(resource: Resource, place: Place, text: str) -> None:
    for one in text.split(","):
        each("groups")(resource, place, one)


OPTIONS: Final[Mapping[str, Handler]] = {
    "add-host": _host,
    "annotation": named("annotations"),
    "cap-add": each("cap_add"),
    "cap-drop": each("cap_drop"),
    "cpus": field("cpus", _cpus),
    "device": rights.device,
    "device-cgroup-rule": each("device_cgroup_rules"),
    "dns": each("dns"),
    "dns-search": each("dns_search"),
    "entrypoint": field("command", words),
    "env": _env,
    "env-file": _env_file,
    "group-add": _group_add,
    "health-cmd": _health_cmd,
    "health-interval": health("interval_seconds", seconds),
    "health-retries": health("retries", whole),
    "health-start-period": health("start_period_seconds", seconds),
    "health-timeout": health("timeout_seconds", seconds),
    "hostname": field("hostname"),
    "image": _image,
    "init": flag("init"),
    "ipc": rights.of_the_device("host_ipc", "memory segments"),
    "label": named("labels"),
    "log-driver": rights.log_driver,
    "log-opt": rights.log_opt,
    "memory": field("memory", size),
    "mount": mount,
    "ip": attachments.of_the_only_one("ip"),
    "ip6": attachments.of_the_only_one("ip6"),
    "network": attachments.network,
    "network-alias": attachments.of_the_only_one("alias"),
    "no-healthcheck": flag("no_healthcheck"),
    "pid": rights.of_the_device("host_pid", "processes"),
    "pids-limit": field("pids", whole),
    "privileged": rights.privileged,
    "publish": _publish,
    "pull": _pull,
    "read-only": flag("read_only"),
    "restart": _restart,
    "restart-tries": rights.restart_tries,
    "security-opt": rights.security,
    "shm-size": field("shm_size", size),
    "stop-signal": field("stop_signal", _signal),
    "stop-timeout": field("stop_grace_seconds", lambda text: int(seconds(text))),
    "sysctl": named("sysctls"),
    "tmpfs": tmpfs,
    "tty": flag("tty"),
    "tz": field("timezone"),
    "ulimit": _ulimit,
    "user": field("user"),
    "userns": field("userns"),
    "volume": volume,
    "workdir": field("working_dir"),
}
NOT_YET: Final[Mapping[str, str]] = {
    "gpus": "name the nodes of /dev that it needs in devices",
    "secret": "give it by harmony secret set, and name it in secrets of the Container",
    "uts": "Container has no field for the device's own name",
    "detach": "it always runs in the background",
    "interactive": "nobody writes to it: it runs in the background",
    "rm": "it is taken away when no manifest wants it any more",
    "replace": "it is always replaced when its spec changes",
    "pod": "Harmony has no pods: its file, imported along with this one, brings a network in its place",
    "platform": "the device pulls what is for itself",
    "cidfile": "the agent knows the container's id",
    "sdnotify": "give it a readiness probe",
    "expose": "containers of one network reach all ports of each other",
    "link": "containers of one network reach each other by name",
    "sig-proxy": "it always runs in the background",
}
"""Options that Container has no field for, and what helps."""
