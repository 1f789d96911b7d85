"""The system profile: what the agent can do with it, what polkit lets nobody do all the same, and
the way back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scores import File, SystemdUnit
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.life import SLEEP
from tests.device.packages import AGENT, Installed, built, fresh
from tests.device.prepare import USER

RULES = "/etc/polkit-1/rules.d/60-harmony-agent.rules"
UNITS = ["web.service", "free.service", "wild-*.service"]
CAPABILITIES = {"CapEff": 0b1011, "CapBnd": 0b1011, "CapAmb": 0b1011}  # CHOWN, DAC_OVERRIDE, FOWNER
BUS = [
    "busctl",
    "call",
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
]


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Installed]:
    with fresh(lab, request.param) as made:
        agent, _, system = built(lab, request.param, "0.1.1", "harmony-agent-system")
        said = made.install(agent, system)
        assert "NEAR TO ROOT" in said
        made.configure(
            agent={"device_id": "pi-01", "kinds": ["File", "SystemdUnit"]},
            systemd={"scope": "system", "units": UNITS},
        )
        made.device.systemctl("start", AGENT)
        made.converge(unit("web.service"), page())
        yield made


def unit(name: str) -> SystemdUnit:
    return SystemdUnit(
        name=name,
        content=SLEEP.format("a").replace("default.target", "multi-user.target"),
        enabled=True,
    )


def page() -> File:
    return File(
        name="page", path="/srv/page", content="page\n", owner="root", group="root", mode="0600"
    )


def capabilities(site: Installed) -> dict[str, int]:
    status = site.device.read_text(f"/proc/{site.main_pid()}/status")
    found = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap"))
    return {name: int(found[name], 16) for name in CAPABILITIES}


def test_it_manages_units_of_the_system_and_files_of_others(site: Installed) -> None:
    device = site.device
    assert capabilities(site) == CAPABILITIES
    site.converge(unit("free.service"), deployment="more")
    assert device.systemctl("is-active", "web.service", "free.service").stdout == "active\nactive\n"
    assert (
        device.systemctl("is-enabled", "web.service", "free.service").stdout == "enabled\nenabled\n"
    )
    for path in (
        "/srv/page",
        "/etc/systemd/system/web.service",
        "/etc/systemd/system/free.service",
    ):
        assert (device.stat(path).owner, device.stat(path).group) == ("root", "root")
    site.remove("more")
    assert device.run(["find", "/etc/systemd/system", "-name", "free.service"]).stdout == ""
    assert device.systemctl("is-active", "free.service", check=False).stdout == "inactive\n"


def test_its_capabilities_end_at_the_roots(site: Installed) -> None:
    """Root itself in the agent's view of the file system, with every capability."""
    inside = ["nsenter", f"--mount=/proc/{site.main_pid()}/ns/mnt", "--"]
    for path in (
        "/etc/harmony/a",
        "/opt/harmony/a",
        "/usr/bin/a",
        "/etc/a",
        "/var/lib/a",
        "/usr/lib/systemd/system/a",
    ):
        said = site.device.run([*inside, "touch", path], check=False)
        assert "Read-only file system" in said.stderr, path
    for path in ("/srv/a", "/etc/systemd/system/a.service"):
        site.device.run([*inside, "touch", path])
        site.device.run(["rm", path])


@pytest.mark.parametrize(
    "argv",
    [
        ["systemd-run", "--no-ask-password", "--wait", "touch", "/pwned"],
        ["systemd-run", "--no-ask-password", "--wait", "--unit=free.service", "touch", "/pwned"],
        ["systemd-run", "--no-ask-password", "--wait", "--unit=wild-1.service", "touch", "/pwned"],
        ["systemctl", "--no-ask-password", "restart", "systemd-journald.service"],
        ["systemctl", "--no-ask-password", "start", "web.service.mount"],
        ["systemctl", "--no-ask-password", "stop", AGENT],
        ["systemctl", "--no-ask-password", "start", "wild-1.service"],
        ["systemctl", "--no-ask-password", "kill", "web.service"],
        [
            "systemctl",
            "--no-ask-password",
            "set-property",
            "--runtime",
            "web.service",
            "CPUWeight=50",
        ],
        ["systemctl", "--no-ask-password", "enable", "systemd-networkd.service"],
        ["systemctl", "--no-ask-password", "reboot"],
        [*BUS, "LinkUnitFiles", "asbb", "1", "/tmp/evil.service", "true", "false"],
        [*BUS, "MaskUnitFiles", "asbb", "1", "harmony-updater.service", "true", "true"],
        [*BUS, "SetEnvironment", "as", "1", "LD_PRELOAD=/tmp/evil.so"],
    ],
    ids=lambda argv: (
        " ".join(argv)
        .replace("org.freedesktop.systemd1", "")
        .replace("--no-ask-password ", "")[:60]
    ),
)
def test_what_polkit_lets_nobody_do(site: Installed, argv: list[str]) -> None:
    done = site.device.run_unit(argv, user=USER, check=False)
    assert done.rc != 0
    said = (done.stdout + done.stderr).lower()
    assert any(word in said for word in ("denied", "authentication", "not authorized", "access")), (
        said
    )
    assert not site.device.exists("/pwned")
    rules = site.device.read_text(RULES)
    assert '["web.service", "free.service"]' in rules


def test_the_way_back_takes_everything_away(site: Installed) -> None:
    site.configure()
    site.apt("remove", "harmony-agent-system")
    site.device.systemctl("restart", AGENT)
    assert capabilities(site) == dict.fromkeys(CAPABILITIES, 0)
    assert not site.device.exists(RULES)
    site.configure(systemd={"scope": "system"})  # the configuration alone gives nothing
    site.device.systemctl("restart", AGENT)
    assert capabilities(site) == dict.fromkeys(CAPABILITIES, 0)
