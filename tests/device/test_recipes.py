"""The recipes of docs/recipes.md on a device with the system profile: what a container machine can
do is in effect, and gone after.
"""

from __future__ import annotations

import pytest

from scores import Manifest
from scores.manifest import validate
from tests import guide
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.packages import AGENT, built, fresh

STAND_IN = """#!/usr/bin/python3
from http.server import BaseHTTPRequestHandler, HTTPServer
class Metrics(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open("/proc/meminfo", "rb").read())
HTTPServer(("127.0.0.1", 9100), Metrics).serve_forever()
"""
REAL_KERNEL = {
    *("SystemdUnit/systemd-modules-load.service", "SystemdUnit/systemd-udev-trigger.service"),
    "SystemdUnit/lan-connection.service",
}
"""What only a real kernel, or a device with NetworkManager, can start."""


@pytest.mark.parametrize("suite", SUITES)
def test_they_are_applied_and_removed(lab: Lab, suite: str) -> None:
    settings, recipes = guide.recipes()
    scores = [
        score
        for each in recipes.values()
        for score in each
        if f"{score['kind']}/{score['name']}" not in REAL_KERNEL
    ]
    manifest = validate(Manifest, {"deployment": "recipes", "scores": scores})
    with fresh(lab, suite) as site:
        agent, _, system = built(lab, suite, "0.1.1", "harmony-agent-system")
        site.install(agent, system)
        site.configure(
            **{
                "agent": {"device_id": "pi-01", "kinds": ["File", "SystemdUnit"]},
                "systemd": settings.systemd.model_dump(mode="json"),
                "files": settings.files.model_dump(mode="json"),
                "accounts": settings.accounts.model_dump(mode="json"),
            }
        )
        device = site.device
        said = device.run(["harmony-agent", "check"], check=False).stdout
        assert "no user kiosk: make it with useradd --system kiosk" in said
        device.run(["useradd", "--system", "kiosk"])
        device.run(["mkdir", "-p", "/etc/NetworkManager/system-connections"])
        device.run(["mkdir", "-p", "/etc/modules-load.d", "/etc/udev/rules.d", "/etc/modprobe.d"])
        device.write("/usr/bin/prometheus-node-exporter", STAND_IN, mode=0o755)
        device.systemctl("daemon-reload")
        device.systemctl("start", AGENT)
        site.converge(*manifest.scores, deployment="recipes", timeout=90)

        assert device.read_text("/proc/sys/net/ipv4/ip_forward") == "1\n"
        assert device.stat("/run/kiosk").owner == "kiosk"
        pid = device.systemctl("show", "--property=MainPID", "--value", "kiosk.service").stdout
        user = device.run(["stat", "--format=%U", f"/proc/{pid.strip()}"]).stdout
        assert user == "kiosk\n"
        lan = device.stat("/etc/NetworkManager/system-connections/lan.nmconnection")
        assert (lan.owner, lan.mode) == ("root", 0o600)
        site.remove("recipes")
        paths = [score["path"] for score in scores if score["kind"] == "File"]
        paths += [f"/etc/systemd/system/{name}.service" for name in ("kiosk", "host-metrics")]
        assert [path for path in paths if device.exists(path)] == []
        assert device.systemctl("is-active", "kiosk.service", check=False).stdout == "inactive\n"
