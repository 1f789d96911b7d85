"""Compose files: services become Containers, and what stands beside them Networks and Volumes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from harmony_fleet.importing.attachments import attached, join
from harmony_fleet.importing.compose_keys import options_of
from harmony_fleet.importing.env_file import filled
from harmony_fleet.importing.resource import Place, Resource, take
from harmony_fleet.importing.run_line import DEFAULT_RESTART
from harmony_fleet.importing.surroundings import of_compose

TOP: Final[Mapping[str, str]] = {
    "version": "it means nothing, to compose neither",
    "secrets": "give each by harmony secret set, and name it in secrets of the Container",
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
    """The project's name ("" where it has none), its resources, and notes of the whole."""
    services = document.get("services") if isinstance(document, Mapping) else None
    if not isinstance(services, Mapping) or not services:
        raise InvalidInput(
            "UnknownFormat",
            "cannot import this as a compose file: it has no services",
            "see --help",
        )
    project = Project(replace(place, docker=True), env)
    name = str(project.filled(document.get("name") or "", "name"))
    called = name or place.folder.resolve().name
    found = _top(project, document, called)
    found = [*_default_network(project, services, called), *found]
    default = project.place.names.get("default", "")
    containers = {
        str(key): _container_name(project, value) or str(key) for key, value in services.items()
    }
    for key, value in services.items():
        if not isinstance(value, Mapping):
            project.notes.append(f"services.{key}: it isn't of the form that compose takes")
        service = project.filled(value if isinstance(value, Mapping) else {}, f"services.{key}")
        found.append(_service(project.place, str(key), service, containers, default))
    return name, found, project.notes


def _container_name(project: Project, service: Any) -> str:
    name = service.get("container_name") if isinstance(service, Mapping) else None
    return str(project.filled(name or "", "container_name"))


def _top(project: Project, document: Mapping[str, Any], name: str) -> list[Resource]:
    """Scores of volumes and networks; their names on the device go into `project.place`, and the
    rest is noted.
    """
    names: dict[str, str] = {}
    found: list[Resource] = []
    for what in ("networks", "volumes"):
        listed = document.get(what) or {}
        if not isinstance(listed, Mapping):
            project.notes.append(f"{what}: it isn't of the form that compose takes")
            continue
        for key, value in ((str(one), listed[one]) for one in listed):
            given = project.filled(value or {}, f"{what}.{key}")
            given = given if isinstance(given, Mapping) else {}
            there = key if given.get("external") else f"{name}_{key}"
            names[key] = str(given.get("name") or there)
            made, ours = of_compose(project.place, what.removesuffix("s"), key, names[key], given)
            if ours:
                found.append(made)
            else:
                project.notes += made.notes
    known = ("services", "volumes", "networks", "name")
    for key in map(str, document):
        if key not in known:
            why = "an extension is for the file itself" if key.startswith("x-") else ""
            project.notes.append(f"{key}: {TOP.get(key) or why or 'Harmony has no field for it'}")
    project.place = replace(project.place, names=names)
    return found


def _default_network(project: Project, services: Mapping[str, Any], name: str) -> list[Resource]:
    """The network of services that name none: where there are several, they find each other in it."""
    alone = [one for one in services.values() if isinstance(one, Mapping)]
    wanted = [one for one in alone if not {"network_mode", "networks"} & set(one)]
    if len(services) < 2 or not wanted or "default" in project.place.names:
        return []
    project.place = replace(
        project.place, names={**project.place.names, "default": f"{name}_default"}
    )
    return [Resource("Network", f"{name}_default")]


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
        join(made, default)
    if containers[key] != key:
        _known_as(made, key)
    attached(made)
    return made


def _known_as(made: Resource, key: str) -> None:
    """The service's own name, by which others find it, where its container has another one."""
    networks = [
        one for one in made.fields.get("networks", ()) if one["name"] not in ("host", "none")
    ]
    for one in networks:
        one["aliases"] = list(dict.fromkeys([*one.get("aliases", ()), key]))
