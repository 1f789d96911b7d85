"""A device that keeps one of each kind, for tests of what homes and offices do to it: its hand, and
what runs on it.

Must not know what any one test does to the device.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scores import File, Manifest, SystemdUnit
from scores.base import Score
from scores.status import DeploymentStatus
from tests.device.control import Control
from tests.device.lab import Lab, ServedLan
from tests.device.machine import Device
from tests.device.pods import container
from tests.device.prepare import HOME, USER

PI = "pi-01"
STATE = "/var/lib/harmony-agent"
UNITS = f"{HOME}/.config/systemd/user"
CONFIG: Mapping[str, Mapping[str, Any]] = {
    "agent": {"device_id": PI, "kinds": ["File", "SystemdUnit", "Container"]},
    "nats": {"servers": ["nats://nats:4222"]},
    "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
}
SLEEP = "[Unit]\nDescription={}\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=default.target\n"


def page(content: str = "page\n", **fields: Any) -> File:
    """A file."""
    return File.model_validate(
        {"name": "page", "path": "/srv/life/page", "parents": True, "content": content, **fields}
    )


def web(text: str = "web", **fields: Any) -> SystemdUnit:
    """A unit that sleeps, and that nothing but the agent starts."""
    return SystemdUnit.model_validate(
        {"name": "web.service", "content": SLEEP.format(text), **fields}
    )


def one_of_each(text: str = "first") -> tuple[Score, ...]:
    """A file, a unit and a container, all of which differ with `text`."""
    return page(f"{text}\n"), web(text), container("box", env={"TEXT": text})


@dataclass
class Life:
    """All that a test needs."""

    device: Device
    control: Control
    lan: ServedLan

    def put(self, *scores: Score, deployment: str = "life") -> int:
        """The next generation; its number."""
        return self.control.apply(PI, Manifest(deployment=deployment, scores=scores))

    def wait(self, timeout: float = 90, deployment: str = "life") -> DeploymentStatus:
        """Until the newest generation is converged."""
        return self.control.wait(PI, deployment, timeout=timeout)

    def converge(
        self, *scores: Score, deployment: str = "life", timeout: float = 90
    ) -> DeploymentStatus:
        """Put these, and wait until they are converged."""
        self.put(*scores, deployment=deployment)
        return self.wait(timeout, deployment)

    def remove(self, deployment: str = "life") -> None:
        """Take the deployment off."""
        self.control.remove(PI, deployment, timeout=90)

    def until(
        self, good: Callable[[dict[str, Any]], bool], timeout: float = 60, deployment: str = "life"
    ) -> dict[str, Any]:
        """Wait for a status that `good` says yes to."""
        return self.control.until(
            PI, deployment, lambda status: good(status.wire()), timeout
        ).wire()

    def said(self, key: str, phase: str, reason: str = "", timeout: float = 60) -> dict[str, Any]:
        """Wait until a resource is in this phase for this reason; its status."""

        def good(status: dict[str, Any]) -> bool:
            found = status["resources"].get(key, {})
            return (found.get("phase"), found.get("reason")) == (phase, reason)

        return self.until(good, timeout)["resources"][key]  # type: ignore[no-any-return]

    def are(self, **phases: str) -> dict[str, Any]:
        """Wait until resources, by their names alone, are in these phases; the status."""

        def good(status: dict[str, Any]) -> bool:
            found = {
                key.partition("/")[2]: shown["phase"] for key, shown in status["resources"].items()
            }
            return phases.items() <= found.items()

        return self.until(good)

    def resource(self, key: str) -> dict[str, Any]:
        """A resource's status as it is shown now."""
        return self.control.raw_status(PI, "life")["resources"][key]  # type: ignore[no-any-return]

    # -- what runs

    def unit(self, name: str, *names: str) -> list[str]:
        """Properties of a unit of fleet-agent's manager, in the order asked for."""
        lines = self.device.systemctl(
            "show", *(f"--property={one}" for one in names), name, user=True
        ).stdout
        found = dict(line.split("=", 1) for line in lines.splitlines())
        return [found.get(one, "") for one in names]

    def box(self, name: str = "box") -> tuple[str, str, bool]:
        """A container's id, when it was started, and whether it runs; all empty where there is
        none.
        """
        done = self.device.podman("container", "inspect", name, check=False)
        if done.rc:
            return "", "", False
        shown = json.loads(done.stdout)[0]
        return shown["Id"], shown["State"]["StartedAt"], shown["State"]["Running"]

    def runs(self) -> tuple[object, ...]:
        """What runs, so that another run of it would show."""
        return (*self.unit("web.service", "MainPID", "InvocationID"), self.box())

    def told(self) -> str:
        """What `systemctl status` says of the agent."""
        return self.unit(self.device.agent.unit, "StatusText")[0]

    def beat(self) -> dict[str, Any]:
        """The newest heartbeat."""
        store = self.control.do(self.control.jetstream.key_value("device-heartbeat"))
        value = self.control.do(store.get(f"heartbeat.{PI}")).value
        assert value is not None
        return json.loads(value)  # type: ignore[no-any-return]

    def logged(self, **fields: object) -> list[dict[str, Any]]:
        """The agent's journal entries that have these HARMONY_ fields."""
        wanted = {f"HARMONY_{name.upper()}": str(value) for name, value in fields.items()}
        entries = self.device.journal(unit=self.device.agent.unit, user=True)
        return [entry for entry in entries if wanted.items() <= entry.items()]

    # -- what is done to it

    def override(self, **service: str) -> None:
        """More settings of the agent's unit, until `plain`; takes effect at its next start."""
        lines = [f"{key}={value}" for key, value in service.items()]
        self.device.write(
            f"{UNITS}/{self.device.agent.unit}.d/test.conf", "\n".join(["[Service]", *lines, ""])
        )
        self.device.systemctl("daemon-reload", user=True)

    def plain(self) -> None:
        """Undo `override`, and restart the agent."""
        self.device.run(["rm", "--recursive", "--force", f"{UNITS}/{self.device.agent.unit}.d"])
        self.device.systemctl("daemon-reload", user=True)
        self.device.agent.restart()


def eventually(good: Callable[[], bool], what: str, timeout: float = 60) -> float:
    """Wait until `good`; the seconds that it took."""
    began = time.monotonic()
    while not good():
        assert time.monotonic() - began < timeout, f"not in {timeout:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


@contextlib.contextmanager
def living(lab: Lab, suite: str, *, durable: bool = False) -> Iterator[Life]:
    """A device, its network and the agent; all of it goes at the end."""
    with contextlib.ExitStack() as stack:
        lan = lab.lan()
        stack.callback(lan.close)
        device = lab.device(suite, lan, durable=durable)
        stack.callback(device.close)
        device.systemctl("enable", "--quiet", "--now", "podman.socket", user=True)
        control = stack.enter_context(Control(lan.nats.host_url))
        device.agent.install(CONFIG, service_type="notify", service={"WatchdogSec": "20s"})
        yield Life(device, control, lan)


def by_hand(life: Life) -> dict[str, tuple[Callable[[], object], Callable[[], bool]]]:
    """What people and accidents do to one of each, and when that is mended."""
    device, first = life.device, life.runs()
    unit_file = f"{UNITS}/web.service"
    content = device.read_text(unit_file)

    def active() -> bool:
        return life.unit("web.service", "ActiveState", "NeedDaemonReload") == ["active", "no"]

    return {
        "file edited": (
            lambda: device.write("/srv/life/page", "by hand"),
            lambda: device.read("/srv/life/page") != b"by hand",
        ),
        "unit killed": (
            lambda: device.run(["kill", "-9", life.unit("web.service", "MainPID")[0]]),
            lambda: active() and life.unit("web.service", "MainPID")[0] != first[0],
        ),
        "unit file edited": (
            lambda: device.write(unit_file, SLEEP.format("by hand"), owner=USER),
            lambda: device.read_text(unit_file) == content and active(),
        ),
        "unit masked": (
            lambda: device.systemctl(
                "mask", "--runtime", "--now", "web.service", user=True, check=False
            ),
            lambda: active() and life.unit("web.service", "UnitFileState")[0] != "masked-runtime",
        ),
        "container killed": (
            lambda: device.podman("kill", "box"),
            lambda: life.box()[2] and life.box()[1] != str(first[2][1]),  # type: ignore[index]
        ),
        "container removed": (
            lambda: device.podman("rm", "--force", "--time=0", "box"),
            lambda: life.box()[2] and life.box()[0] != str(first[2][0]),  # type: ignore[index]
        ),
    }
