"""What homes and offices do to a device, through the whole agent: offline, stopped, robbed of its
memory, out of time.

One device a suite. What one kind alone goes through is in that kind's own tests.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from nats.js.api import KeyValueConfig, StorageType

from scores import File
from scores.keys import DESIRED, HISTORY
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.life import PI, STATE, Life, by_hand, eventually, living, one_of_each, page, web
from tests.device.pods import container
from tests.device.prepare import USER
from tests.device.signals import signal_podman

STALE = 1.0 + 1.0  # intervals.poll + 1 s
BUSY = 10.0  # and what a machine takes that has much else to do; a client that isn't told is late by more


@pytest.fixture(scope="module", params=SUITES)
def life(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Life]:
    with living(lab, request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def one_of_each_runs(life: Life) -> None:
    """Each test begins with the same three, converged."""
    life.converge(*one_of_each())


# -- told to systemd and to the journal


def test_the_status_line_and_the_fields_of_the_journal(life: Life) -> None:
    eventually(lambda: life.told() == "3 of 3 resources ready", "the status line counts")
    generation = life.put(*one_of_each(), File(name="not", path="/srv/no/such/parent", content="x"))
    life.said("File/not", "Degraded", "ParentMissing")
    eventually(
        lambda: life.told() == "3 of 4 resources ready", "the status line counts what isn't ready"
    )
    (entry,) = life.logged(device=PI, deployment="life", resource="File/not", generation=generation,
                           reason="ParentMissing")  # fmt: skip
    assert entry["PRIORITY"] == "4"
    assert entry["SYSLOG_IDENTIFIER"] == "harmony-agent"
    acts = life.logged(device=PI, deployment="life", resource="Container/box")
    assert any("Container/box: Start: " in str(entry["MESSAGE"]) for entry in acts)


def test_a_flapping_resource_cannot_flood_the_journal(life: Life) -> None:
    life.converge(page(drift="report"), *one_of_each()[1:])
    began = time.monotonic()
    for number in range(60):
        life.device.write("/srv/life/page", "by hand" if number % 2 else "first\n")
        time.sleep(0.05)
    life.device.write("/srv/life/page", "page\n")
    life.wait()
    minutes = (time.monotonic() - began) / 60
    assert len(life.logged(resource="File/page", reason="DriftReported")) <= 12 + minutes


# -- the watchdog, and the stop


def test_a_stuck_agent_is_restarted_and_a_slow_resource_is_not(life: Life) -> None:
    """Known fault 15 too: podman's service hangs, and so does a file system."""
    device, agent = life.device, life.device.agent
    device.make_folder("/srv/slow")
    device.make_folder("/srv/lower", owner=USER)
    options = "lowerdir=/srv/lower,upperdir=/srv/upper,workdir=/srv/work,allow_other"
    for folder in ("/srv/upper", "/srv/work"):
        device.make_folder(folder, owner=USER)
    hang = [
        "systemd-run",
        "--quiet",
        "--unit=slow-disk",
        "fuse-overlayfs",
        "-f",
        "-o",
        options,
        "/srv/slow",
    ]
    device.run(hang)
    eventually(lambda: "/srv/slow" in device.read_text("/proc/mounts"), "the slow disk is mounted")
    slow = File(name="slow", path="/srv/slow/a", content="a")
    life.converge(*one_of_each(), slow)
    life.override(WatchdogSec="5s", TimeoutStopSec="60s")
    try:
        agent.restart()
        life.wait()
        runs = life.runs()

        # stuck: it is the process as a whole that stands still here
        old = agent.kill(signal.SIGSTOP)
        pid = agent.await_new_pid(old, timeout=60)
        life.wait()
        assert life.runs() == runs

        # slow: for longer than the watchdog allows
        signal_podman(device, signal.SIGSTOP)
        device.systemctl("kill", "--signal=SIGSTOP", "slow-disk.service")
        life.put(page("while it hangs\n"), *one_of_each()[1:], slow)
        eventually(lambda: device.read("/srv/life/page") == b"while it hangs\n", "files go on")
        device.run(["kill", "-9", life.unit("web.service", "MainPID")[0]])
        life.said("Container/box", "Unknown", "PodmanUnreachable")
        eventually(lambda: life.unit("web.service", "ActiveState") == ["active"], "units go on")
        eventually(lambda: life.beat()["relist_age_seconds"] >= 7, "the age of the relist is told")
        time.sleep(2)
        assert agent.pid == pid

        # stopped with both of them hanging
        began = time.monotonic()
        agent.stop()
        assert time.monotonic() - began < 5 + BUSY
        assert life.unit(agent.unit, "Result", "ExecMainStatus") == ["success", "0"]
        assert life.unit("web.service", "ActiveState") == ["active"]
    finally:
        signal_podman(device, signal.SIGCONT)
        device.systemctl("kill", "--signal=SIGCONT", "slow-disk.service")
        life.plain()
    life.wait()
    assert life.box() == runs[2]
    life.converge(*one_of_each())
    device.systemctl("stop", "slow-disk.service")


def test_a_stop_leaves_everything_running(life: Life) -> None:
    runs, agent = life.runs(), life.device.agent
    life.device.link.cut("half-open")
    try:
        time.sleep(0.5)
        began = time.monotonic()
        agent.stop()
        assert time.monotonic() - began < 5 + BUSY
    finally:
        life.device.link.heal()
    assert life.runs() == runs
    agent.start()
    life.control.resync(PI)
    life.wait()
    assert life.runs() == runs


# -- the control plane is away


def test_all_is_mended_while_the_network_is_cut_and_told_when_it_is_back(life: Life) -> None:
    """Known faults 1 and 9: cut half open, what is broken by hand is mended, also over a reboot."""
    device = life.device
    device.link.cut("half-open")
    try:
        eventually(lambda: "NATS unreachable since 2" in life.told(), "the status line says so")
        for what, (break_it, mended) in by_hand(life).items():
            break_it()
            eventually(mended, what)
    finally:
        device.link.heal()

    # what was on its way when the link was cut may still arrive, and tells of less
    def all_of_it(status: dict[str, Any]) -> bool:
        return drifted(status) >= 1 and drifted(status, "SystemdUnit/web.service") >= 2

    status = life.until(lambda status: status["phase"] == "Converged" and all_of_it(status))[
        "resources"
    ]
    assert status["File/page"]["drift"]["fields"] == ["content"]
    assert status["File/page"]["drift"]["action"] == "repaired"
    eventually(lambda: life.told() == "3 of 3 resources ready", "the status line says so")

    device.link.cut(
        "half-open"
    )  # pasta can start no container while the carrier is gone and the route is not
    try:
        before = life.box()
        device.reboot()
        eventually(lambda: life.box()[2], "the container is up without NATS")
        eventually(lambda: life.unit("web.service", "ActiveState") == ["active"], "the unit, too")
        assert life.box()[0] == before[0]
        device.write("/srv/life/page", "by hand")
        eventually(lambda: device.read("/srv/life/page") == b"first\n", "and drift is repaired")
    finally:
        device.link.heal()
    life.until(lambda status: status["phase"] == "Converged" and drifted(status) == 1)


def drifted(status: dict[str, Any], key: str = "File/page") -> int:
    """How often a resource's drift was repaired."""
    drift = status["resources"][key]["drift"]
    return int(drift["count"]) if drift else 0


def test_a_restarted_server_and_a_recreated_bucket_are_followed_in_time(life: Life) -> None:
    """Known faults 2 and 3."""
    runs = life.runs()
    with life.control.away():
        life.lan.nats.restart()
    life.put(page("after the restart\n"), *one_of_each()[1:])
    took = eventually(
        lambda: life.device.read("/srv/life/page") == b"after the restart\n", "it is followed"
    )
    assert took < STALE + BUSY
    life.wait()

    life.control.do(life.control.jetstream.delete_key_value(DESIRED))
    eventually(lambda: "bucket desired-state is missing" in life.told(), "the status line says so")
    config = KeyValueConfig(
        bucket=DESIRED, history=HISTORY.get(DESIRED, 1), storage=StorageType.FILE
    )
    life.control.do(life.control.jetstream.create_key_value(config))
    life.until(
        lambda status: (status["phase"], status["reason"]) == ("Held", "DesiredStateMissing")
    )
    assert life.device.read("/srv/life/page") == b"after the restart\n"
    life.put(page("in the new bucket\n"), *one_of_each()[1:])
    took = eventually(
        lambda: life.device.read("/srv/life/page") == b"in the new bucket\n", "it is followed"
    )
    assert took < STALE + BUSY
    life.wait()
    assert life.runs() == runs


# -- its memory


def test_the_state_directory_is_removed_while_it_runs(life: Life) -> None:
    """Known fault 10: first where the agent can't make it again, for its parent is root's."""
    device, runs = life.device, life.runs()
    device.remove(STATE)
    status = life.until(lambda status: status["reason"] == "LedgerLost")
    assert status["phase"] == "Degraded"
    assert life.logged(reason="LedgerLost")
    eventually(
        lambda: life.told().endswith("the state directory is gone"), "the status line says so"
    )
    device.write("/srv/life/page", "by hand")
    eventually(lambda: device.read("/srv/life/page") == b"first\n", "drift is repaired from memory")
    held = life.put(page("while it is gone\n"), *one_of_each()[1:])
    life.until(
        lambda status: status["reason"] == "LedgerUnwritable" and status["generation"] == held - 1
    )
    assert device.read("/srv/life/page") == b"first\n"
    assert len(life.logged(reason="LedgerLost")) <= 4
    device.make_folder(STATE, owner=USER)
    life.wait()
    assert device.read("/srv/life/page") == b"while it is gone\n"
    assert life.runs() == runs

    # then where it can: what is in it is all that goes
    device.run(["find", STATE, "-mindepth", "1", "-delete"])
    eventually(lambda: device.exists(f"{STATE}/ledger.db"), "the ledger is written anew")
    eventually(
        lambda: device.agent.command("status", check=False).rc == 0, "the agent can be asked again"
    )
    device.agent.restart()
    life.converge(*one_of_each())
    assert life.runs() == runs


def test_the_state_directory_is_removed_while_it_is_stopped(life: Life) -> None:
    """Known fault 7: "nothing is ours" is never concluded from it; what is as wanted is taken back
    as it is.
    """
    device, runs = life.device, life.runs()
    device.agent.stop()
    device.remove(STATE)
    # it can't start: the directory's parent is root's
    assert device.systemctl("start", device.agent.unit, user=True, check=False).rc != 0
    eventually(
        lambda: any(STATE in str(line) for line in device.agent.messages()[-20:]), "it is said"
    )
    device.make_folder(STATE, owner=USER)
    eventually(lambda: device.agent.active, "it comes up by itself")
    # not by the status: until this agent has written one, the old one stands
    eventually(lambda: life.told() == "3 of 3 resources ready", "it has taken all back", 90)
    assert life.runs() == runs
    life.converge(page("second\n"), web("second"), container("box", env={"TEXT": "second"}))
    assert device.read("/srv/life/page") == b"second\n"


def test_a_damaged_ledger_keeps_the_agent_from_starting_and_is_named(life: Life) -> None:
    device, runs = life.device, life.runs()
    device.agent.stop()
    device.run(["cp", "--preserve", f"{STATE}/ledger.db", f"{STATE}/good"])
    for damage in (
        ["truncate", "--size=5000", f"{STATE}/ledger.db"],
        ["truncate", "--size=0", f"{STATE}/ledger.db"],
        ["rm", f"{STATE}/ledger.db"],
    ):
        device.run(damage)
        assert device.systemctl("start", device.agent.unit, user=True, check=False).rc != 0
        eventually(
            lambda: any(
                f"cannot use {STATE}/ledger.db" in line for line in device.agent.messages()[-20:]
            ),
            "the damage is named",
        )
        device.agent.stop()
        assert life.runs() == runs
        device.run(["cp", "--preserve", f"{STATE}/good", f"{STATE}/ledger.db"])
    device.remove(f"{STATE}/good")
    device.agent.start()
    life.wait()
    assert life.runs() == runs


def test_a_full_disk_of_the_state_directory_is_told_and_recovers(life: Life) -> None:
    """Nothing new is begun that couldn't be remembered; what was accepted is kept up."""
    device, runs = life.device, life.runs()
    device.agent.stop()
    device.run(["mv", STATE, f"{STATE}.aside"])
    device.make_folder(STATE)
    device.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", STATE])
    try:
        device.run(["cp", "--archive", f"{STATE}.aside/.", STATE])
        device.run(["chown", f"{USER}:", STATE])
        device.run(["dd", "if=/dev/zero", f"of={STATE}/filler", "bs=4k"], check=False)
        device.agent.start()  # also with a disk that is full already
        life.control.resync(PI)
        held = life.put(page("needs room\n"), *one_of_each()[1:])
        status = life.until(lambda status: status["reason"] == "LedgerUnwritable")
        assert (status["phase"], status["generation"]) == ("Held", held - 1)
        device.write("/srv/life/page", "by hand")
        eventually(lambda: device.read("/srv/life/page") == b"first\n", "drift is repaired")
        device.remove(f"{STATE}/filler")
        life.wait()
        assert device.read("/srv/life/page") == b"needs room\n"
        assert life.runs() == runs
    finally:
        device.agent.stop()
        device.run(["cp", "--archive", f"{STATE}/.", f"{STATE}.aside"])
        device.run(["umount", STATE])
        device.run(["rmdir", STATE])
        device.run(["mv", f"{STATE}.aside", STATE])
        device.agent.start()


# -- its clock


CLOCK = """import time
real = time.time
def shifted():
    with open("/srv/clock") as file:
        return real() + float(file.read())
time.time = shifted
"""


def test_a_clock_far_off_removes_nothing_and_stops_nothing(life: Life) -> None:
    """Known fault 8: at 1970 for the whole process; then for Python's clock alone, which jumps
    under it.

    libfaketime turns the timer of sd-bus, a monotonic one, into nonsense when the clock is ahead,
    hence the other way.
    """
    device, runs = life.device, life.runs()
    library = device.run(["find", "/usr/lib", "-name", "libfaketime.so.1"]).stdout.split()[0]
    device.write("/srv/late/sitecustomize.py", CLOCK)
    years = 366 * 86_400 * 10
    try:
        life.override(
            Environment=f"LD_PRELOAD={library} FAKETIME='@1970-01-02 00:00:00' FAKETIME_DONT_FAKE_MONOTONIC=1"
        )
        device.agent.restart()
        keeps_on(life, "1970")
        device.write("/srv/clock", str(years))
        life.override(Environment="PYTHONPATH=/srv/late")
        device.agent.restart()
        for year, shift in (("2036", years), ("1970", 86_400 - time.time()), ("20", 0.0)):
            device.write("/srv/clock", str(shift))
            keeps_on(life, year)
        assert life.runs() == runs
    finally:
        life.plain()
    life.wait()
    assert life.runs() == runs


def keeps_on(life: Life, year: str) -> None:
    """A new generation is converged, drift is repaired, and what is said has the time of the
    clock.
    """
    life.control.resync(PI)
    status = life.converge(page(f"{year} {time.monotonic()}\n"), *one_of_each()[1:]).wire()
    assert status["resources"]["File/page"]["since"].startswith(year)
    content = life.device.read("/srv/life/page")
    life.device.write("/srv/life/page", "by hand")
    eventually(lambda: life.device.read("/srv/life/page") == content, "drift is repaired")
    eventually(lambda: life.beat()["oldest_unsettled_seconds"] == 0, "nothing is unsettled")
    life.wait()
