"""A disposable Debian device: boots, runs commands, gives up its files and journal, reboots, loses
its power.

Must not import pytest: the demonstration boots the same devices. See lab.py for how one is made.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.device.agent import Agent
from tests.device.claims import Claim, Run
from tests.device.disk import Disk
from tests.device.files import Files
from tests.device.network import Link
from tests.device.nspawn import REBOOT, Nspawn
from tests.device.prepare import USER
from tests.device.tools import HarnessError, call


class Device(Files):
    """One device. Everything but boot() and the reading of files and journal needs it to be
    running.
    """

    def __init__(
        self,
        run: Run,
        root: Path,
        *,
        name: str,
        suite: str,
        hostname: str,
        link: Link | None,
        console: Path,
        claims: Sequence[Claim],
        disk: Disk | None = None,
    ) -> None:
        self._run, self._link, self._disk = run, link, disk
        self.suite, self.hostname = suite, hostname
        nspawn = Nspawn(
            run, root, name, hostname=hostname, netns=link.netns if link else None, console=console
        )
        self._claims = [*claims, nspawn.claim]
        if disk is not None:
            disk.mount()
        super().__init__(name, root, nspawn)

    def know_hosts(self, names: Mapping[str, str]) -> None:
        """Write /etc/hosts: the device itself, and `names` with their addresses."""
        lines = [
            "127.0.0.1 localhost",
            f"127.0.1.1 {self.hostname}",
            *(f"{at} {name}" for name, at in names.items()),
        ]
        (self.root / "etc/hosts").write_text("\n".join([*lines, ""]), encoding="ascii")

    # -- power
    # ---------------------------------------------------------------------------------------------------

    def boot(self, timeout: float = 60) -> "Device":
        """Boot, and return when multi-user.target and fleet-agent's own manager, where it has one,
        are up.
        """
        self._nspawn.start(timeout)
        self.know_users()
        if not (self.root / f"var/lib/systemd/linger/{USER}").exists():
            return self
        bus = Path(f"/proc/{self._nspawn.leader}/root/run/user/{self.uid(USER)}/bus")
        deadline = time.monotonic() + timeout
        while not bus.exists():
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"cannot reach the manager of {USER} on {self.name}: {self._nspawn.last_words()}"
                )
            time.sleep(0.01)
        self.run(["systemctl", "--user", "is-system-running", "--wait"], user=USER, check=False)
        return self

    @property
    def link(self) -> Link:
        """Its link to the lan, to cut and to heal."""
        if self._link is None:
            raise HarnessError(f"cannot use the link of {self.name}: it was made without a lan")
        return self._link

    def boot_id(self) -> str:
        """The kernel's random id of this boot."""
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()

    def stop(self, timeout: float = 30) -> None:
        """Shut down in order. boot() starts it again."""
        code = self._nspawn.stop(timeout)
        if code != 0:
            raise HarnessError(
                f"cannot stop {self.name} in order: exit code {code}: {self._nspawn.last_words()}"
            )

    def reboot(self, timeout: float = 60) -> "Device":
        """Ask it to reboot, wait until it has shut down, and boot it again."""
        self.run(["systemctl", "reboot"], check=False)
        return self.await_reboot(timeout)

    def await_reboot(self, timeout: float = 60) -> "Device":
        """Wait until it reboots for a reason of its own, and boot it again."""
        code = self._nspawn.wait(timeout)
        if code != REBOOT:
            raise HarnessError(
                f"cannot see {self.name} reboot: it ended with {code}: {self._nspawn.last_words()}"
            )
        return self.boot(timeout)

    def kill(self) -> None:
        """End all its processes at once. Nothing that reached write(2) is lost: for that, see
        power_cut().
        """
        self._nspawn.kill()

    def power_cut(self, *, boot: bool = True) -> "Device":
        """Cut the power of a durable device: what was not synced is lost. Boots it again unless
        told not to.
        """
        if self._disk is None:
            raise HarnessError(
                f"cannot cut the power of {self.name}: only a durable device loses what was not synced"
            )
        self._nspawn.freeze()
        self._disk.fail()
        self._nspawn.kill()
        self._disk.come_back()
        return self.boot() if boot else self

    def close(self) -> None:
        """End it and remove all that was made for it. Does nothing the second time."""
        self._nspawn.kill()
        for claim in reversed(self._claims):
            self._run.free(claim)
        if self._link is not None:
            self._link.close()

    # -- agent
    # ---------------------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The agent's unit on this device; agent.install() makes it."""
        return Agent(self)

    # -- journal
    # -------------------------------------------------------------------------------------------------

    def journal(
        self, *, unit: str | None = None, user: bool = False, boot: str | None = None
    ) -> list[dict[str, Any]]:
        """The journal's entries, oldest first, with all their fields; read from the host, so also
        after a crash.

        `unit` picks a unit of the system's manager or, with `user`, of a user's own; `boot` picks a
        boot id.
        """
        if self.running:
            self.run(["journalctl", "--sync"])
        argv = [
            "journalctl",
            "--directory",
            str(self.root / "var/log/journal"),
            "--output=json",
            "--all",
            "--quiet",
        ]
        argv += journal_terms(unit, user, boot)
        return [json.loads(line) for line in call(*argv, "--no-pager").splitlines()]

    def messages(self, *, unit: str | None = None, user: bool = False) -> list[str]:
        """The journal's messages alone, oldest first."""
        return [str(entry.get("MESSAGE", "")) for entry in self.journal(unit=unit, user=user)]


def journal_terms(unit: str | None, user: bool, boot: str | None) -> list[str]:
    """journalctl's terms. Its own --user-unit would look for units of the host's user, so user
    units are spelt out.
    """
    only = [f"_BOOT_ID={boot.replace('-', '')}"] if boot else []
    if unit is None:
        return only
    if not user:
        return [*only, f"--unit={unit}"]
    return [*only, f"_SYSTEMD_USER_UNIT={unit}", "+", *only, f"USER_UNIT={unit}"]
