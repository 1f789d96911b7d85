"""Container: its secrets, as variables and as files in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harmony_agent.topology.secret_files import SecretFiles
from harmony_agent.topology.secrets import Secrets, text
from scores.container import Container
from scores.secrets import Secret


class ContainerSecrets:
    """What a container is handed of the device's secrets."""

    def __init__(self, secrets: Secrets, files: SecretFiles) -> None:
        self._secrets, self._files = secrets, files

    def filled(self, spec: Container) -> Container:
        """The same with the values of its variables. Raises Transient ``SecretMissing``,
        ``SecretUnfit``. It goes to podman and nowhere else.
        """
        if not spec.secrets_inside():
            return spec
        inits = [
            one.model_copy(update={"env": self._values(one.env)}) for one in spec.init_containers
        ]
        update: dict[str, Any] = {"env": self._values(spec.env)}
        return spec.model_copy(update=update | ({"init_containers": inits} if inits else {}))

    def hidden(self, spec: Container) -> frozenset[str]:
        """The values of its files, which no message may repeat. Raises Transient."""
        values = (self._secrets.value(one.secret) for one in spec.secrets)
        return frozenset(value.decode("utf-8", "replace") for value in values)

    def provide(self, spec: Container) -> None:
        """Have its files there, as they are now. Raises Transient."""
        for one in spec.secrets:
            value = self._secrets.value(one.secret)
            self._files.put(spec.name, self._file(one.place), value, int(one.mode, 8))

    def mounts(self, spec: Container) -> dict[str, Any]:
        """Podman's input for them."""
        found = [
            {
                "type": "bind",
                "source": self._files.path(spec.name, self._file(one.place)),
                "destination": one.place,
                "options": ["bind", "ro", "nosuid", "nodev", "noexec"],
            }
            for one in spec.secrets
        ]
        return {"mounts": found} if found else {}

    def retain(self, wanted: Mapping[str, Container | None]) -> None:
        """Remove the files of containers that are no more; None keeps all of one."""
        self._files.retain(
            {
                name: None if spec is None else [self._file(one.place) for one in spec.secrets]
                for name, spec in wanted.items()
            }
        )

    def _values(self, env: Mapping[str, str | Secret]) -> dict[str, str]:
        return {name: text(value, self._secrets) for name, value in env.items()}

    def _file(self, place: str) -> str:
        """A name for each path in the container."""
        return place.strip("/").replace("%", "%25").replace("/", "%2F")
