"""Compose files: services become Containers; volumes and networks give names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from harmony_fleet.importing.compose_keys import options_of
from harmony_fleet.importing.env_file import filled
from harmony_fleet.importing.resource import Place, Resource, take
from harmony_fleet.importing.run_line import DEFAULT_RESTART

TOP: Final[Mapping[str, str]] = {
    "version": "it means nothing, to compose neither",
    "secrets": "Harmony keeps no secrets of podman: put each into a File, and bind that",
    "configs": "put each into a File, and bind that",
    "include": "it isn't followed: name that file as well",
}


@dataclass(slots=True)
class Project:
    """A compose file that is being read."""

    place: Place
    env: Mapping[str, str]
    notes: list[str] = field(default_factory=list)

    def filled(self, value: Any, where: str) -> Any:
        """Fill variables in, at any depth."""
        if isinstance(value, str):
            return filled(
                value,
                self.env,
                lambda name: self.notes.append(f"${name} in {where}: it isn't set, and is empty"),
            )
        if isinstance(value, Mapping):
            return {key: self.filled(one, f"{where}.{key}") for key, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one, where) for one in value]
        return value


def read(
    document: Any, place: Place, env: Mapping[str, str]
) -> tuple[str, list[Resource], list[str]]:
    """The project's name ("" where it has none), its containers, and notes of the whole."""
    services = document.get("services") if isinstance(document, Mapping) else None
    if not isinstance(services, Mapping) or not services:
        raise InvalidInput(
            "UnknownFormat",
            "cannot import this as a compose file: it has no services",
            "see --help",
        )
    project = Project(replace(place, docker=True), env)
    name = str(project.filled(document.get("name") or "", "name"))
    names = _top(project, document, name or place.folder.resolve().name)
    project.place = replace(project.place, names=names)
    default = _default_network(services, names)
    containers = {
        str(key): _container_name(project, value) or str(key) for key, value in services.items()
    }
    found = []
    for key, value in services.items():
        if not isinstance(value, Mapping):
            project.notes.append(f"services.{key}: it isn't of the form that compose takes")
        service = project.filled(value if isinstance(value, Mapping) else {}, f"services.{key}")
        found.append(_service(project.place, str(key), service, containers, default))
    return name, found, project.notes


def _container_name(project: Project, service: Any) -> str:
    name = service.get("container_name") if isinstance(service, Mapping) else None
    return str(project.filled(name or "", "container_name"))


def _top(project: Project, document: Mapping[str, Any], name: str) -> dict[str, str]:
    """Names that volumes and networks have on the device; the rest is noted."""
    names: dict[str, str] = {}
    for what in ("volumes", "networks"):
        listed = document.get(what) or {}
        if not isinstance(listed, Mapping):
            project.notes.append(f"{what}: it isn't of the form that compose takes")
            continue
        for name_there, value in listed.items():
            key = str(name_there)
            given = project.filled(value or {}, f"{what}.{key}")
            given = given if isinstance(given, Mapping) else {}
            outside = given.get("external")
            names[key] = str(given.get("name") or (key if outside else f"{name}_{key}"))
            odd = [one for one in given if one not in ("name", "external")]
            project.notes += [f"{what}.{key}.{one}: Harmony has no field for it" for one in odd]
            if what == "networks":
                project.notes.append(
                    f"networks.{key}: write a Network of this name, or once on the device: podman network "
                    f"create {names[key]}"
                )
            else:
                project.notes.append(
                    f"volumes.{key}: podman makes {names[key]} when a container first wants it"
                )
    if "default" not in names:
        names["default"] = f"{name}_default"
    known = ("services", "volumes", "networks", "name")
    for key in map(str, document):
        if key not in known:
            why = "an extension is for the file itself" if key.startswith("x-") else ""
            project.notes.append(f"{key}: {TOP.get(key) or why or 'Harmony has no field for it'}")
    return names


def _default_network(services: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The network of services that name none: where there are several, they find each other in it."""
    return names["default"] if len(services) > 1 else ""


def _service(
    place: Place,
    key: str,
    service: Mapping[str, Any],
    containers: Mapping[str, str],
    default: str,
) -> Resource:
    made = Resource("Container", containers[key])
    for name, value in service.items():
        for shown, handler, text, why in options_of(name, value, containers):
            take(made, place, shown, handler, text, why=why)
    if "image" not in service:
        made.set("image", f"localhost/{re.sub('[^a-z0-9._-]', '-', key.lower())}")
        made.note("image", "it has none: this name is a guess")
    if "restart" not in service:
        made.note("restart", DEFAULT_RESTART)
    if default and not {"network_mode", "networks"} & set(service):
        made.set("network", default)
        made.note(
            "network",
            f"write a Network of this name, or once on the device: podman network create {default}",
        )
    if containers[key] != key:
        made.note("container_name", f"others reach it as {containers[key]}, and no more as {key}")
    return made
