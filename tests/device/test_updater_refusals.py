"""What keeps an upgrade from starting, on a real Debian: each with its phase, its reason, and
nothing changed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.upgrades import SYNCHRONISED, UNITS, Upgrading, sample

_NUMBERS = itertools.count(1)
UNSIGNED = "/srv/unsigned"
PYTHON = "/opt/harmony/bin/python"


@pytest.fixture(scope="module", params=SUITES)
def shared(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Upgrading]:
    """A device for all of this module: nothing here may change a package."""
    device = lab.device(request.param)
    site = Upgrading(device, lab.folder / f"apt-{device.name}", lock_wait_seconds=3)
    site.has(sample("1.0"))
    site.offers(sample("2.0"))
    yield site
    site.close()
    device.close()


@pytest.fixture
def site(shared: Upgrading) -> Iterator[Upgrading]:
    """The device, with the sample in its first version before and after."""
    assert shared.version("harmony-sample") == "1.0"
    yield shared
    assert shared.version("harmony-sample") == "1.0"
    assert shared.upgrades() == 0


def refused(site: Upgrading, seconds: float = 30) -> tuple[str, str, str]:
    """Phase, reason and message that a new attempt ends with."""
    attempt = f"attempt-{next(_NUMBERS)}"
    assert site.ask(attempt=attempt)["ok"]
    status = site.await_phase(attempt=attempt, seconds=seconds)
    assert (status["phase"], status["result"], status["bootIdBefore"]) == ("failed", None, None)
    return status["phase"], status["reason"], status["message"]


@pytest.mark.parametrize(
    "lock",
    ["lib/dpkg/lock-frontend", "lib/dpkg/lock", "lib/apt/lists/lock", "cache/apt/archives/lock"],
)
def test_a_lock_held_beyond_the_bound_names_its_holder_and_kills_it_not(
    site: Upgrading, lock: str
) -> None:
    pid = site.holder(f"/var/{lock}")
    attempt = f"attempt-{next(_NUMBERS)}"
    try:
        site.ask(attempt=attempt)
        blocked = site.await_phase("blocked", attempt=attempt)
        assert blocked["reason"] == "PackageLocksHeld"
        assert blocked["message"] == f"/var/{lock} is held by pid {pid} (python3)"
        ended = site.await_phase(attempt=attempt)
        assert (ended["phase"], ended["reason"]) == ("failed", "PackageLocksHeld")
        assert f"pid {pid} (python3)" in ended["message"]
        assert site.processes("lockf") == [pid]
    finally:
        site.device.systemctl("stop", "lock-holder")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/apt/sources.list.d/x.list", f"deb [trusted=yes] file:{UNSIGNED} ./\n"),
        (
            "/etc/apt/sources.list.d/x.sources",
            f"Types: deb\nURIs: file:{UNSIGNED}\nSuites: ./\nTrusted: yes\n",
        ),
        ("/etc/apt/sources.list.d/x.list", f"deb [allow-insecure=yes] file:{UNSIGNED} ./\n"),
        ("/etc/apt/apt.conf.d/99x", 'APT::Get::AllowUnauthenticated "true";\n'),
        ("/etc/apt/apt.conf.d/99x", 'Acquire { AllowInsecureRepositories "1"; };\n'),
        ("/etc/apt/apt.conf.d/99x", 'Binary::apt-get::Acquire::AllowWeakRepositories "on";\n'),
    ],
)
def test_a_source_without_authentication_is_refused_and_named(
    site: Upgrading, path: str, text: str
) -> None:
    site.device.write(path, text)
    try:
        phase, reason, message = refused(site)
        assert (phase, reason) == ("failed", "UnauthenticatedSource")
        assert path in message or "::" in message
    finally:
        site.device.remove(path)


def test_a_source_that_cannot_be_read_is_refused_with_apt_s_own_words(site: Upgrading) -> None:
    site.device.write("/etc/apt/sources.list.d/x.list", "deb [trusted=yes file:/srv stable main\n")
    try:
        _, reason, message = refused(site)
        assert reason == "SourcesMalformed"
        assert "/etc/apt/sources.list.d/x.list" in message
    finally:
        site.device.remove("/etc/apt/sources.list.d/x.list")


def test_an_option_that_changes_what_runs_is_refused_and_named(site: Upgrading) -> None:
    site.device.write("/etc/apt/apt.conf.d/99x", 'Dir::Bin::methods::gpgv "/srv/good";\n')
    try:
        _, reason, message = refused(site)
        assert reason == "UnsafeConfiguration"
        assert "/srv/good" in message
    finally:
        site.device.remove("/etc/apt/apt.conf.d/99x")


def test_a_failed_index_fails_it(site: Upgrading) -> None:
    site.device.write(
        "/etc/apt/sources.list.d/x.list", "deb http://user:secret@127.0.0.1:9/debian stable main\n"
    )
    try:
        _, reason, message = refused(site)
        assert reason == "IndexFailed"
        assert "127.0.0.1" in message
        assert "secret" not in message
        assert not any("secret" in said for said in site.device.messages(unit=UNITS[1]))
    finally:
        site.device.remove("/etc/apt/sources.list.d/x.list")


def test_an_unsigned_repository_fails_it_even_if_it_is_not_configured_as_trusted(
    site: Upgrading,
) -> None:
    site.device.run(["mkdir", "-p", UNSIGNED])
    site.device.write(f"{UNSIGNED}/Packages", "")
    site.device.write("/etc/apt/sources.list.d/x.list", f"deb file:{UNSIGNED} ./\n")
    try:
        assert refused(site)[1] == "IndexFailed"
    finally:
        site.device.remove("/etc/apt/sources.list.d/x.list")


def test_unhealthy_packages_fail_it(site: Upgrading) -> None:
    status = site.device.read_text("/var/lib/dpkg/status")
    broken = status.replace(
        "Package: harmony-sample\nStatus: install ok installed",
        "Package: harmony-sample\nStatus: install ok half-configured",
    )
    assert broken != status
    site.device.write("/var/lib/dpkg/status", broken)
    try:
        _, reason, message = refused(site)
        assert reason == "PackagesUnhealthy"
        assert "harmony-sample" in message
    finally:
        site.device.write("/var/lib/dpkg/status", status)


def test_a_disk_that_is_too_full_fails_it(site: Upgrading) -> None:
    site.device.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", "/var/cache/apt/archives"])
    site.restart()  # its view of the file systems is of its start
    try:
        _, reason, message = refused(site)
        assert reason == "NoSpace"
        assert "/var/cache/apt/archives" in message
    finally:
        site.device.systemctl("stop", UNITS[1])
        site.device.run(["umount", "/var/cache/apt/archives"])
        site.restart()


def test_a_state_folder_without_room_accepts_nothing_and_recovers(site: Upgrading) -> None:
    folder = "/var/lib/harmony-fleet-updater"
    site.device.systemctl("stop", *UNITS)
    site.device.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder])
    site.device.systemctl("start", *UNITS)
    try:
        site.device.run(["dd", "if=/dev/zero", f"of={folder}/filler", "bs=4k"], check=False)
        assert site.ask(attempt="no-room") == {}  # closed: it can't be accepted durably
        assert site.status("no-room") == {}
        site.device.remove(f"{folder}/filler")
        site.device.remove(SYNCHRONISED)
        site.device.write("/usr/local/bin/unused", "")
        assert site.ask(attempt="no-room")["ok"]
    finally:
        site.device.systemctl("stop", *UNITS)
        site.device.run(["umount", folder])
        site.device.write(SYNCHRONISED, "")
        site.device.systemctl("start", *UNITS)


@pytest.fixture
def unsynchronised(site: Upgrading) -> Iterator[Callable[[], None]]:
    """The clock is not synchronised, whatever the host's kernel says; calling it, it becomes so."""
    device = site.device
    device.run(["mount", "--bind", "/bin/true", "/usr/bin/timedatectl"])
    device.remove(SYNCHRONISED)
    site.restart()

    def synchronise() -> None:
        device.write(SYNCHRONISED, "")

    yield synchronise
    synchronise()
    device.systemctl("stop", UNITS[1])
    device.run(["umount", "/usr/bin/timedatectl"])
    site.restart()


def test_a_clock_that_is_not_synchronised_blocks_and_judges_no_expiry(
    site: Upgrading, unsynchronised: Callable[[], None]
) -> None:
    assert site.ask(attempt="clock", expires="2020-01-01T00:00:00Z")["ok"]
    assert site.await_phase("blocked", attempt="clock")["reason"] == "ClockUnsynchronised"
    time.sleep(3)
    assert site.status("clock")["phase"] == "blocked"
    unsynchronised()
    status = site.await_phase(attempt="clock")
    assert (status["phase"], status["reason"]) == ("failed", "Expired")


@pytest.mark.parametrize("clock", ["1970-01-02 00:00:00", "2036-11-29 00:00:00"])
def test_a_clock_far_off_judges_no_expiry_until_it_is_synchronised(
    site: Upgrading, unsynchronised: Callable[[], None], clock: str
) -> None:
    # libfaketime makes Python's sleep fail on Debian 12; this moves the clock that the updater
    # reads, and nothing else.
    place = site.device.run(
        [PYTHON, "-c", "import site; print(site.getsitepackages()[0])"]
    ).stdout.strip()
    module, offset = f"{place}/moved_clock", "/etc/harmony-test-offset"
    away = time.mktime(time.strptime(f"{clock} UTC", "%Y-%m-%d %H:%M:%S %Z")) - time.time()
    site.device.write(offset, str(away))
    moved = f"import time\nreal = time.time\ntime.time = lambda: real() + float(open('{offset}').read())\n"
    site.device.write(f"{module}.py", moved)
    site.device.write(f"{module}.pth", "import moved_clock\n")
    site.restart()
    attempt = f"clock-{clock[:4]}"
    try:
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 6))
        assert site.ask(attempt=attempt, expires=soon)[
            "ok"
        ]  # in 1970 far ahead, in 2036 long ago: it can't be told
        blocked = site.await_phase("blocked", attempt=attempt)
        assert (blocked["reason"], blocked["startedAt"][:4]) == ("ClockUnsynchronised", clock[:4])
        time.sleep(7)
        assert site.status(attempt)["phase"] == "blocked"
        site.device.write(offset, "0")
        unsynchronised()
        status = site.await_phase(attempt=attempt)
        assert (status["phase"], status["reason"]) == ("failed", "Expired")
    finally:
        site.device.run(["rm", f"{module}.py", f"{module}.pth"])
        site.restart()


def test_another_mutation_blocks_and_is_named(site: Upgrading) -> None:
    holder = "/var/lib/harmony-fleet-updater/mutation.holder"
    site.device.write(holder, "agent-upgrade 7")
    site.device.write(
        "/etc/apt/apt.conf.d/99x", 'APT::Get::AllowUnauthenticated "true";\n'
    )  # so that it won't go on
    try:
        attempt = f"attempt-{next(_NUMBERS)}"
        site.ask(attempt=attempt)
        blocked = site.await_phase("blocked", attempt=attempt)
        assert (blocked["reason"], blocked["message"]) == (
            "OtherMutation", "waiting for agent-upgrade 7, which has not ended",
        )  # fmt: skip
        time.sleep(4)  # it isn't bounded as the wait for a lock of apt is
        assert site.status(attempt)["phase"] == "blocked"
        site.device.write(holder, "")
        assert site.await_phase(attempt=attempt)["reason"] == "UnauthenticatedSource"
    finally:
        site.device.remove("/etc/apt/apt.conf.d/99x")


def test_the_socket_under_fire(site: Upgrading) -> None:
    pid = site.device.run(
        ["systemctl", "show", "--property=MainPID", "--value", UNITS[1]]
    ).stdout.strip()

    def memory() -> int:
        return int(site.device.read_text(f"/proc/{pid}/status").split("VmRSS:")[1].split()[0])

    for line in (
        b"\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"v":1,"op":"sh"}\n',
        b'{"v":1,"op":"capabilities","x":1}\n',
    ):
        assert b'"ok":false' in site.talk(line)
    site.device.run(["python3", "-c", _FIRE], timeout=120)
    warm = memory()
    site.device.run(["python3", "-c", _FIRE], timeout=120)
    assert memory() < warm + 4096
    site.wait_for(lambda: site.say(op="capabilities").get("ok"), 60)
    assert (
        site.device.run(
            ["systemctl", "show", "--property=MainPID", "--value", UNITS[1]]
        ).stdout.strip()
        == pid
    )


_FIRE = """
import contextlib, socket
said = [b"", b"x" * 1000000, b'{"v":1', bytes(range(256)) * 40, b'{"v":1,"op":"capabilities"}\\n']
for batch in range(10):
    peers = []
    for number in range(100):
        peer = socket.socket(socket.AF_UNIX); peer.settimeout(2)
        peers.append(peer)
        with contextlib.suppress(OSError):
            peer.connect("/run/harmony-updater/updater.sock")
            peer.sendall(said[number % 5])
    for peer in peers:
        peer.close()
"""
