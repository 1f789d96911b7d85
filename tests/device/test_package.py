"""The packages on a fresh device: installed by apt, joined, upgraded by hand and by themselves,
removed, purged.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from scores import Manifest, SystemUpgrade
from tests.device.aptrepo import Repository
from tests.device.lab import Lab
from tests.device.life import PI, eventually, one_of_each
from tests.device.packages import AGENT, HOME, ROOTS, UPDATER, Installed, built, fresh
from tests.device.prepare import USER
from tests.device.upgrades import LATER

NEW = ("0.1.1", "0.1.2", "0.1.3")
THEIRS = (
    *(
        "/var/lib/dpkg",
        "/var/lib/apt",
        "/var/lib/systemd",
        "/etc/apt",
        "/usr/share/keyrings",
        "/var/lib/harmony-test",
    ),
    *(
        "/etc/passwd-",
        "/etc/group-",
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/subuid-",
        "/etc/subgid-",
        "/etc/.pwd.lock",
    ),
    *("/etc/tmpfiles.d/synchronised.conf", "/etc/systemd/system/timers.target.wants"),
)
"""Apt's, the accounts' copies, what the tests put there, and an empty folder that
deb-systemd-helper tidies away.
"""


def everything(site: Installed) -> dict[str, str]:
    """Paths with owner and mode, accounts and subordinate ids: what a purge must give back."""
    folders = ["/etc", "/usr", "/opt", "/srv", "/data", "/var/lib", "/var/spool", "/home", "/root"]
    find = ["find", *folders, "-xdev", "-printf", r"%p %y %u:%g %m\n"]
    lines = site.device.run(find, check=False).stdout.splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    for path in ("/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid"):
        found[f"{path}, sorted"] = "\n".join(sorted(site.device.read_text(path).splitlines()))
    return found


def left(site: Installed, before: dict[str, str]) -> set[str]:
    """What is otherwise than before, but for what apt and the system keep on their own account."""
    now = everything(site)
    different = {path for path in {*before, *now} if before.get(path) != now.get(path)}
    return {path for path in different if not path.startswith(THEIRS) and path != "/opt"}


@pytest.mark.timeout(600)
def test_the_life_of_a_device_with_the_packages(lab: Lab, suite: str) -> None:
    with fresh(lab, suite) as site:
        before = everything(site)
        site.install(*built(lab, suite, NEW[0]))
        nothing_runs_before_it_joins(site)
        site.join()
        site.load_image()
        the_sandbox_is_tight(site)
        a_root_that_is_not_opened_yet_is_named(site)
        every_kind_converges(site, suite, lab)
        an_upgrade_by_hand_touches_no_workload(site, suite, lab)
        removed_it_leaves_the_workloads_running(site, suite, lab)

        site.remove()
        site.apt("purge", "harmony-agent", "harmony-updater")
        assert left(site, before) == set()

        site.install(*built(lab, suite, NEW[2]))
        site.join()
        site.load_image()
        site.converge(*one_of_each())
        site.apt("purge", "harmony-agent", "harmony-updater")
        only_what_the_scores_made_is_there(site, left(site, before))


def nothing_runs_before_it_joins(site: Installed) -> None:
    for unit in (AGENT, UPDATER, "harmony-updater.socket"):
        shown = site.device.systemctl(
            "show", "--property=ActiveState,UnitFileState,Result", unit
        ).stdout.split()
        assert sorted(shown) == ["ActiveState=inactive", "Result=success", "UnitFileState=enabled"]
    assert site.device.uid(USER) >= 1000
    assert site.device.read_text("/etc/subuid") == f"{USER}:100000:65536\n"


def a_root_that_is_not_opened_yet_is_named(site: Installed) -> None:
    config = site.device.read_text("/etc/harmony/agent.toml")
    site.device.write("/etc/harmony/agent.toml", config.replace(ROOTS[1], "/var/other"))
    said = site.device.run(["harmony-agent", "check"], check=False)
    assert said.rc == 5
    assert (
        "sandbox: harmony-agent.service can't write /var/other yet: systemctl daemon-reload"
        in said.stdout
    )
    site.device.write("/etc/harmony/agent.toml", config)


def the_sandbox_is_tight(site: Installed) -> None:
    # The agent's 2.3 has 0.1 for the calls by which it undoes what a workload did to its scheduling, and 0.2 for seeing /dev.
    for unit, most in ((AGENT, 2.3), (UPDATER, 1.7)):
        said = (
            site.device.run(["systemd-analyze", "security", "--no-pager", unit])
            .stdout.strip()
            .splitlines()[-1]
        )
        assert float(said.split(": ")[1].split()[0]) <= most


def every_kind_converges(site: Installed, suite: str, lab: Lab) -> None:
    """The fourth kind upgrades the packages themselves, the updater's own too, by the updater, and
    reboots.
    """
    assert "MISSING" not in site.device.run(["harmony-agent", "check"]).stdout
    site.converge(*one_of_each())
    with tempfile.TemporaryDirectory(prefix="hp-") as folder:
        repository = Repository(Path(folder) / "apt").take(*built(lab, suite, NEW[1]))
        repository.give(site.device)
        upgrade(site)
        site.device.await_reboot(180)
        repository.close()
    status = site.control.wait(PI, "upgrade", timeout=120)
    assert status.resources["SystemUpgrade/os"].phase == "Completed"
    assert (site.agent_version(), site.updater_version()) == (NEW[1], NEW[1])
    site.control.resync(PI, timeout=60)
    site.wait(120)
    assert site.device.run(["harmony-agent", "status"]).stdout.count(" Ready ") == 3


def upgrade(site: Installed) -> None:
    site.synchronise()
    score = SystemUpgrade(name="os", attempt_id="attempt-1", run_uid="run-1", expires_at=LATER)
    site.control.apply(PI, Manifest(deployment="upgrade", scores=[score]))


def an_upgrade_by_hand_touches_no_workload(site: Installed, suite: str, lab: Lab) -> None:
    runs, pid, updater = site.runs(), site.main_pid(), site.main_pid(UPDATER)
    assert all(runs)
    site.install(*built(lab, suite, NEW[2]))
    assert site.agent_version() == NEW[2]
    now = (site.main_pid(), site.main_pid(UPDATER))
    assert 0 not in now
    assert now[0] != pid
    assert now[1] != updater
    eventually(lambda: told_version(site) == NEW[2], "the new agent tells of itself")
    site.control.resync(PI, timeout=60)
    site.wait()
    assert site.runs() == runs


def told_version(site: Installed) -> str:
    store = site.control.do(site.control.jetstream.key_value("device-info"))
    value = site.control.do(store.get(f"info.{PI}")).value
    return str(json.loads(value or b"{}").get("agent_version"))


def removed_it_leaves_the_workloads_running(site: Installed, suite: str, lab: Lab) -> None:
    runs = site.runs()
    site.apt("remove", "harmony-agent", "harmony-updater")
    assert site.runs() == runs
    assert site.device.exists("/etc/harmony/agent.toml")
    site.install(*built(lab, suite, NEW[2]))
    site.control.resync(PI, timeout=60)
    site.wait()
    assert site.runs() == runs


def only_what_the_scores_made_is_there(site: Installed, found: set[str]) -> None:
    assert site.device.read("/srv/life/page") == b"first\n"
    theirs = (
        "/srv/life",
        f"{HOME}/.config/systemd/user/web.service",
        f"{HOME}/.local/share/containers",
    )
    assert all(any(path.startswith(start) for path in found) for start in theirs)
    folders = [str(folder) for start in theirs for folder in Path(start).parents]
    assert {path for path in found if not path.startswith(theirs) and path not in folders} == set()
