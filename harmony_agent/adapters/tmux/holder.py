"""The unit that holds the server of the sessions, so that they outlive the agent.

It is a transient unit of systemd's manager: the server is no child of the agent, and is in neither
its cgroup nor its sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

from harmony_agent.adapters.tmux.process import run

UNIT: Final = "harmony-sessions.service"
DIRECTORY: Final = "harmony-sessions"
"""Below the manager's runtime directory; systemd makes it with the unit, and removes it."""


class Holder(Protocol):
    """Keeps the server alive."""

    async def start(self, server: Sequence[str]) -> None:
        """Start the server by this argument list, unless it runs."""
        ...

    async def revive(self) -> bool:
        """Have a running server make its socket again; False where none runs."""
        ...


class SystemdHolder:
    """`Holder` by systemd. `runtime` is the manager's runtime directory."""

    def __init__(
        self, scope: Literal["user", "system"], runtime: str, env: Mapping[str, str]
    ) -> None:
        self._scope, self._env = f"--{scope}", env
        self._directory = f"{runtime}/{DIRECTORY}"

    async def start(self, server: Sequence[str]) -> None:
        """Start the transient unit."""
        settings = ("Type=exec", f"RuntimeDirectory={DIRECTORY}", "RuntimeDirectoryMode=0700")
        argv = [
            "systemd-run",
            self._scope,
            "--quiet",
            "--collect",
            f"--unit={UNIT}",
            "--description=Sessions that harmony-agent keeps",
            *(f"--property={setting}" for setting in settings),
            "--",
            *server,
        ]
        await run(argv, self._env)  # that it runs already is no harm: the socket tells

    async def revive(self) -> bool:
        """Send SIGUSR1: tmux makes its socket again. Where the unit's directory isn't there, nor
        is the unit: then no program is started, for this is asked at each relist.
        """
        if not self._is_there():
            return False
        argv = ["systemctl", self._scope, "kill", "--kill-whom=main", "--signal=USR1", UNIT]
        return (await run(argv, self._env)).code == 0

    def _is_there(self) -> bool:
        return os.path.lexists(self._directory)
