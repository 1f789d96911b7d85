"""``make demo``: the main job, shown on a disposable device (as root) or on the user's own manager
and podman.

Applies the example, breaks each of its resources by hand, shows the repair and how long it took,
changes it, takes it off; on a device, last, upgrades its packages and reboots it. Ends with 0 only
if all of that was seen; leaves nothing behind, also when it fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.device.tools import HarnessError
from tests.natsserver import NatsServer

if TYPE_CHECKING:
    from tests.device.upgrades import Upgrading

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "web.yaml"
DEVICE = "pi-01"
UNIT = "web-preview.service"
UPGRADE = """\
deployment: upgrade
scores:
  - {kind: SystemUpgrade, name: os, attempt_id: demo-1, run_uid: demo, expires_at: "2999-01-01T00:00:00Z"}
"""
FIRST, SECOND = (
    "This page is kept as its manifest says.",
    "This is the second generation of the page.",
)
SECONDS = 30.0


class DemoFailed(Exception):
    """Something that the demo claims was not so."""


@dataclass
class Stage:
    """Where the demo plays. `run` runs a command there as the agent's user; `leaves_out` says what
    isn't there.
    """

    run: Callable[[Sequence[str]], subprocess.CompletedProcess[str]]
    server: str
    folder: str
    port: int
    leaves_out: tuple[str, ...] = ()
    upgrading: Upgrading | None = None

    def ok(self, *argv: str) -> str:
        """Run; its output. DemoFailed where it fails."""
        done = self.run(argv)
        if done.returncode:
            raise DemoFailed(
                f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout.strip()


def main() -> int:
    """Play it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="harmony-demo-") as name:
        home = Path(name)
        place = device_stage if os.geteuid() == 0 else user_stage
        try:
            with place(home) as stage:
                play(stage, home)
        except (DemoFailed, HarnessError) as failure:
            say(f"FAILED: {failure}")
            return 1
    say(f"Done in {time.monotonic() - began:.0f} s. Nothing is left running.")
    return 0


def play(stage: Stage, home: Path) -> None:
    """The acts."""
    first = home / "web.yaml"
    first.write_text(adapted(stage))
    say("Apply the example: a file, a unit with a drop-in, a container that serves the file")
    harmony(stage, home, "apply", str(first), "--device", DEVICE, "--wait")
    harmony(stage, home, "status", "--resources")
    harmony(stage, home, "devices")
    expect(FIRST in page(stage), "the page is not served")

    say("Break each by hand, and watch it being repaired")
    repair(
        stage,
        "the file was edited",
        edit,
        lambda: FIRST in stage.run(["cat", page_path(stage)]).stdout,
    )
    repair(stage, "the unit was stopped", stop, lambda: active(stage))
    if "Container" not in stage.leaves_out:
        repair(stage, "the container was removed", remove, lambda: FIRST in page(stage))
    time.sleep(1.5)  # statuses are written at most once a second
    harmony(stage, home, "status", "--resources")

    say("Apply generation 2: only the file differs")
    first.write_text(adapted(stage).replace(FIRST, SECOND))
    harmony(stage, home, "apply", str(first), "--device", DEVICE, "--wait")
    expect(SECOND in page(stage), "the second generation is not served")

    say("Take the deployment off")
    harmony(stage, home, "delete", "web", "--device", DEVICE, "--wait")
    nothing_left(stage)
    if stage.upgrading is not None:
        upgrade(stage, stage.upgrading, home)


def upgrade(stage: Stage, site: Upgrading, home: Path) -> None:
    """The last act: packages and a reboot, by the root updater."""
    from tests.device.aptrepo import Package

    say("Upgrade the system: the root updater, a signed repository, a reboot")
    device = site.device
    site.has(Package("harmony-sample", "1.0"))
    site.offers(Package("harmony-sample", "2.0"))
    print(
        f"  harmony-sample {site.version('harmony-sample')} is installed, 2.0 is offered",
        flush=True,
    )
    boot = device.boot_id()
    manifest = home / "upgrade.yaml"
    manifest.write_text(UPGRADE)
    with ThreadPoolExecutor(1) as beside:
        applied = beside.submit(
            harmony, stage, home, "apply", str(manifest), "--device", DEVICE, "--wait"
        )
        site.reboots(seconds=SECONDS)
        applied.result(timeout=60)
    expect(site.version("harmony-sample") == "2.0", "the package was not upgraded")
    expect(device.boot_id() != boot, "the device did not reboot")
    harmony(stage, home, "status", "upgrade", "--resources")
    print(
        f"  harmony-sample {site.version('harmony-sample')} is installed; boot id {boot[:8]} -> {device.boot_id()[:8]}"
    )


def adapted(stage: Stage) -> str:
    """The example for this stage: its folder, its port, without what isn't there."""
    text = EXAMPLE.read_text().replace("/srv/web", stage.folder)
    text = text.replace("host_port: 8080", f"host_port: {stage.port}")
    if "Container" in stage.leaves_out:
        text = text[: text.index("  - kind: Container")]
    return text


# -- what is done by hand


def edit(stage: Stage) -> None:
    """As an editor would, in place."""
    stage.ok("sh", "-c", f"echo defaced > {page_path(stage)}")


def stop(stage: Stage) -> None:
    """As an administrator would."""
    stage.ok("systemctl", "--user", "stop", UNIT)


def remove(stage: Stage) -> None:
    """As an administrator would."""
    stage.ok("podman", "rm", "--force", "--time=0", "web")


def repair(
    stage: Stage, what: str, damage: Callable[[Stage], None], whole: Callable[[], bool]
) -> None:
    """Damage, and time how long it takes until it is whole again."""
    damage(stage)
    began = time.monotonic()
    until(whole, f"{what} and not repaired")
    print(f"  {what}: repaired after {time.monotonic() - began:.2f} s", flush=True)


def until(condition: Callable[[], bool], failure: str) -> None:
    """Wait for it, boundedly."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise DemoFailed(f"{failure} within {SECONDS:.0f} s")
        time.sleep(0.02)


# -- what is looked at


def page_path(stage: Stage) -> str:
    """The file."""
    return f"{stage.folder}/index.html"


def page(stage: Stage) -> str:
    """The page as it is served: by the container, or where there is none from the file itself."""
    if "Container" in stage.leaves_out:
        return stage.run(["cat", page_path(stage)]).stdout
    script = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{stage.port}/', timeout=2).read().decode())"
    return stage.run(["python3", "-c", script]).stdout


def active(stage: Stage) -> bool:
    """Whether the unit runs."""
    return stage.run(["systemctl", "--user", "is-active", UNIT]).stdout.strip() == "active"


def nothing_left(stage: Stage) -> None:
    """The file, the unit and the container are gone."""
    expect(stage.run(["test", "-e", page_path(stage)]).returncode != 0, "the file is left")
    units = stage.run(["systemctl", "--user", "list-unit-files", "--no-legend", UNIT]).stdout
    expect(UNIT not in units and not active(stage), "the unit is left")
    if "Container" not in stage.leaves_out:
        expect(
            not stage.ok("podman", "ps", "--all", "--quiet", "--filter", "name=^web$"),
            "the container is left",
        )
    print("  no file, no unit, no container is left")


def expect(condition: bool, failure: str) -> None:
    """DemoFailed where it isn't so."""
    if not condition:
        raise DemoFailed(failure)


def harmony(stage: Stage, home: Path, *argv: str) -> None:
    """The operator's command, as an operator would type it."""
    print(f"$ harmony {' '.join(argv).replace(str(home) + '/', '')}", flush=True)
    environ = {**os.environ, "HARMONY_SERVER": stage.server, "HARMONY_HOME": str(home / "operator")}
    done = subprocess.run(
        [Path(sys.executable).parent / "harmony", *argv], env=environ, check=False
    )
    print(flush=True)
    expect(done.returncode == 0, f"harmony {argv[0]} ended with {done.returncode}")


def say(text: str) -> None:
    """A heading."""
    print(f"\n== {text}", flush=True)


# -- stages


@contextlib.contextmanager
def device_stage(home: Path) -> Iterator[Stage]:
    """A disposable Debian 12 with the agent installed as fleet-agent, and a nats-server on its
    network.
    """
    from tests.device.lab import Lab, missing
    from tests.device.prepare import USER
    from tests.device.upgrades import Upgrading

    if lacks := missing():
        raise DemoFailed("; ".join(lacks))
    say(
        "Set up: a disposable Debian 12 device (the first time, its image is built: a minute or two)"
    )
    with Lab() as lab:
        lan = lab.lan()
        device = lab.device("bookworm", lan)
        device.systemctl("enable", "--now", "podman.socket", user=True)
        upgrading = Upgrading(device, home / "apt")
        config = {
            "agent": {
                "device_id": DEVICE,
                "kinds": ["File", "SystemdUnit", "Container", "SystemUpgrade"],
            },
            "nats": {"servers": [lan.nats.url]},
            "labels": {"site": "demo"},
        }
        device.agent.install(config, service_type="notify")
        print(
            "  booted; agent (as the user fleet-agent) and updater run; nats-server runs on the device's network"
        )

        def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
            done = device.run(list(argv), user=USER, check=False)
            return subprocess.CompletedProcess(argv, done.rc, done.stdout, done.stderr)

        yield Stage(run, lan.nats.host_url, "/srv/web", 8080, upgrading=upgrading)


@contextlib.contextmanager
def user_stage(home: Path) -> Iterator[Stage]:
    """This user's own manager and podman, as far as they are there."""
    say("Set up: your own user manager (root would get a disposable device)")
    if subprocess.run(
        ["systemctl", "--user", "show-environment"], capture_output=True, check=False
    ).returncode:
        raise DemoFailed("no user manager answers: log in with a session, or run the demo as root")
    leaves_out = () if _podman_ready() else ("Container",)
    if leaves_out:
        print(
            "  podman's socket isn't there, so the container is left out: systemctl --user start podman.socket"
        )
    folder = home / "srv"
    folder.mkdir()
    with NatsServer(home / "nats") as server, _agent(home, folder, server.url, leaves_out):

        def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(argv, capture_output=True, text=True, check=False)

        yield Stage(run, server.url, f"{folder}/web", 18080, leaves_out)


def _podman_ready() -> bool:
    if shutil.which("podman") is None:
        return False
    subprocess.run(
        ["systemctl", "--user", "start", "podman.socket"], capture_output=True, check=False
    )
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    if not Path(runtime, "podman", "podman.sock").exists():
        return False
    return (
        subprocess.run(["podman", "image", "exists", "localhost/busybox"], check=False).returncode
        == 0
    )


@contextlib.contextmanager
def _agent(home: Path, folder: Path, server: str, leaves_out: tuple[str, ...]) -> Iterator[None]:
    kinds = [kind for kind in ("File", "SystemdUnit", "Container") if kind not in leaves_out]
    config = home / "agent.toml"
    lines = [
        "[agent]",
        f'device_id = "{DEVICE}"',
        f'state_dir = "{home}/state"',
        f"kinds = {kinds}",
    ]
    lines += ["[nats]", f'servers = ["{server}"]', "[files]", f'roots = ["{folder}"]']
    config.write_text("\n".join(lines).replace("'", '"'))
    agent = subprocess.Popen(
        [Path(sys.executable).parent / "harmony-agent", "run", "--config", config]
    )
    try:
        yield
    finally:
        agent.terminate()
        agent.wait(timeout=10)


if __name__ == "__main__":
    sys.exit(main())
