"""Three devices, of both Debians, with agent and updater as services, and an operator's `harmony`
with its own roster.

    site = FleetSite(lab)
    site("fleet", "init")
    site.change("device", "add", "pi-01", "--class", "web")

Must not know what the command does: it runs it as an operator would, as a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scores.jetstream import kv_subject
from scores.keys import DESIRED
from scores.manifest import WireManifest, decode
from tests.device.control import Control
from tests.device.lab import Lab
from tests.device.machine import Device
from tests.device.tools import HarnessError
from tests.device.upgrades import Upgrading

NAMES = ("pi-01", "pi-02", "pi-03")
_HARMONY = [
    sys.executable,
    "-c",
    "import sys; from harmony_fleet.cli import main; sys.exit(main())",
]


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class FleetSite:
    """The devices by their ids, the command, and the control plane's hand. Close it."""

    def __init__(self, lab: Lab, *, updaters: bool = False, kinds: Sequence[str] = ()) -> None:
        self.lan = lab.lan()
        self._folder = tempfile.TemporaryDirectory(prefix="hf-")
        self.folder = Path(self._folder.name)
        self.control = Control(self.lan.nats.host_url)
        self.control.__enter__()
        first, last = lab.devices(2, "bookworm", self.lan)
        self.devices = dict(zip(NAMES, (first, lab.device("trixie", self.lan), last), strict=True))
        self.upgrading: dict[str, Upgrading] = {}
        for name, device in self.devices.items():
            if updaters:
                self.upgrading[name] = Upgrading(device, self.folder / name, device_id=name)
            device.agent.install(_config(name, kinds), service_type="notify")
        self.generation = 1
        self._attendants: ThreadPoolExecutor | None = None
        self._over = threading.Event()
        self._watched: list[Future[None]] = []
        self.reboots: dict[str, int] = dict.fromkeys(NAMES, 0)

    # -- the command

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command."""
        env = {
            **os.environ,
            "HARMONY_SERVER": self.lan.nats.host_url,
            "HARMONY_HOME": str(self.folder / "home"),
        }
        pipe = subprocess.PIPE
        return subprocess.Popen([*_HARMONY, *words], stdout=pipe, stderr=pipe, text=True, env=env)

    def ended(self, process: subprocess.Popen[str], timeout: float = 180) -> Ran:
        """Wait for its end."""
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return Ran(process.returncode, out, err)

    def __call__(self, *words: str, code: int = 0, timeout: float = 180) -> Ran:
        """A command to its end, which has to be this exit code."""
        ran = self.ended(self.start(*words), timeout)
        assert ran.code == code, (words, ran.code, ran.out, ran.err)
        return ran

    def change(self, *words: str) -> Ran:
        """A mutation of the roster at its current generation."""
        ran = self("fleet", *words, "--generation", str(self.generation))
        self.generation += "nothing changed" not in ran.err
        return ran

    def findings(self) -> set[tuple[str, str, str]]:
        """What doctor names (code, place, resource). verify and plan say the same, once nothing
        moves between them.
        """
        for _ in range(5):
            told = self._found("fleet", "doctor", code=0)
            verified = self._found("fleet", "verify")
            if told == verified == self._found("fleet", "plan"):
                return told
        raise AssertionError("doctor, verify and plan never named the same")

    def _found(self, *words: str, code: int | None = None) -> set[tuple[str, str, str]]:
        ran = self.ended(self.start(*words, "-o", "json"))
        found = ran.json["findings"]
        assert ran.code == (
            (1 if found else 0) if words[1] == "verify" else ran.code if code is None else code
        ), ran.err
        places = ["/".join(filter(None, (item["device"], item["deployment"]))) for item in found]
        return {
            (item["code"], place, item["resource"] or "")
            for item, place in zip(found, places, strict=True)
        }

    def until(
        self, good: Callable[[set[tuple[str, str, str]]], bool], seconds: float = 30
    ) -> set[Any]:
        """The first findings that are good."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.findings()
            if good(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    # -- the buckets, by hand

    def wire(self, device: str, deployment: str = "web") -> WireManifest:
        """What is desired."""
        subject = kv_subject(DESIRED, f"{device}.{deployment}")
        entry = self.control.do(self.control.jetstream.get_last_msg(f"KV_{DESIRED}", subject))
        return decode(entry.data or b"", device=device, deployment=deployment)

    def put(self, wire: WireManifest) -> None:
        """Write past the roster."""
        subject = kv_subject(DESIRED, f"{wire.device}.{wire.deployment}")
        self.control.do(self.control.jetstream.publish(subject, wire.canonical()))

    def purge(self, device: str, deployment: str) -> None:
        """Take a key away past the roster."""
        subject = kv_subject(DESIRED, f"{device}.{deployment}")
        self.control.do(self.control.jetstream.purge_stream(f"KV_{DESIRED}", subject=subject))

    # -- reboots

    def attend(self) -> None:
        """Boot each device again whenever it reboots by itself, until `unattend`."""
        self._over.clear()
        self._attendants = ThreadPoolExecutor(max_workers=len(NAMES))
        self._watched = [
            self._attendants.submit(self._attend, name, device)
            for name, device in self.devices.items()
        ]

    def _attend(self, name: str, device: Device) -> None:
        while not self._over.is_set():
            if device.running:
                time.sleep(0.05)
                continue
            device.await_reboot(30)
            self.reboots[name] += 1

    def unattend(self) -> None:
        """Leave them to themselves; raises what went wrong meanwhile."""
        self._over.set()
        for watched in self._watched:
            watched.result(90)
        if self._attendants is not None:
            self._attendants.shutdown()

    def close(self) -> None:
        """End and remove everything."""
        self._over.set()
        if self._attendants is not None:
            self._attendants.shutdown()
        self.control.__exit__(None, None, None)
        for one in self.upgrading.values():
            one.close()
        for device in self.devices.values():
            try:
                device.close()
            except HarnessError:
                continue
        self.lan.close()
        self._folder.cleanup()


def _config(name: str, kinds: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {
        "agent": {
            "device_id": name,
            "kinds": list(kinds or ("File", "SystemdUnit", "SystemUpgrade")),
        },
        "nats": {"servers": ["nats://nats:4222"]},
        "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
    }
