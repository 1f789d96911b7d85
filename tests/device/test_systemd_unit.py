"""SystemdUnit through the whole agent, on fleet-agent's own manager: every field set, changed,
drifted and removed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from scores import File, Manifest, SystemdUnit
from scores.base import Score
from scores.canonical import canonical
from scores.keys import DESIRED
from tests.device.control import LINEAGE, Control
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.life import eventually
from tests.device.machine import Device
from tests.device.prepare import HOME, USER

PI = "pi-01"
UNITS = f"{HOME}/.config/systemd/user"
SLEEP = "[Unit]\nDescription={}\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=default.target\n"
CONFIG = {
    "agent": {"device_id": PI, "kinds": ["File", "SystemdUnit"]},
    "nats": {"servers": ["nats://nats:4222"]},
    "intervals": {"heartbeat": 2, "relist": 1, "poll": 1},
}


@dataclass
class Site:
    """A device with the agent on it, and its control plane."""

    device: Device
    control: Control
    generation: int = 0

    def put(self, *scores: Score) -> int:
        """The next generation; its number."""
        self.generation = self.control.apply(PI, Manifest(deployment="web", scores=scores))
        return self.generation

    def put_raw(self, score: dict[str, Any]) -> int:
        """The next generation, which the device is to reject; its number."""
        value = {"api": "harmony/v1", "device": PI, "deployment": "web", "lineage": LINEAGE}
        data = canonical({**value, "generation": self.generation + 1, "scores": [score]})
        self.control.do(self.control.jetstream.publish(f"$KV.{DESIRED}.{PI}.web", data))
        return self.generation + 1

    def status(self) -> dict[str, Any]:
        found = self.control.raw_status(PI, "web")
        assert isinstance(found, dict)
        return found

    def until(self, good: Callable[[dict[str, Any]], bool], seconds: float = 20) -> dict[str, Any]:
        """The first status that `good` says yes to."""
        return self.control.until(PI, "web", lambda status: good(status.wire()), seconds).wire()

    def converge(self, *scores: Score) -> dict[str, Any]:
        """Put these, and wait until they are Converged."""
        self.put(*scores)
        return self.control.wait(PI, "web").wire()

    def remove(self) -> None:
        self.control.remove(PI, "web")

    def ask(self, verb: str, payload: Any = None) -> str:
        """The answer to a command, as soon as the agent is there to give it."""
        data = b"" if payload is None else json.dumps(payload).encode()
        deadline = time.monotonic() + 20
        while True:
            try:
                request = self.control.client.request(
                    f"device-commands.{PI}.{verb}", data, timeout=5
                )
                return self.control.do(request).data.decode()
            except (NoRespondersError, NatsTimeoutError):
                assert time.monotonic() < deadline, f"no answer to {verb}"
                time.sleep(0.1)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit of fleet-agent's manager."""
        wanted = [f"--property={name}" for name in names]
        lines = self.device.systemctl("show", *wanted, "--", unit, user=True).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def run_id(self, unit: str) -> str:
        return self.show(unit, "InvocationID")["InvocationID"]

    def enabled(self, unit: str) -> str:
        return self.device.systemctl("is-enabled", unit, user=True, check=False).stdout.strip()

    def by_hand(self, *argv: str) -> None:
        self.device.systemctl(*argv, user=True)

    def reloads(self) -> int:
        """How often the manager loaded all unit files since it started."""
        said = [
            str(entry.get("MESSAGE", ""))
            for entry in self.device.journal()
            if entry.get("SYSLOG_IDENTIFIER") == "systemd" and entry.get("_UID") == "1000"
        ]
        return sum(1 for message in said if re.fullmatch(r"Reloading\.(\.\.)?", message))

    def jobs(self, unit: str) -> int:
        """How often the manager said that it started or stopped the unit."""
        return sum(
            1 for entry in self.device.journal(unit=unit, user=True) if entry.get("JOB_TYPE")
        )

    def starts(self, unit: str) -> int:
        """How often the manager said that it has started the unit."""
        entries = self.device.journal(unit=unit, user=True)
        return sum(
            1 for entry in entries if entry.get("MESSAGE_ID") == "39f53479d3a045ac8e11786248231fbf"
        )

    def wait(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "not so in time"
            time.sleep(0.05)

    def resource(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["resources"][key]
        return found


class Sites:
    """One site for many tests; a new one after a test that left something behind."""

    def __init__(self, lab: Lab, suite: str) -> None:
        self._lab, self._suite = lab, suite
        self._stack = ExitStack()
        self._site: Site | None = None

    def site(self) -> Site:
        if self._site is None:
            lan = self._lab.lan()
            self._stack.callback(lan.close)
            device = self._lab.device(self._suite, lan)
            self._stack.callback(device.close)
            control = self._stack.enter_context(Control(lan.nats.host_url))
            device.agent.install(CONFIG, service_type="notify")
            self._site = Site(device, control)
        return self._site

    def drop(self) -> None:
        self._site = None
        self._stack.close()


@pytest.fixture(scope="module", params=SUITES)
def sites(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Sites]:
    made = Sites(lab, request.param)
    yield made
    made.drop()


@pytest.fixture
def site(sites: Sites) -> Iterator[Site]:
    """Each test's deployment goes, and then the unit directory is as it was. What a failed test
    leaves isn't left to the next.
    """
    site = sites.site()
    before = files(site)
    yield site
    try:
        if site.status()["phase"] != "Removed":
            site.remove()
        assert files(site) == before
        kept = site.device.run(["find", "/var/lib/harmony-agent", "-path", "*units/*"]).stdout
        assert kept == ""
    except BaseException:
        sites.drop()
        raise


def files(site: Site) -> list[str]:
    return sorted(site.device.run(["find", UNITS, "-not", "-name", "*.wants"]).stdout.splitlines())


def web(**fields: Any) -> SystemdUnit:
    return SystemdUnit.model_validate(
        {"name": "web.service", "content": SLEEP.format("web"), **fields}
    )


def reason(key: str, phase: str, code: str) -> Callable[[dict[str, Any]], bool]:
    def so(status: dict[str, Any]) -> bool:
        found = status["resources"].get(key, {})
        return (found.get("phase"), found.get("reason")) == (phase, code)

    return so


def test_every_field_is_set_changed_and_removed(site: Site) -> None:
    status = site.converge(web(dropins={"10-a.conf": "[Service]\nNice=5\n"}, enabled=True))
    found = status["resources"]["SystemdUnit/web.service"]
    assert found["phase"] == "Ready"
    shown = site.show(
        "web.service", "MainPID", "ActiveState", "SubState", "NRestarts", "Nice", "NeedDaemonReload"
    )
    detail = found["status"]
    assert detail.pop("since").endswith("Z")
    assert detail == {
        "kind": "SystemdUnit",
        "load_state": "loaded",
        "active_state": "active",
        "sub_state": shown["SubState"],
        "unit_file_state": "enabled",
        "main_pid": int(shown["MainPID"]),
        "restarts": 0,
        "condition": True,
        "ready": True,
    }
    assert (shown["Nice"], shown["NeedDaemonReload"]) == ("5", "no")
    assert site.device.stat(f"{UNITS}/web.service").mode == 0o644
    first = site.run_id("web.service")
    site.converge(web(dropins={"10-a.conf": "[Service]\nNice=5\n"}, enabled=False))
    assert (site.enabled("web.service"), site.run_id("web.service")) == ("disabled", first)
    site.converge(
        web(dropins={"10-a.conf": "[Service]\nNice=6\n", "20-b.conf": "[Unit]\nDescription=b\n"})
    )
    assert site.show("web.service", "Nice", "Description") == {"Nice": "6", "Description": "b"}
    second = site.run_id("web.service")
    assert second != first
    site.converge(web(content=SLEEP.format("new")))
    assert site.show("web.service", "Nice", "Description") == {"Nice": "0", "Description": "new"}
    assert not site.device.exists(f"{UNITS}/web.service.d")
    site.converge(web(content=SLEEP.format("new"), state="stopped"))
    assert site.show("web.service", "ActiveState")["ActiveState"] == "inactive"
    site.converge(web(content=SLEEP.format("new"), state="none"))
    site.by_hand("start", "web.service")
    third = site.run_id("web.service")
    site.converge(web(content=SLEEP.format("new")))
    assert site.run_id("web.service") == third
    site.converge(SystemdUnit(name="web.service", masked=True, state="stopped"))
    assert site.show("web.service", "LoadState", "ActiveState") == {
        "LoadState": "masked",
        "ActiveState": "inactive",
    }
    site.remove()
    assert site.show("web.service", "LoadState")["LoadState"] == "not-found"
    assert (
        site.device.systemctl("list-units", "--all", "web.service", user=True).stdout.count(
            "web.service"
        )
        == 0
    )


def test_every_drift_is_repaired_and_told(site: Site) -> None:
    spec = web(dropins={"10-a.conf": "[Service]\nNice=5\n"}, enabled=True)
    site.converge(spec)
    before = site.show("web.service", "FragmentPath", "DropInPaths", "Nice", "Description")
    steps: list[tuple[str, Callable[[], Any]]] = [
        ("state", lambda: site.by_hand("stop", "web.service")),
        ("content", lambda: site.device.write(f"{UNITS}/web.service", SLEEP.format("edited"))),
        ("content", lambda: site.device.remove(f"{UNITS}/web.service")),
        # In one step: what the agent puts back meanwhile would keep a folder that is emptied.
        ("dropins", lambda: site.device.run(["mv", f"{UNITS}/web.service.d", f"{HOME}/gone"])),
        ("enabled", lambda: site.by_hand("disable", "web.service")),
    ]
    for count, (field, break_it) in enumerate(steps, 1):
        break_it()
        status = site.until(
            lambda status, count=count: (
                (status["resources"]["SystemdUnit/web.service"]["drift"] or {}).get("count")
                == count
                and status["phase"] == "Converged"
            )
        )
        drift = status["resources"]["SystemdUnit/web.service"]["drift"]
        assert field in drift["fields"]
        assert drift["action"] == "repaired"
        assert site.show("web.service", *before) == before, field
        assert site.show("web.service", "ActiveState", "NeedDaemonReload") == {
            "ActiveState": "active",
            "NeedDaemonReload": "no",
        }
        assert site.enabled("web.service") == "enabled"


def test_reloads_by_others_write_no_line_and_a_foreign_owner_is_named(site: Site) -> None:
    site.converge(web(enabled=True, dropins={"10-a.conf": "[Service]\nNice=5\n"}))
    agent = site.device.agent
    time.sleep(2)
    said = agent.messages()
    for _ in range(40):
        site.by_hand("daemon-reload")
    time.sleep(3)
    assert agent.messages() == said
    key = "SystemdUnit/web.service"
    for field, place in (("content", "web.service"), ("dropins", "web.service.d/10-a.conf")):
        path = f"{UNITS}/{place}"
        site.device.run(["sh", "-c", f"chown root:root {path}; chmod 0600 {path}"])
        status = site.until(
            lambda status, field=field: (
                field in (status["resources"][key]["drift"] or {}).get("fields", ())
                and status["phase"] == "Converged"
            )
        )
        assert status["resources"][key]["drift"]["action"] == "repaired"


def test_a_mask_by_hand_is_undone(site: Site) -> None:
    site.device.write(
        f"{HOME}/.local/share/systemd/user/sys.service", SLEEP.format("sys"), owner=USER
    )
    site.by_hand("daemon-reload")
    site.converge(SystemdUnit(name="sys.service"))
    site.by_hand("mask", "--now", "sys.service")
    status = site.until(
        lambda status: (
            bool(status["resources"]["SystemdUnit/sys.service"]["drift"])
            and status["phase"] == "Converged"
        )
    )
    assert "masked" in status["resources"]["SystemdUnit/sys.service"]["drift"]["fields"]
    assert site.show("sys.service", "LoadState", "ActiveState") == {
        "LoadState": "loaded",
        "ActiveState": "active",
    }
    site.remove()
    assert site.show("sys.service", "LoadState", "ActiveState") == {
        "LoadState": "loaded",
        "ActiveState": "inactive",
    }


def test_drift_is_only_told_where_that_is_wanted(site: Site) -> None:
    site.converge(web(drift="report"))
    site.by_hand("stop", "web.service")
    status = site.until(reason("SystemdUnit/web.service", "Degraded", "DriftReported"))
    assert status["resources"]["SystemdUnit/web.service"]["drift"]["fields"] == ["state"]
    assert site.show("web.service", "ActiveState")["ActiveState"] == "inactive"


def test_a_second_pass_does_nothing(site: Site) -> None:
    once = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
    specs: list[Score] = [
        web(dropins={"10-a.conf": "[Service]\nNice=5\n"}, enabled=True),
        SystemdUnit(name="once.service", content=once),
        SystemdUnit(name="tick.timer", content="[Timer]\nOnActiveSec=1h\nUnit=once.service\n"),
        SystemdUnit(name="no.service", masked=True),
        SystemdUnit(name="x@.service", content=SLEEP.format("%i")),
    ]
    site.converge(*specs)
    paths = [
        f"{UNITS}/{name}"
        for name in ("web.service", "web.service.d/10-a.conf", "no.service", "x@.service")
    ]

    def picture() -> Any:
        return (
            [site.device.stat(path) for path in paths],
            site.run_id("web.service"),
            site.run_id("tick.timer"),
            site.reloads(),
            [site.jobs(name) for name in ("web.service", "once.service", "tick.timer")],
        )

    before = picture()
    agent = site.device.agent
    agent.await_new_pid(agent.kill())
    site.ask("resync")
    time.sleep(2.5)
    site.until(lambda status: status["phase"] == "Converged")
    assert picture() == before


def test_a_burst_has_one_reload(site: Site) -> None:
    """Known fault 21."""
    names = [f"b{number}.service" for number in range(20)]

    def burst(text: str) -> None:
        site.converge(*(SystemdUnit(name=name, content=SLEEP.format(text)) for name in names))

    burst("one")
    before = site.reloads()
    burst("two")
    assert site.reloads() == before + 1
    for name in names:
        shown = site.show(name, "Description", "ActiveState", "NeedDaemonReload")
        assert shown == {"Description": "two", "ActiveState": "active", "NeedDaemonReload": "no"}
    time.sleep(1.5)
    assert site.reloads() == before + 1


def test_names(site: Site) -> None:
    """Known fault 22."""
    site.converge(
        SystemdUnit(name="x@.service", content=SLEEP.format("%I")),
        SystemdUnit(name="x@a\\x2db.service", after=["SystemdUnit/x@.service"]),
    )
    assert site.show("x@a\\x2db.service", "ActiveState", "Description", "Id") == {
        "ActiveState": "active",
        "Description": "a-b",
        "Id": "x@a\\x2db.service",
    }
    for name in ("a b.service", "../x.service", "x", "x.service/y", "harmony-agent.service"):
        generation = site.put_raw({"kind": "SystemdUnit", "name": name, "content": "[Unit]\n"})
        status = site.until(
            lambda status, number=generation: (status["rejected"] or {}).get("generation") == number
        )
        assert status["rejected"]["errors"][0]["field"] == "scores[0].name"
        assert status["phase"] == "Rejected"
    assert site.show("x@a\\x2db.service", "ActiveState")["ActiveState"] == "active"
    site.remove()
    assert site.show("x@a\\x2db.service", "LoadState")["LoadState"] == "not-found"


def test_a_condition_and_a_start_that_hangs_hold_up_nothing_else(site: Site) -> None:
    """Known fault 23."""
    site.put(
        SystemdUnit(
            name="hang.service", content="[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n"
        ),
        SystemdUnit(
            name="cond.service",
            content="[Unit]\nConditionPathExists=/nope\n" + SLEEP.format("")[7:],
        ),
        web(),
    )
    began = time.monotonic()
    site.until(reason("SystemdUnit/web.service", "Ready", ""), seconds=8)
    assert time.monotonic() - began < 8
    site.until(reason("SystemdUnit/hang.service", "Progressing", "Activating"))
    status = site.until(reason("SystemdUnit/cond.service", "Blocked", "ConditionFailed"))
    detail = status["resources"]["SystemdUnit/cond.service"]["status"]
    assert (detail["active_state"], detail["condition"]) == ("inactive", False)
    tried = site.show("cond.service", "ConditionTimestampMonotonic")
    time.sleep(2.5)
    assert site.show("cond.service", "ConditionTimestampMonotonic") == tried
    site.converge(SystemdUnit(name="hang.service", content=SLEEP.format("no more")), web())
    site.remove()


def test_a_oneshot_completes_once(site: Site) -> None:
    """Known fault 17. Not again after the agent was killed, nor after a reboot; again for another
    spec.
    """
    path = "/srv/ran"
    content = f"[Service]\nType=oneshot\nExecStart=/bin/dd if=/dev/urandom of={path} bs=1 count=1 oflag=append conv=notrunc\n"
    spec = SystemdUnit(name="once.service", content=content)
    after = File(name="after", path="/srv/after", content="x", after=["SystemdUnit/once.service"])
    status = site.converge(spec, after)
    assert status["resources"]["SystemdUnit/once.service"]["phase"] == "Completed"
    agent = site.device.agent
    for _ in range(3):
        agent.await_new_pid(agent.kill())
    time.sleep(1.5)
    assert site.device.stat(path).size == 1
    site.device.reboot()
    site.wait(lambda: agent.active)
    site.ask("ping")
    time.sleep(1.5)
    assert site.device.stat(path).size == 1
    site.converge(SystemdUnit(name="once.service", content=content + "Nice=1\n"), after)
    assert site.device.stat(path).size == 2
    site.remove()
    site.device.remove(path)


def test_a_job_that_fails_at_its_timer_is_told_and_left(site: Site) -> None:
    """With exit status and time, until its files change; never started by the agent."""
    script = "[Service]\nType=oneshot\nExecStart=/bin/sh -c '{}'\n"
    job = SystemdUnit(name="job.service", content=script.format("exit 3"), state="none")
    timer = "[Timer]\nOnActiveSec=1s\nAccuracySec=10ms\n"
    key = "SystemdUnit/job.service"
    site.put(job, SystemdUnit(name="job.timer", content=timer, after=[key]))
    found = site.until(reason(key, "Degraded", "JobFailed"))["resources"][key]
    assert "failed (exit status 3/NOTIMPLEMENTED) at 20" in found["message"]
    run = site.run_id("job.service")
    time.sleep(2.5)
    site.until(reason(key, "Degraded", "JobFailed"))
    assert site.run_id("job.service") == run
    tolerant = job.model_copy(update={"ignore_failure": True})
    site.converge(tolerant, SystemdUnit(name="job.timer", content=timer))
    better = job.model_copy(update={"content": script.format("kill -9 $$$$")})
    site.converge(better, SystemdUnit(name="job.timer", content=timer))
    site.device.systemctl("start", "job.service", user=True, check=False)
    found = site.until(reason(key, "Degraded", "JobFailed"))["resources"][key]
    assert "failed (ended by SIGKILL) at 20" in found["message"]


def test_what_depends_on_a_file_restarts_or_reloads(site: Site) -> None:
    def config(text: str) -> File:
        return File(name="config", path="/srv/config", content=text)

    restarts = web(restart_on=["File/config"])
    reloads = SystemdUnit(
        name="r.service",
        content="[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n",
        reload_on=["File/config"],
    )
    site.converge(config("one"), restarts, reloads)
    web_run, r_run = site.run_id("web.service"), site.run_id("r.service")
    changed = site.show("r.service", "StateChangeTimestampMonotonic")
    site.converge(config("two"), restarts, reloads)
    assert site.run_id("web.service") != web_run
    assert site.run_id("r.service") == r_run
    again = site.show("r.service", "StateChangeTimestampMonotonic")
    assert again != changed
    web_run = site.run_id("web.service")
    agent = site.device.agent
    agent.await_new_pid(agent.kill())
    time.sleep(2)
    assert site.run_id("web.service") == web_run
    assert site.show("r.service", "StateChangeTimestampMonotonic") == again
    agent.stop()  # somebody edits it, and web reads that
    site.device.write("/srv/config", "edited", owner=USER)
    site.by_hand("restart", "web.service")
    web_run = site.run_id("web.service")
    agent.start()
    eventually(lambda: site.run_id("web.service") != web_run, "web reads the repaired file", 20)
    assert site.device.read_text("/srv/config") == "two"
    was_reloaded = lambda: site.show("r.service", "StateChangeTimestampMonotonic") != again  # noqa: E731
    eventually(was_reloaded, "r is reloaded", 20)
    assert site.run_id("r.service") == r_run


def test_what_ran_before_its_configuration_came_reads_it(site: Site) -> None:
    """As chrony or samba, which the packages start."""
    site.device.write(f"{UNITS}/own.service", SLEEP.format("own"), owner=USER)
    site.by_hand("daemon-reload")
    site.by_hand("start", "own.service")
    run = site.run_id("own.service")
    config = File(name="own", path="/srv/own", content="1")
    own = SystemdUnit(name="own.service", restart_on=["File/own"])
    site.converge(config, own)
    second = site.run_id("own.service")
    assert second != run
    site.converge(config, own, File(name="other", path="/srv/other", content="1"))
    assert site.run_id("own.service") == second
    site.remove()
    site.by_hand("stop", "own.service")
    site.device.remove(f"{UNITS}/own.service")
    site.by_hand("daemon-reload")


def test_a_changed_template_restarts_the_instances_that_the_manifest_has(site: Site) -> None:
    def template(text: str, **more: Any) -> SystemdUnit:
        return SystemdUnit(name="t@.service", content=SLEEP.format(f"{text} %i"), **more)

    a, off = SystemdUnit(name="t@a.service"), SystemdUnit(name="t@off.service", state="stopped")
    site.converge(template("one"), a, off)
    site.by_hand("start", "t@hand.service")
    runs = {name: site.run_id(name) for name in ("t@a.service", "t@hand.service")}
    site.converge(template("two"), a, off)
    second = site.run_id("t@a.service")
    assert second != runs["t@a.service"]
    assert site.run_id("t@hand.service") == runs["t@hand.service"]
    assert site.show("t@off.service", "ActiveState") == {"ActiveState": "inactive"}
    site.converge(template("two", dropins={"10.conf": "[Service]\nNice=1\n"}), a, off)
    assert site.show("t@a.service", "Nice") == {"Nice": "1"}
    third = site.run_id("t@a.service")
    assert third != second
    # template and instance at once: it ends with both
    b = a.model_copy(update={"dropins": {"20.conf": "[Service]\nEnvironment=X=1\n"}})
    site.converge(template("three"), b, off)
    shown = site.show("t@a.service", "Nice", "Environment", "Description")
    assert shown == {"Nice": "0", "Environment": "X=1", "Description": "three a"}
    fourth = site.run_id("t@a.service")
    assert fourth != third
    agent = site.device.agent
    agent.await_new_pid(agent.kill())
    time.sleep(2)
    assert site.run_id("t@a.service") == fourth
    site.by_hand("stop", "t@hand.service")


def test_what_runs_already_is_taken_over_only_when_told(site: Site) -> None:
    site.device.write(f"{UNITS}/mine.service", SLEEP.format("administrator"), owner=USER)
    site.by_hand("daemon-reload")
    site.by_hand("enable", "--now", "mine.service")
    run = site.run_id("mine.service")
    spec = SystemdUnit(name="mine.service", content=SLEEP.format("ours"), enabled=False)
    site.put(spec)
    site.until(reason("SystemdUnit/mine.service", "Blocked", "OwnershipConflict"))
    assert site.run_id("mine.service") == run
    site.converge(spec.model_copy(update={"adopt": True}))
    assert site.show("mine.service", "Description")["Description"] == "ours"
    assert site.enabled("mine.service") == "disabled"
    site.remove()
    shown = site.show("mine.service", "Description", "ActiveState")
    assert shown == {"Description": "administrator", "ActiveState": "active"}
    assert site.enabled("mine.service") == "enabled"
    site.by_hand("disable", "--now", "mine.service")
    site.device.remove(f"{UNITS}/mine.service")
    site.by_hand("daemon-reload")


def test_orphaned_is_left_as_it_is(site: Site) -> None:
    site.converge(web(on_remove="orphan", enabled=True))
    run = site.run_id("web.service")
    site.remove()
    assert site.run_id("web.service") == run
    site.converge(web(enabled=True))  # as wanted already: adopted without a change
    assert site.run_id("web.service") == run
    site.remove()
    assert site.show("web.service", "LoadState")["LoadState"] == "not-found"


def test_what_crashes_is_paced(site: Site) -> None:
    site.put(SystemdUnit(name="bad.service", content="[Service]\nExecStart=/bin/false\n"), web())
    site.until(reason("SystemdUnit/bad.service", "Degraded", "CrashLoop"))
    assert site.resource("SystemdUnit/web.service")["phase"] == "Ready"
    time.sleep(3)
    assert site.jobs("bad.service") <= 3  # at once, once more, and once if it was seen while it ran
    site.converge(SystemdUnit(name="bad.service", content=SLEEP.format("good")), web())


def failing(site: Site, content: str) -> dict[str, Any]:
    """The status of a service of that content, as soon as it is paced."""
    key = "SystemdUnit/bad.service"
    site.put(SystemdUnit(name="bad.service", content=content), web())
    return dict(
        site.until(
            lambda status: (
                status["generation"] == site.generation
                and status["resources"].get(key, {}).get("reason") == "CrashLoop"
            )
        )["resources"][key]
    )


def test_a_failure_is_told_in_systemds_words(site: Site) -> None:
    """The program that isn't there, the status by its name, the signal, the step; no argument."""
    secret = "hunter2secret"
    environment = f"Environment=PASSWORD={secret}\n"
    cases = {
        f"ExecStart=sleeep {secret}\n": "exit status 203/EXEC: sleeep: no such file or directory",
        "ExecStart=/bin/sleeep 1\n": "exit status 203/EXEC: /bin/sleeep: no such file or directory",
        "ExecStart=/etc/passwd\n": "exit status 203/EXEC: /etc/passwd: permission denied",
        f"ExecStart=/bin/sh -c 'echo {secret}; exit 78'\n": "exit status 78/CONFIG",
        "ExecStart=/bin/sh -c 'kill -SEGV $$$$'\n": "ended by SIGSEGV",
        "ExecStartPre=/bin/false\nExecStart=/bin/sleep 1d\n": "ExecStartPre=: exit status 1/FAILURE",
        "ExecStart=/bin/sleep 1d\nType=notify\nTimeoutStartSec=500ms\n": "timeout: it took longer",
        "ExecStart=/bin/sleep 1d\nWorkingDirectory=/nope\n": "exit status 200/CHDIR: ",
    }
    for content, words in cases.items():
        found = failing(site, f"[Service]\n{content}{environment}")
        assert f"the unit failed: {words}" in found["message"], content
        assert secret not in str(site.status()), content
    assert not [line for line in site.device.agent.messages() if secret in line]
    site.converge(web())


def test_a_failure_of_what_systemd_restarts_is_told(site: Site) -> None:
    content = "[Service]\nExecStart=sleeep\nRestart=on-failure\nRestartSec=1h\n"
    key = "SystemdUnit/bad.service"
    site.put(SystemdUnit(name="bad.service", content=content), web())
    found = site.until(reason(key, "Degraded", "AutoRestart"))["resources"][key]
    assert "(exit status 203/EXEC: sleeep: no such file or directory)" in found["message"]
    site.converge(web())


def test_a_refused_file_is_told_by_its_line(site: Site) -> None:
    secret = "hunter2secret"
    key = "SystemdUnit/bad.service"
    content = f"[Service]\nEnvironment=PASSWORD={secret}\nExceStart=/bin/true {secret}\n{secret}\n"
    drop = f"[Service]\nRestartSec={secret}\n"
    site.put(SystemdUnit(name="bad.service", content=content, dropins={"10-a.conf": drop}), web())
    found = site.until(reason(key, "Failed", "UnitInvalid"))["resources"][key]
    for words in (
        "line 3 of content (ExceStart=): there is no such setting in its section",
        "line 4 of content: there is no = in it",
        "line 2 of dropins 10-a.conf (RestartSec=): its value can't be read",
        "and 1 more",
    ):
        assert words in found["message"]
    assert secret not in str(site.status())
    site.put(SystemdUnit(name="bad.service", content="[Service]\nNice=1\n"), web())
    found = site.until(
        lambda status: (
            status["generation"] == site.generation
            and status["resources"][key]["phase"] == "Failed"
        )
    )["resources"][key]
    assert "Service has no ExecStart=, ExecStop=, or SuccessAction=" in found["message"]
    site.converge(web())


def test_a_killed_process_is_restarted_within_a_second(site: Site) -> None:
    site.converge(web())
    pid = site.show("web.service", "MainPID")["MainPID"]
    site.device.run(["kill", "-9", pid])
    site.wait(lambda: site.show("web.service", "MainPID")["MainPID"] not in ("0", pid), 3)


def test_a_killed_agent_restarts_nothing_twice(site: Site) -> None:
    site.converge(web())
    agent = site.device.agent
    for number in range(10):
        before = site.starts("web.service")
        generation = site.put(web(content=SLEEP.format(number)))
        time.sleep(0.012 * number)
        agent.await_new_pid(agent.kill())
        site.until(
            lambda status, number=generation: (
                (status["generation"], status["phase"]) == (number, "Converged")
            )
        )
        shown = site.show("web.service", "Description", "NeedDaemonReload")
        assert shown == {"Description": str(number), "NeedDaemonReload": "no"}
        assert site.starts("web.service") == before + 1


def test_the_bus_is_lost_and_comes_back(site: Site) -> None:
    site.converge(web())
    site.by_hand("daemon-reexec")
    site.by_hand("stop", "web.service")
    site.wait(lambda: site.show("web.service", "ActiveState")["ActiveState"] == "active", 15)
    site.device.run(["pkill", "-9", "-u", USER, "-f", "dbus-daemon --session"])
    time.sleep(0.5)
    site.device.run(["systemctl", "--user", "start", "dbus.service"], user=USER, check=False)
    site.wait(
        lambda: site.device.systemctl("stop", "web.service", user=True, check=False).rc == 0, 15
    )
    site.wait(lambda: site.show("web.service", "ActiveState")["ActiveState"] == "active", 15)
    site.until(lambda status: status["phase"] == "Converged")


def test_a_manager_that_hangs_holds_up_nothing_else(site: Site) -> None:
    site.converge(web())
    show = ["systemctl", "show", "--property=MainPID", "--value", "user@1000.service"]
    manager = site.device.run(show).stdout.strip()
    site.device.run(["kill", "-STOP", manager])
    try:
        site.put(web(content=SLEEP.format("new")), File(name="motd", path="/srv/motd", content="x"))
        site.until(reason("File/motd", "Ready", ""), seconds=8)
        site.until(reason("SystemdUnit/web.service", "Unknown", "SystemdTimeout"), seconds=25)
    finally:
        site.device.run(["kill", "-CONT", manager])
    site.control.wait(PI, "web", timeout=40)
    assert site.show("web.service", "Description", "ActiveState") == {
        "Description": "new",
        "ActiveState": "active",
    }


def test_logs(site: Site) -> None:
    site.converge(
        SystemdUnit(
            name="say.service", content="[Service]\nExecStart=/bin/sh -c 'echo heard; sleep inf'\n"
        )
    )

    def heard() -> bool:
        return "heard" in str(
            site.ask("logs", {"resource": "SystemdUnit/say.service", "lines": 10})
        )

    site.wait(heard)


def test_no_content_in_the_journal_or_the_ledger(site: Site) -> None:
    secret = "Environment=PASSWORD=hunter2secret"
    site.converge(web(content=SLEEP.format("web") + f"[Service]\n{secret}\n"))
    site.put(web(content="[Service]\n" + secret + "\n"))
    site.until(lambda status: status["phase"] == "Degraded" or status["phase"] == "Failed")
    assert "hunter2secret" not in str(site.status())
    assert not [line for line in site.device.agent.messages() if "hunter2secret" in line]
    site.converge(web())
