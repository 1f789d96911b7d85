"""A Session under the agent of the Debian package: its sandbox lets it hold sessions, and keeps them out of it."""

from __future__ import annotations

import pytest

from scores import Session
from tests.device.lab import Lab
from tests.device.life import PI, eventually
from tests.device.packages import AGENT, Installed, built, fresh
from tests.device.prepare import USER


def tmux(site: Installed, *words: str) -> str:
    """What a person says to tmux; empty where no server listens yet."""
    place = f"/run/user/{site.device.uid(USER)}/harmony-sessions/tmux.sock"
    return site.device.run(["tmux", "-S", place, *words], user=USER, check=False).stdout.strip()


def names(site: Installed) -> list[str]:
    return sorted(tmux(site, "list-sessions", "-F", "#{session_name}").split())


def pid(site: Installed) -> int:
    """Process of the worker's command; 0 while there is none."""
    return int(tmux(site, "list-panes", "-s", "-t", "=worker", "-F", "#{pane_pid}") or 0)


@pytest.mark.timeout(300)
def test_the_package_s_agent_keeps_a_session(lab: Lab, suite: str) -> None:
    worker = Session(name="worker", command=["/bin/sleep", "100000"])
    with fresh(lab, suite) as site:
        site.install(*built(lab, suite, "0.1.1"))
        site.join()
        site.configure(
            agent={"device_id": PI, "kinds": ["File", "Session"]},
            intervals={"heartbeat": 1, "relist": 600, "poll": 1},
        )
        site.device.systemctl("restart", AGENT)
        site.converge(worker)
        first = pid(site)
        ours = site.device.read_text(f"/proc/{site.main_pid()}/cgroup")
        assert site.device.read_text(f"/proc/{first}/cgroup") != ours
        group = site.device.run(["id", "--group", USER]).stdout.strip()
        assert f"Gid:\t{group}\t{group}\t{group}\t{group}\n" in site.device.read_text(
            f"/proc/{first}/status"
        )

        site.device.run(["kill", "-9", str(first)])
        eventually(lambda: pid(site) not in (0, first), "its command was run anew")
        second = pid(site)
        site.device.systemctl("restart", AGENT)
        site.converge(worker, Session(name="other", command=["/bin/sleep", "100000"]))
        assert pid(site) == second

        site.device.reboot()
        eventually(lambda: names(site) == ["other", "worker"], "both are made after the reboot")
        site.remove()
