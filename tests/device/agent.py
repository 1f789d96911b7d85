"""The agent on a device, as the user fleet-agent's own unit.

Must not know what the agent does: another command can stand in for it.
"""

import json
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.device.prepare import HOME, USER
from tests.device.tools import HarnessError

if TYPE_CHECKING:
    from tests.device.commands import Result
    from tests.device.machine import Device

CONFIG = "/etc/harmony/agent.toml"
UNIT = "harmony-agent.service"
COMMAND = ("/usr/local/bin/harmony-agent", "run")
UNIT_PATH = f"{HOME}/.config/systemd/user/{UNIT}"


def to_toml(config: Mapping[str, Mapping[str, Any]]) -> str:
    """A configuration's tables as TOML. Values are text, numbers, booleans and lists: TOML spells
    them as JSON.
    """
    lines: list[str] = []
    for table, entries in config.items():
        lines.append(f"[{table}]")
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items()
        ]
    return "\n".join([*lines, ""])


class Agent:
    """The agent's unit on one device."""

    def __init__(self, device: "Device", unit: str = UNIT) -> None:
        self._device, self.unit = device, unit

    def install(
        self,
        config: Mapping[str, Mapping[str, Any]] | str,
        *,
        service_type: str = "exec",
        command: Sequence[str] = COMMAND,
        service: Mapping[str, str] | None = None,
        writable: Sequence[str] = ("/var/lib/harmony-agent", "/srv"),
        start: bool = True,
    ) -> "Agent":
        """Write the configuration and the unit, enabled so that it comes up after a reboot, and
        start it.

        `config` is TOML or its tables; `service` adds to the unit's [Service]; the folders in
        `writable` are given to fleet-agent.
        """
        for folder in writable:
            self._device.make_folder(folder, owner=USER)
        self.configure(config)
        settings = {
            "Type": service_type,
            "ExecStart": shlex.join(command),
            "Restart": "always",
            "RestartSec": "200ms",
        }
        lines = [f"{key}={value}" for key, value in {**settings, **(service or {})}.items()]
        unit = [
            "[Unit]",
            "Description=Harmony device agent",
            "StartLimitIntervalSec=0",
            "[Service]",
            *lines,
        ]
        text = "\n".join([*unit, "[Install]", "WantedBy=default.target", ""])
        self._device.run(["mkdir", "--parents", UNIT_PATH.rpartition("/")[0]], user=USER)
        self._device.write(UNIT_PATH, text, owner=USER)
        self._device.systemctl("daemon-reload", user=True)
        self._device.systemctl("enable", "--quiet", self.unit, user=True)
        return self.start() if start else self

    def configure(self, config: Mapping[str, Mapping[str, Any]] | str) -> None:
        """Write the configuration alone; it takes effect at the next start."""
        text = config if isinstance(config, str) else to_toml(config)
        self._device.write(CONFIG, text, mode=0o640)
        self._device.run(["chgrp", USER, CONFIG])

    def start(self) -> "Agent":
        """Start the unit; returns when systemd says that it has started."""
        self._device.systemctl("start", self.unit, user=True)
        return self

    def stop(self) -> None:
        """Stop the unit in order."""
        self._device.systemctl("stop", self.unit, user=True)

    def restart(self) -> "Agent":
        """Stop and start the unit."""
        self._device.systemctl("restart", self.unit, user=True)
        return self

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal to the main process alone; its process id. The unit is started again by
        systemd if it dies.
        """
        pid = self.pid
        self._device.run(["kill", f"-{int(number)}", str(pid)])
        return pid

    @property
    def pid(self) -> int:
        """The main process's id as the device sees it; an error when there is none."""
        pid = self._pid()
        if pid == 0:
            raise HarnessError(f"cannot find the agent's process: {self.unit} isn't running")
        return pid

    def _pid(self) -> int:
        return int(
            self._device.systemctl(
                "show", "--property=MainPID", "--value", self.unit, user=True
            ).stdout
        )

    @property
    def active(self) -> bool:
        """Whether systemd calls the unit active."""
        return (
            self._device.systemctl("is-active", "--quiet", self.unit, user=True, check=False).rc
            == 0
        )

    def await_new_pid(self, old: int, timeout: float = 60) -> int:
        """Wait until the unit runs again with a main process other than `old`; its id."""
        deadline = time.monotonic() + timeout
        while (pid := self._pid()) in (0, old):
            if time.monotonic() > deadline:
                raise HarnessError(f"cannot see {self.unit} come up again: {self.messages()[-5:]}")
            time.sleep(0.02)
        return pid

    def messages(self) -> list[str]:
        """What the unit has written to the journal, and systemd about it, oldest first."""
        return self._device.messages(unit=self.unit, user=True)

    def command(self, *argv: str, check: bool = True, timeout: float = 60) -> "Result":
        """Run `harmony-agent ARGV…` as fleet-agent, beside the unit."""
        return self._device.run([COMMAND[0], *argv], user=USER, check=check, timeout=timeout)
