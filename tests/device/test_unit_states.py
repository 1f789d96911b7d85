"""A unit in every state that systemd has, taken over and removed: as before by `is-enabled` and
files, also later.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scores import SystemdUnit
from tests.device.control import Control
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.test_systemd_unit import CONFIG, SLEEP, UNITS, Site

VENDOR = "/usr/lib/systemd/user"
ELSEWHERE = "/srv/elsewhere"
PLAIN = "[Service]\nExecStart=/bin/sleep infinity\n"
STATES: dict[str, tuple[str, list[list[str]], str]] = {
    "disabled": (f"{VENDOR}/disabled.service", [], "disabled"),
    "static": (f"{VENDOR}/static.service", [], "static"),
    "indirect": (f"{VENDOR}/indirect.service", [], "indirect"),
    "enabled": (f"{VENDOR}/enabled.service", [["enable", "enabled.service"]], "enabled"),
    "aliased": (f"{VENDOR}/aliased.service", [["enable", "aliased.service"]], "enabled"),
    "runtime": (
        f"{VENDOR}/runtime.service",
        [["enable", "--runtime", "runtime.service"]],
        "enabled-runtime",
    ),
    "both": (
        f"{VENDOR}/both.service",
        [["enable", "both.service"], ["enable", "--runtime", "both.service"]],
        "enabled",
    ),
    "wanted": (
        f"{VENDOR}/wanted.service",
        [["add-wants", "default.target", "wanted.service"]],
        "enabled",
    ),
    "masked": (f"{VENDOR}/masked.service", [["mask", "masked.service"]], "masked"),
    "enabledmasked": (
        f"{VENDOR}/enabledmasked.service",
        [["enable", "enabledmasked.service"], ["mask", "enabledmasked.service"]],
        "masked",
    ),
    "maskedruntime": (
        f"{VENDOR}/maskedruntime.service",
        [["mask", "--runtime", "maskedruntime.service"]],
        "masked-runtime",
    ),
    "linked": (f"{ELSEWHERE}/linked.service", [["link", f"{ELSEWHERE}/linked.service"]], "linked"),
    "linkedruntime": (
        f"{ELSEWHERE}/linkedruntime.service",
        [["link", "--runtime", f"{ELSEWHERE}/linkedruntime.service"]],
        "linked-runtime",
    ),
    "linkedenabled": (
        f"{ELSEWHERE}/linkedenabled.service",
        [["enable", f"{ELSEWHERE}/linkedenabled.service"]],
        "enabled",
    ),
    "own": (f"{UNITS}/own.service", [["enable", "own.service"]], "enabled"),
    "global": (f"{VENDOR}/global.service", [], "enabled"),
    "generated": ("", [], "generated"),
}
REBOOTED = {
    "enabled-runtime": "disabled",
    "masked-runtime": "disabled",
    "linked-runtime": "not-found",
}
AT_BOOT = {"enabled", "aliased", "both", "wanted", "linkedenabled", "own", "global"}
CONTENT: dict[str, str] = {
    "static": PLAIN,
    "wanted": PLAIN,
    "indirect": f"{PLAIN}[Install]\nAlso=disabled.service\n",
    "aliased": f"{SLEEP.format('aliased')}Alias=otherwise.service\n",
}
GENERATOR = """#!/bin/sh
printf '[Service]\\nExecStart=/bin/sleep infinity\\n' > "$1/generated.service"
"""


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    lan = lab.lan()
    device = lab.device(request.param, lan)
    with Control(lan.nats.host_url) as control:
        device.agent.install(CONFIG, service_type="notify")
        site = Site(device, control)
        prepare(site)
        yield site
    device.close()
    lan.close()


def prepare(site: Site) -> None:
    """Every state, as people and packages bring it about."""
    device = site.device
    device.make_folder(ELSEWHERE)
    device.make_folder("/etc/systemd/user-generators")
    device.write("/etc/systemd/user-generators/made", GENERATOR, mode=0o755)
    for name, (path, _, _) in STATES.items():
        if path:
            device.write(path, CONTENT.get(name, SLEEP.format(name)))
    site.by_hand("daemon-reload")
    for name, (_, commands, state) in STATES.items():
        for command in commands:
            site.by_hand(*command)
        if name == "global":
            device.systemctl("--global", "enable", "global.service")
        assert site.enabled(f"{name}.service") == state, name


def states(site: Site) -> dict[str, str]:
    return {name: site.enabled(f"{name}.service") or "not-found" for name in STATES}


def tree(site: Site, *, runtime: bool = True) -> list[str]:
    """Every file and link, and where it leads."""
    places = [UNITS, *(["/run/user/1000/systemd/user"] if runtime else [])]
    lines = site.device.run(
        ["find", *places, "-not", "-type", "d", "-printf", "%p %y %l\n"], check=False
    ).stdout
    return sorted(lines.splitlines())


def running(site: Site) -> set[str]:
    return {
        name
        for name in STATES
        if site.show(f"{name}.service", "ActiveState")["ActiveState"] == "active"
    }


def spec(name: str, form: str) -> SystemdUnit:
    fields: dict[str, object] = {
        "content": {"content": SLEEP.format("ours"), "enabled": True},
        "enabling": {
            "enabled": name not in ("static", "indirect", "wanted", "generated"),
            "masked": False,
        },
        "disabling": {
            "enabled": None if name == "global" else False,
            "masked": True,
            "state": "stopped",
        },
    }[form]  # type: ignore[assignment]
    if form == "enabling" and not fields["enabled"]:
        fields["enabled"] = None
    return SystemdUnit.model_validate({"name": f"{name}.service", "adopt": True, **fields})


@pytest.mark.parametrize("form", ["content", "enabling", "disabling"])
def test_every_state_is_put_back(site: Site, form: str) -> None:
    before, links, ran = states(site), tree(site), running(site)
    site.converge(*(spec(name, form) for name in STATES))
    kept = states(site)
    if form == "disabling":
        assert set(kept.values()) == {"masked"}
    else:
        assert not {"masked", "masked-runtime"} & set(kept.values())
    site.remove()
    assert (states(site), tree(site), running(site)) == (before, links, ran)


@pytest.mark.parametrize("form", ["content", "disabling"])
def test_after_a_reboot_it_is_as_if_nothing_had_been(site: Site, form: str) -> None:
    site.converge(*(spec(name, form) for name in STATES))
    site.remove()
    before, links = states(site), tree(site, runtime=False)
    site.device.reboot()
    site.ask("ping")
    assert states(site) == {name: REBOOTED.get(state, state) for name, state in before.items()}
    assert tree(site, runtime=False) == links
    assert running(site) == AT_BOOT
    for name in sorted(running(site)):
        site.by_hand("stop", f"{name}.service")


def test_what_lasts_until_the_next_boot_is_not_put_back_behind_it(site: Site) -> None:
    site.by_hand("mask", "--runtime", "maskedruntime.service")
    site.by_hand("enable", "--runtime", "runtime.service")
    site.converge(*(spec(name, "content") for name in ("maskedruntime", "runtime")))
    site.device.reboot()
    site.ask("ping")
    site.remove()
    assert (states(site)["maskedruntime"], states(site)["runtime"]) == ("disabled", "disabled")
    assert tree(site, runtime=True) == tree(site, runtime=False)


def test_what_is_enabled_for_all_users_is_named(site: Site) -> None:
    unit = SystemdUnit(name="global.service", enabled=False, state="none", adopt=True)
    reloads = site.reloads()
    site.put(unit)
    key = "SystemdUnit/global.service"
    status = site.until(lambda status: status["resources"].get(key, {}).get("phase") == "Blocked")
    found = status["resources"][key]
    assert found["reason"] == "EnabledElsewhere"
    assert "/etc/systemd/user/default.target.wants/global.service" in found["message"]
    assert site.reloads() - reloads <= 2
    site.remove()
