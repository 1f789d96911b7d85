"""A device that has the packages, in either profile, with a control plane and workloads that are
its enemy's.

    with enemy(lab, "bookworm", "user") as site:
        site.attack("unit", "secrets", "systemd-run", "--user", …)

Must not know what ought to come of an attack.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scores import File, Manifest, SystemdUnit
from scores.manifest import AnyScore
from scores.status import DeploymentStatus
from tests.device.control import Control
from tests.device.lab import Lab
from tests.device.life import PI, eventually
from tests.device.packages import AGENT, UPDATER, Installed, built, unjoined
from tests.device.prepare import USER

VERSION = "0.1.1"
FOLDER = "/srv/attack"
PROGRAM = f"{FOLDER}/attacks.py"
SECRET = "SUAM-a-seed-that-nobody-else-may-see"
UNITS = ("web.service", "web.timer", "box.service")
PRIVILEGED = (
    "podman",
    "run",
    "--rm",
    "--privileged",
    "--pid=host",
    "--network=host",
    "--ipc=host",
    "--uts=host",
)
"""All that a container can be given by who may start it."""


class Site(Installed):
    """The device, and the enemy's hand."""

    profile = "user"

    def settle(self) -> None:
        """Join, and let in what the enemy works with."""
        self.device.write("/etc/harmony/device.creds", f"{SECRET}\n", mode=0o640)
        self.device.run(["chgrp", "harmony-agent", "/etc/harmony/device.creds"])
        self.device.write("/etc/harmony/updater.toml", f'device_id = "{PI}"\n')
        self._attempt()
        self.device.run(["mkdir", "--parents", "/run/systemd/timesync"])
        self.device.write("/run/systemd/timesync/synchronized", "")
        self.device.write(PROGRAM, (Path(__file__).parent / "attacks.py").read_bytes())
        self.device.write(f"{FOLDER}/attack.service", "[Service]\nExecStart=/bin/true\n")
        self.device.run(["chown", "--recursive", f"{USER}:", FOLDER])
        self.start()
        self.device.systemctl("start", "harmony-updater.socket", UPDATER)
        self.converge(
            File(name="ours", path=f"{FOLDER}/of-the-agent", content="x\n"), deployment="ours"
        )

    def start(self, **files: Any) -> None:
        """Start the agent with this configuration."""
        units = [
            *UNITS,
            AGENT,
            UPDATER,
            "harmony-updater.socket",
        ]  # that it lists its own changes nothing
        self.configure(
            files={"roots": ["/srv"], **files}, systemd={"scope": self.profile, "units": units}
        )
        self.device.systemctl("restart", AGENT)

    def _attempt(self) -> None:
        """An upgrade that was tried before."""
        moment = "2026-01-01T00:00:00.000Z"
        record = {
            "version": 1,
            "attemptId": "attempt-0",
            "runUid": "run-0",
            "deviceId": PI,
            "phase": "failed",
        }
        record |= {"expiresAt": moment, "startedAt": moment, "updatedAt": moment}
        path = "/var/lib/harmony-fleet-updater/system-upgrades/attempt-0.json"
        self.device.write(path, json.dumps(record), mode=0o600)

    # -- what the enemy does as a workload

    def argv(self, place: str, groups: str, root: str = "/") -> list[str]:
        """The command line of the attacks of some groups, which leave what came of them to
        `outcome`.
        """
        return [
            "/usr/bin/python3",
            PROGRAM,
            groups,
            str(self.main_pid()),
            root,
            f"{FOLDER}/{place}.json",
        ]

    def attack(
        self, place: str, groups: str, *before: str, user: str | None = None
    ) -> dict[str, str]:
        """Run them by a command line that ends before theirs; what came of each."""
        self.device.run([*before, *self.argv(place, groups)], user=user)
        return self.outcome(place)

    def outcome(self, place: str) -> dict[str, str]:
        """What came of each attack at that place; waits for it."""
        out = f"{FOLDER}/{place}.json"
        eventually(lambda: self.device.exists(out), f"the attacks from {place} come to their end")
        found: dict[str, str] = json.loads(self.device.read(out))
        return found

    def as_workload(self, *argv: str, check: bool = True) -> str:
        """Run a command in a unit of the user's own manager; what it said."""
        run = ["systemd-run", "--user", "--pipe", "--wait", "--collect", "--quiet", *argv]
        done = self.device.run(run, user=USER, check=check)
        return done.stdout + done.stderr

    # -- what the enemy writes into the control plane

    def rejected(self, *scores: AnyScore, deployment: str = "evil") -> list[tuple[str, str]]:
        """Put these; the fields and codes by which the agent rejects them, none where it
        accepts.
        """
        generation = self.control.apply(PI, Manifest(deployment=deployment, scores=scores))

        def judged(status: DeploymentStatus) -> bool:
            of = status.generation if status.rejected is None else status.rejected.generation
            return of == generation

        status = self.control.until(PI, deployment, judged, 60)
        return (
            []
            if status.rejected is None
            else [(error.field, error.code) for error in status.rejected.errors]
        )

    def said_of(self, deployment: str, reasons: Mapping[str, str], timeout: float = 60) -> None:
        """Wait until these resources are as they are for these reasons."""

        def so(status: DeploymentStatus) -> bool:
            return {
                key: one.reason for key, one in status.resources.items() if key in reasons
            } == reasons

        self.control.until(PI, deployment, so, timeout)


def attacker(argv: list[str]) -> SystemdUnit:
    """A unit that runs the attacks once."""
    text = f"[Service]\nType=oneshot\nExecStart={' '.join(argv)}\n"
    return SystemdUnit.model_validate({"name": "web.service", "content": text})


@contextlib.contextmanager
def enemy(lab: Lab, suite: str, profile: str) -> Iterator[Site]:
    """The device, installed and joined in that profile."""
    more = ("harmony-agent-system",) if profile == "system" else ()
    with unjoined(lab, suite) as (device, lan), Control(lan.nats.host_url) as control:
        site = Site(device, control, lan)
        site.profile = profile
        site.install(*built(lab, suite, VERSION, *more))
        site.settle()
        yield site
