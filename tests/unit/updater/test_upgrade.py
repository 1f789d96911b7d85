"""What is done in each state: requests, objections, the recovery table, what the result says."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harmony_updater.journal import FULL, KEPT, LOGS, JournalError
from harmony_updater.protocol import LINE_LIMIT, Answer, Refused, encode
from tests.unit.updater.world import ATTEMPT, LATER, REPOSITORY, World, request


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, lock_wait_seconds=3600, reboot_tries=2, reboot_wait_seconds=1).make()


def started(world: World) -> None:
    """An attempt that apt runs for, as the journal has it."""
    updater = world.updater()
    updater.request(request())
    world.set(no_units="")  # so that nothing runs it
    updater.step()
    world.unset("no-units")
    assert world.record()["phase"] == "applying"


def refusal(world: World, **changes: str) -> str:
    with pytest.raises(Refused) as refused:
        world.updater().request(request(**changes))
    error = refused.value.answer.error
    assert error
    return error["code"]


# -- requests


def test_an_attempt_is_on_disk_before_it_is_answered(world: World) -> None:
    status = world.updater().request(request())
    assert world.record()["phase"] == status.phase == "preflight"
    assert status.startedAt


def test_a_duplicate_is_answered_from_the_journal_also_after_expiry_and_end(world: World) -> None:
    expires = "2020-01-01T00:00:00Z"
    world.set(clock="no\n")
    world.updater().request(request(expires=expires))
    world.set(clock="yes\n")
    assert world.updater().request(request(expires=expires)).phase == "preflight"
    world.updater().step()
    before = world.record()
    status = world.updater().request(request(expires=expires))
    assert (status.phase, status.reason) == ("failed", "Expired")
    assert world.record() == before


def test_what_cannot_be_accepted_has_its_code_and_leaves_nothing(world: World) -> None:
    assert refusal(world, device="pi-02") == "wrong-device"
    assert refusal(world, expires="2020-01-01T00:00:00Z") == "expired"
    assert world.record() == {}
    world.updater().request(request())
    assert refusal(world, run="run-2") == "attempt-conflict"
    assert refusal(world, expires="2998-01-01T00:00:00Z") == "attempt-conflict"


def test_a_second_attempt_waits_and_is_not_on_disk(world: World) -> None:
    world.updater().request(request())
    status = world.updater().request(request(attempt="attempt-2"))
    assert (status.phase, status.reason, status.startedAt) == ("blocked", "OtherAttempt", None)
    assert world.record("attempt-2") == {}


def test_an_attempt_that_cannot_be_written_is_not_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fail)
        with pytest.raises(OSError, match="No space"):
            world.updater().request(request())
    assert world.record() == {}
    assert world.updater().request(request()).phase == "preflight"


def test_nothing_is_accepted_while_a_journal_is_corrupt(world: World) -> None:
    updater = world.updater()
    (world.state / "system-upgrades" / "x.json").write_text("{")
    with pytest.raises(JournalError, match=r"x\.json"):
        updater.request(request())
    with pytest.raises(JournalError, match=r"x\.json"):
        updater.step()


# -- what keeps it from starting


@pytest.mark.parametrize(
    ("spoil", "reason", "text"),
    [
        (lambda w: w.set(audit="The following packages are half installed:\n demo\n"), "PackagesUnhealthy", "half"),
        (lambda w: w.set(check="E: Unmet dependencies.\n", check_rc="100"), "PackagesUnhealthy", "Unmet"),
        (lambda w: w.index(believed="yes"), "UnauthenticatedSource", "sources.list:1"),
        (lambda w: w.set(believed=""), "UnauthenticatedSource", "apt judged 0"),
        (lambda w: w.index(verified="no"), "UnauthenticatedSource", "main Packages"),
        (lambda w: w.set(verified=""), "UnauthenticatedSource", "main Packages"),
        (lambda w: w.set(policy=" 500 /srv/Packages\n"), "UnauthenticatedSource", "/srv/Packages"),
        (lambda w: w.set(archives="'http://deb.testing/x.deb' x.deb 7 SHA256:0\n"), "UnauthenticatedSource", "x.deb"),
        (lambda w: w.set(off="Acquire::AllowWeakRepositories"), "UnauthenticatedSource", "AllowWeak"),
        (lambda w: w.set(config='Dir::Bin::dpkg "/srv/dpkg";\n'), "UnsafeConfiguration", "/srv/dpkg"),
        (lambda w: w.set(defaults='Dir::Bin::dpkg "/usr/bin/dpkg";\n'), "UnsafeConfiguration", "is missing"),
        (lambda w: w.set(config="E: Syntax error x:1\n"), "UnsafeConfiguration", "Syntax error"),
        (lambda w: w.set(indexes="E: Malformed entry 1\n", indexes_rc="100"), "SourcesMalformed", "Malformed entry 1"),
        (lambda w: w.set(update="E: Failed to fetch http://me:secret@x/ 404\n", update_rc="100"), "IndexFailed", "404"),
        (lambda w: w.set(plan="E: Unable to correct problems\n", plan_rc="100"), "NoPlan", "correct"),
        (lambda w: w.set(archives=f"'{REPOSITORY}d' d 999999999999999 x:y\n"), "NoSpace", "needed"),
        (lambda w: w.set(archives="After this operation, 99 TB of additional disk space\n"), "NoSpace", "n"),
        (lambda w: (w.root / "proc/sys/kernel/random/boot_id").unlink(), "BootIdUnreadable", "boot id"),
        (lambda w: w.boot(""), "BootIdUnreadable", "boot id"),
    ],
)  # fmt: skip
def test_a_check_that_says_no_fails_it_with_nothing_changed(
    world: World, spoil: Callable[[World], None], reason: str, text: str
) -> None:
    spoil(world)
    updater = world.updater()
    updater.request(request())
    updater.step()
    record = world.record()
    assert (record["phase"], record["reason"]) == ("failed", reason)
    assert text in record["message"]
    assert "secret" not in json.dumps(record)
    assert world.calls("UPGRADE") == 0
    updater.lock.release()
    assert world.holder() == ""


def test_an_unsynchronised_clock_blocks_without_the_lock_and_judges_no_expiry(world: World) -> None:
    world.set(clock="no\n")
    updater = world.updater()
    updater.request(request(expires="2020-01-01T00:00:00Z"))
    updater.step()
    record = world.record()
    assert (record["phase"], record["reason"]) == ("blocked", "ClockUnsynchronised")
    assert world.holder() == ""
    updater.step()
    assert world.record() == record  # what hasn't changed isn't written again
    (world.root / "run/systemd/timesync").mkdir(parents=True)
    (world.root / "run/systemd/timesync/synchronized").touch()
    updater.step()
    assert (world.record()["phase"], world.record()["reason"]) == ("failed", "Expired")


@pytest.mark.parametrize("said", ["", "no\n", "yes", "Failed to connect to bus: Host is down\n"])
def test_only_a_clear_yes_is_a_synchronised_clock(world: World, said: str) -> None:
    world.set(clock=said)
    assert not world.updater().host.clock_synchronised()


def test_expiry_is_judged_again_right_before_apt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    updater = world.updater()
    updater.request(request())
    run = updater.host.run

    def slow(name: str, *attempt: str) -> tuple[int, str]:
        if name == "update":
            monkeypatch.setattr("time.time", lambda: 40_000_000_000.0)
        return run(name, *attempt)

    monkeypatch.setattr(updater.host, "run", slow)
    updater.step()
    assert (world.record()["phase"], world.record()["reason"]) == ("failed", "Expired")
    assert world.calls("UPGRADE") == 0


def test_another_mutation_blocks_and_is_named(world: World) -> None:
    (world.state / "mutation.holder").write_text("agent-upgrade 7")
    updater = world.updater()
    updater.request(request())
    updater.step()
    assert (world.record()["phase"], world.record()["reason"]) == ("blocked", "OtherMutation")
    assert "agent-upgrade 7" in world.record()["message"]
    (world.state / "mutation.holder").write_text("")
    updater.step()
    assert (world.record()["phase"], world.record()["reason"]) == ("preflight", "")
    assert world.holder() == f"system-upgrade {ATTEMPT}"


_HOLD = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX); print(flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    "lock",
    ["lib/dpkg/lock-frontend", "lib/dpkg/lock", "lib/apt/lists/lock", "cache/apt/archives/lock"],
)
def test_a_package_lock_blocks_below_the_bound_names_its_holder_and_fails_beyond(
    tmp_path: Path, lock: str
) -> None:
    world = World(tmp_path, lock_wait_seconds=0).make()
    patient = World(tmp_path, lock_wait_seconds=3600)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "var" / lock)], stdout=subprocess.PIPE
    )
    assert holder.stdout
    holder.stdout.readline()
    try:
        world.updater().request(request())
        patient.updater().step()
        record = world.record()
        assert (record["phase"], record["reason"]) == ("blocked", "PackageLocksHeld")
        assert f"{lock} is held by pid {holder.pid} (python" in record["message"]
        world.updater().step()
        assert (world.record()["phase"], world.record()["reason"]) == ("failed", "PackageLocksHeld")
        assert str(holder.pid) in world.record()["message"]
        assert holder.poll() is None  # never killed
        assert world.calls("UPGRADE") == 0
    finally:
        holder.kill()
        holder.communicate()


def test_each_attempt_waits_for_the_locks_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, now = World(tmp_path, lock_wait_seconds=60).make(), [1000.0]
    updater = world.updater()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(updater.host, "lock_holder", lambda: "somebody")
    for attempt in ("one", "two"):
        updater.request(request(attempt))
        updater.step()
        assert world.record(attempt)["phase"] == "blocked"
        now[0] += 59
        updater.step()
        assert world.record(attempt)["phase"] == "blocked"
        now[0] += 2
        updater.step()
        assert world.record(attempt)["phase"] == "failed"
        updater._wake.set()  # nothing is left to do
        updater.step()


def test_our_own_or_no_lock_is_no_holder(world: World) -> None:
    assert world.updater().host.lock_holder() is None
    with open(world.root / "var/lib/dpkg/lock", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert world.updater().host.lock_holder() is None


# -- the recovery table


def test_preflight_repeats_the_checks(world: World) -> None:
    world.updater().request(request())
    updater = world.updater()
    world.set(no_units="")
    updater.step()
    assert world.record()["phase"] == "applying"
    assert world.record()["bootIdBefore"] == "boot-1"
    assert world.calls("apt-get check") == world.calls("dpkg --audit") == 1


@pytest.mark.parametrize("audit", ["", "demo is half configured\n"])
def test_applying_without_an_end_of_apt_needs_repair_and_is_never_run_again(
    world: World, audit: str
) -> None:
    started(world)
    world.set(audit=audit)
    world.updater().step()
    record = world.record()
    assert (record["phase"], record["reason"]) == ("repair-required", "Interrupted")
    assert record["result"]["dpkgAudit"] == ([audit.strip()] if audit else [])
    assert world.calls("UPGRADE") == 0


def test_applying_after_a_reboot_needs_repair_even_if_apt_had_ended(world: World) -> None:
    started(world)
    world.note(0)
    world.boot("boot-2")
    world.updater().step()
    assert (world.record()["phase"], world.record()["reason"]) == ("repair-required", "Interrupted")


def test_applying_waits_for_apt_as_long_as_its_unit_is_there(world: World) -> None:
    started(world)
    world.upgraded()
    world.set(unit="")
    script = f"sleep 0.3; echo 0 >{world.state}/system-upgrades/{ATTEMPT}.exit"
    ending = subprocess.Popen(["/bin/sh", "-s"], stdin=subprocess.PIPE, text=True)
    assert ending.stdin
    ending.stdin.write(script)
    ending.stdin.close()
    world.updater().step()
    ending.wait()
    assert world.record()["phase"] == "rebooting"
    assert world.calls("systemctl harmony-updater-apt.service") > 3


@pytest.mark.parametrize(
    ("code", "audit", "check", "end"),
    [
        (0, "", "", ("rebooting", "")),
        (100, "", "", ("failed", "UpgradeFailed")),
        (100, "half\n", "", ("repair-required", "PackagesUnhealthy")),
        (0, "half\n", "", ("repair-required", "PackagesUnhealthy")),
        (0, "", "100", ("repair-required", "PackagesUnhealthy")),
    ],
)
def test_how_apt_ended_and_what_dpkg_says_decide_together(
    world: World, code: int, audit: str, check: str, end: tuple[str, str]
) -> None:
    started(world)
    world.note(code)
    world.set(audit=audit, check_rc=check or "0")
    world.updater().step()
    assert (world.record()["phase"], world.record()["reason"]) == end
    assert world.record()["before"] == {}


def rebooting(world: World) -> None:
    started(world)
    world.note(0)
    world.updater().step()
    assert world.record()["phase"] == "rebooting"
    world.unset("reboots")


def test_the_same_boot_is_asked_for_again_up_to_the_bound_and_then_failed(world: World) -> None:
    rebooting(world)
    for asked in (1, 2):
        world.updater().step()  # each time an updater that has started again
        assert world.record()["rebootsAsked"] == asked
        assert world.calls("systemctl reboot") == asked
    world.updater().step()
    assert (world.record()["phase"], world.record()["reason"]) == ("failed", "RebootFailed")
    assert world.calls("systemctl reboot") == 2
    assert world.calls("NOT REBOOTING") == 0


@pytest.mark.parametrize("unreadable", ["", None])
def test_a_boot_id_that_cannot_be_read_is_no_reboot(world: World, unreadable: str | None) -> None:
    rebooting(world)
    world.boot(unreadable or "")
    if unreadable is None:
        (world.root / "proc/sys/kernel/random/boot_id").unlink()
    for _ in range(3):
        world.updater().step()
    assert (world.record()["phase"], world.record()["reason"]) == ("failed", "RebootFailed")


def test_a_boot_id_that_becomes_readable_counts(world: World) -> None:
    rebooting(world)
    world.updater().step()
    world.boot("")
    script = f"sleep 0.2; echo boot-2 >{world.root}/proc/sys/kernel/random/boot_id"
    boot = subprocess.Popen(["/bin/sh", "-s"], stdin=subprocess.PIPE, text=True)
    assert boot.stdin
    boot.stdin.write(script)
    boot.stdin.close()
    world.updater().step()
    boot.wait()
    assert (world.record()["phase"], world.record()["bootIdAfter"]) == ("verifying", "boot-2")


@pytest.mark.parametrize(("audit", "phase"), [("", "complete"), ("half\n", "repair-required")])
def test_another_boot_is_verified_by_what_dpkg_says(world: World, audit: str, phase: str) -> None:
    rebooting(world)
    world.boot("boot-2")
    world.set(audit=audit)
    world.updater().step()
    assert world.record()["phase"] == "verifying"
    world.updater().step()
    record = world.record()
    assert record["phase"] == phase
    assert (record["bootIdBefore"], record["bootIdAfter"]) == ("boot-1", "boot-2")
    assert world.calls("systemctl reboot") == 0


def test_while_another_holds_the_mutation_lock_nothing_is_concluded(world: World) -> None:
    started(world)
    world.note(0)
    (world.state / "mutation.holder").write_text("agent-upgrade 7")
    with pytest.raises(BlockingIOError, match="agent-upgrade 7"):
        world.updater().step()
    assert world.record()["phase"] == "applying"


@pytest.mark.parametrize("name", ["dpkg", "apt-get", "systemctl"])
def test_a_tool_that_a_signal_ends_says_nothing(world: World, name: str) -> None:
    started(world)
    if name != "systemctl":
        world.note(0)
    program = world.root / "usr/bin" / name
    program.unlink()
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    before = world.record()
    with pytest.raises(InterruptedError, match="signal 9"):
        world.updater().step()
    assert world.record() == before


# -- the operator


def test_repair_required_holds_until_it_is_cleared_and_clearing_audits_first(world: World) -> None:
    started(world)
    world.set(audit="half\n")
    world.updater().step()
    assert refusal(world, attempt="attempt-2") == "repair-required"
    assert world.updater().clear_repair() == ["half"]
    assert refusal(world, attempt="attempt-2") == "repair-required"
    world.set(audit="")
    assert world.updater().clear_repair() == []
    assert (
        world.updater().request(request()).phase == "repair-required"
    )  # the attempt's own result stays
    assert world.record()["reason"] == "Interrupted"
    assert world.updater().request(request(attempt="attempt-2")).phase == "preflight"


def test_there_may_be_nothing_to_clear(world: World) -> None:
    assert world.updater().clear_repair() == []


# -- the result


def test_the_result_says_what_was_done(world: World) -> None:
    started(world)
    world.note(0)
    world.set(
        packages=(world.fake / "after").read_text() + "not-installed/x/all/\nconfig-files/y/all/1\n"
    )
    (world.state / "system-upgrades" / f"{ATTEMPT}.log.1").write_text(
        "The following packages have been kept back:\n  held-one held-two\n  held-three\n"
        "The following upgrades have been deferred due to phasing:\n  phased\n"
        "The following packages will be upgraded:\n  demo\n"
    )
    (world.state / "system-upgrades" / f"{ATTEMPT}.log").write_text(
        "Setting up demo (2.0) ...\n\nConfiguration file '/etc/demo.conf'\n"
        " ==> Modified (by you or by a script) since installation.\n"
        " ==> Package distributor has shipped an updated version.\n ==> Keeping old config file as default.\n"
        "Configuration file '/etc/other.conf'\nInstalling new version of config file /etc/third.conf ...\n"
    )
    world.updater().step()
    assert world.record()["result"] == {
        "upgraded": ["demo (1.0 => 2.0)"],
        "installed": ["new (0.5)"],
        "removed": ["gone (0.1)"],
        "held": ["held-one", "held-two", "held-three", "phased"],
        "keptConffiles": ["/etc/demo.conf"],
        "dpkgAudit": [],
    }


@pytest.mark.parametrize("name", ["plain", 'quo"te\\', "\x1b[31m\x07", "é€𝄞"])
def test_however_much_was_done_the_answer_fits_into_a_line(world: World, name: str) -> None:
    started(world)
    world.note(100)
    many = [f"{name.replace('/', '')}{n}-{'x' * 100}" for n in range(3_000)]
    world.set(packages="".join(f"installed/{one}/all/1\n" for one in many), audit="\n".join(many))
    (world.state / "system-upgrades" / f"{ATTEMPT}.log").write_text(
        "".join(f"Configuration file '/etc/{one}'\n ==> Keeping old config file\n" for one in many)
        + "The following packages have been kept back:\n"
        + "".join(f"  {one}\n" for one in many)
        + "".join(f"E: {one}\n" for one in many)
    )
    world.updater().step()
    updater = world.updater()
    record = updater.journal.load(ATTEMPT)
    assert len(encode(Answer(ok=True, status=record))) <= LINE_LIMIT
    result = world.record()["result"]
    assert result["installed"][-1].endswith(" more")
    assert result["installed"][0].startswith("plain0" if name == "plain" else "")
    assert all(text.isprintable() for lines in result.values() for text in lines)


def test_when_dpkg_lists_nothing_nothing_is_called_removed(world: World) -> None:
    started(world)
    world.note(0)
    world.set(packages="")
    world.updater().step()
    assert world.record()["result"]["removed"] == []
    assert (world.record()["phase"], world.record()["reason"]) == ("failed", "UpgradeIncomplete")


@pytest.mark.parametrize(
    ("packages", "named"),
    [
        ("installed/demo/all/1.0\ninstalled/gone/all/0.1\n", "demo is 1.0, planned was 2.0"),
        ("installed/demo/all/2.0\n", "new is not installed, planned was 0.5"),
        (
            "installed/demo/all/2.0\ninstalled/new/all/0.5\ninstalled/gone/all/0.1\n",
            "gone is 0.1, planned was its removal",
        ),
        ("half-installed/demo/all/1.5\ninstalled/new/all/0.5\n", "demo is 1.5"),
    ],
)
def test_what_apt_calls_well_ended_and_isn_t_as_planned_has_failed_and_reboots_nothing(
    world: World, packages: str, named: str
) -> None:
    started(world)
    assert world.record()["planned"] == {"demo": "2.0", "new": "0.5", "gone": ""}
    world.note(0)
    world.set(packages=packages)
    world.updater().step()
    record = world.record()
    assert (record["phase"], record["reason"], record["planned"]) == (
        "failed",
        "UpgradeIncomplete",
        {},
    )
    assert named in record["message"]
    assert world.calls("systemctl reboot") == 0


def test_where_nothing_is_to_be_upgraded_it_is_complete_without_a_reboot(world: World) -> None:
    world.set(plan="", archives="", after=(world.fake / "packages").read_text())
    started(world)
    world.note(0)
    world.updater().step()
    record = world.record()
    assert (record["phase"], record["reason"], record["bootIdAfter"]) == (
        "complete",
        "NothingToUpgrade",
        None,
    )
    assert world.calls("systemctl reboot") == 0


@pytest.mark.parametrize("changed", [True, False])
def test_what_was_changed_or_asks_for_a_reboot_gets_one(world: World, changed: bool) -> None:
    if not changed:
        world.set(plan="", archives="", after=(world.fake / "packages").read_text())
        (world.root / "run/reboot-required").touch()
    started(world)
    world.note(0)
    world.updater().step()
    assert world.record()["phase"] == "rebooting"


# -- bounds


def test_attempts_that_are_accepted_in_an_hour_are_bounded(tmp_path: Path) -> None:
    world = World(tmp_path, attempts_per_hour=3).make()
    world.set(check_rc="100")  # each fails at once
    updater = world.updater()
    for number in range(3):
        assert updater.request(request(f"one-{number}")).phase == "preflight"
        updater.step()
        updater.lock.release()
    status = updater.request(request("more"))
    assert (status.phase, status.reason, status.startedAt) == ("blocked", "TooManyAttempts", None)
    assert updater.request(request("one-0")).phase == "failed"  # what is known is told
    assert world.record("more") == {}
    for number in range(3):  # an hour later
        world.had(f"one-{number}", startedAt="2020-01-01T00:00:00Z", expires=LATER)
    assert updater.request(request("more")).phase == "preflight"


def journals(world: World, ending: str = ".json") -> set[str]:
    folder = world.state / "system-upgrades"
    return {
        path.name.removesuffix(ending) for path in folder.iterdir() if path.name.endswith(ending)
    }


def test_journals_are_bounded_and_none_goes_that_may_come_again_or_is_needed(world: World) -> None:
    world.had("to-come", expires=LATER, startedAt="2019-01-01T00:00:00Z")
    world.had(
        "cleared",
        "repair-required",
        startedAt="2019-01-02T00:00:00Z",
        clearedAt="2019-01-03T00:00:00Z",
    )
    for number in range(KEPT + 5):
        world.had(
            f"old-{number:03}", startedAt=f"2020-01-01T{number // 60:02}:{number % 60:02}:00Z"
        )
    world.updater().request(request())
    kept = {f"old-{number:03}" for number in range(5, KEPT + 5)}
    assert journals(world) == {ATTEMPT, "to-come", *kept}
    assert journals(world, ".log") == {
        f"old-{number:03}" for number in range(KEPT + 5 - LOGS, KEPT + 5)
    }
    assert journals(world, ".exit") == {"to-come", *kept}


def test_nothing_is_forgotten_before_the_clock_is_right(world: World) -> None:
    for number in range(KEPT + 5):
        world.had(f"old-{number:03}")
    world.set(clock="no\n")
    world.updater().request(request())
    assert len(journals(world)) == KEPT + 6


def test_where_very_many_may_come_again_only_those_are_accepted_that_soon_can_t(
    world: World,
) -> None:
    for number in range(FULL):
        world.had(f"old-{number:03}", expires=LATER)
    updater = world.updater()
    assert updater.request(request()).reason == "TooManyAttempts"
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    assert updater.request(request(expires=soon)).phase == "preflight"
