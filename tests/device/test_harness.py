"""The harness itself: what it promises about devices, networks, power cuts, and about what it
leaves behind.
"""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from tests.device.agent import to_toml
from tests.device.claims import STATE, hierarchies, left_over, sweep
from tests.device.commands import CommandError
from tests.device.image import mirror_sources
from tests.device.lab import Lab, ServedLan
from tests.device.machine import Device
from tests.device.network import Cut
from tests.device.prepare import USER
from tests.device.storage import REPOSITORY
from tests.device.tools import HarnessError, call

PYTHON = "/opt/harmony/bin/python"
ECHO = """
import asyncio, nats

async def main():
    client = await nats.connect("nats://nats:4222")
    async def answer(message):
        await message.respond(message.data)
    await client.subscribe("echo", cb=answer)
    await client.flush()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def traces(name: str) -> list[str]:
    """All that this machine shows of the run `name`."""
    found = [str(path) for path in STATE.glob(f"{name}*")]
    found += [str(path) for path in Path(tempfile.gettempdir()).glob(f"{name}*")]
    found += [str(path) for root in hierarchies() for path in root.glob(f"{name}*")]
    found += [str(path) for path in Path("/run/netns").glob(f"{name}*")]
    for listing in ("/proc/self/mounts", "/proc/net/unix"):
        found += [
            line for line in Path(listing).read_text(encoding="utf-8").splitlines() if name in line
        ]
    found += [
        line for line in call("losetup", "--list", "--noheadings").splitlines() if name in line
    ]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if name in line:
            found.append(line)
    return found


def test_boots_whole_systems(device: Device, suite: str) -> None:
    assert device.systemctl("is-system-running").stdout.strip() == "running"
    assert device.systemctl("is-system-running", user=True).stdout.strip() == "running"
    assert f"VERSION_CODENAME={suite}" in device.read_text("/etc/os-release")
    assert device.run(["hostname"]).stdout.strip() == suite
    assert device.run(["dpkg", "--audit"]).stdout == ""


def test_tells_exact_exit_codes_and_output(device: Device) -> None:
    assert device.run(["true"]).rc == 0
    assert device.run(["python3", "-c", "raise SystemExit(37)"], check=False).rc == 37
    assert (
        device.run(["python3", "-c", "import os; os.kill(os.getpid(), 15)"], check=False).rc
        == 128 + 15
    )
    both = device.run(["python3", "-c", "import sys; print('out'); print('err', file=sys.stderr)"])
    assert (both.stdout, both.stderr) == ("out\n", "err\n")
    assert device.run(["cat"], input="given").stdout == "given"
    with pytest.raises(CommandError, match="ended with 1"):
        device.run(["false"])


def test_ends_a_command_that_takes_too_long(device: Device) -> None:
    with pytest.raises(CommandError, match="had not ended after"):
        device.run(["sleep", "977"], timeout=0.3)
    assert device.run(["pgrep", "-f", "sleep 977"], check=False).rc == 1


def test_a_unit_has_its_users_rights_and_its_own_group(device: Device) -> None:
    ran = device.run_unit(["cat", "/proc/self/status", "/proc/self/cgroup"], user=USER)
    assert "CapEff:\t0000000000000000" in ran.stdout
    assert "Uid:\t1000\t1000\t1000\t1000" in ran.stdout
    assert "/system.slice/run-" in ran.stdout
    assert device.run_unit(["python3", "-c", "raise SystemExit(9)"], check=False).rc == 9


def test_reads_and_writes_files(device: Device) -> None:
    device.write("/srv/deep/er/file", b"\x00one", mode=0o640, owner=USER)
    seen = device.stat("/srv/deep/er/file")
    assert (seen.kind, seen.mode, seen.owner, seen.group, seen.size) == (
        "regular file",
        0o640,
        USER,
        USER,
        4,
    )
    device.write("/srv/deep/er/file", b"two")
    again = device.stat("/srv/deep/er/file")
    assert (again.inode, again.mode, again.owner) == (seen.inode, 0o640, USER)
    assert again.mtime_ns > seen.mtime_ns
    assert device.read("/srv/deep/er/file") == b"two"
    # An absolute link leads to a file of the device, never to one of the host.
    device.run(["ln", "--symbolic", "/etc/hostname-of-device", "/srv/link"])
    device.write("/etc/hostname-of-device", "inside")
    assert device.read("/srv/link") == b"inside"
    assert device.stat("/srv/link").target == "/etc/hostname-of-device"
    device.stop()
    assert device.read("/srv/link") == b"inside"
    assert not device.exists("/srv/none")


@pytest.mark.parametrize("root", [False, True], ids=["rootless", "rootful"])
def test_runs_containers(device: Device, root: bool) -> None:
    image = device.load_busybox()
    assert device.podman("run", "--rm", image, "echo", "hello", root=root).stdout == "hello\n"
    device.podman(
        "run",
        "--detach",
        "--name",
        "web",
        "--publish",
        "8080:80",
        image,
        "httpd",
        "-f",
        "-h",
        "/etc",
        root=root,
    )
    fetch = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1], timeout=5).read().decode())"
    url = "http://127.0.0.1:8080/passwd"
    deadline = time.monotonic() + 10
    while (
        got := device.run(["python3", "-c", fetch, url], check=False)
    ).rc != 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "root:x:0:0" in got.stdout, got.stderr
    driver = device.podman(
        "info", "--format", "{{.Store.GraphDriverName}}", root=root
    ).stdout.strip()
    assert driver == "overlay"


def test_reboots_with_a_new_boot_id_and_keeps_its_journal(device: Device) -> None:
    before = device.boot_id()
    machine = device.read("/etc/machine-id")
    device.run(["systemd-cat", "--identifier=harness", "echo", "before the reboot"])
    device.reboot()
    after = device.boot_id()
    assert before != after
    assert device.read("/etc/machine-id") == machine
    assert "before the reboot" in [entry.get("MESSAGE") for entry in device.journal(boot=before)]
    assert "before the reboot" not in [entry.get("MESSAGE") for entry in device.journal(boot=after)]


def test_notices_a_reboot_of_its_own(device: Device) -> None:
    before = device.boot_id()
    device.run(["systemd-run", "--quiet", "--on-active=200ms", "systemctl", "reboot"])
    assert device.await_reboot().boot_id() != before


def test_is_killed_and_boots_again(device: Device) -> None:
    device.write("/srv/file", "kept")
    device.kill()
    assert not device.running
    with pytest.raises(HarnessError, match="isn't running"):
        device.run(["true"])
    device.boot()
    assert device.read("/srv/file") == b"kept"


def test_keeps_several_devices_apart(
    devices: Callable[[int], list[Device]], lan: ServedLan
) -> None:
    made = devices(3)
    assert len({device.boot_id() for device in made}) == 3
    assert len({device.read("/etc/machine-id") for device in made}) == 3
    made[0].write("/srv/only-here", "x")
    assert [device.exists("/srv/only-here") for device in made] == [True, False, False]
    addresses = [device.link.address for device in made]
    assert len(set(addresses)) == 3
    reach = "import socket, sys; socket.create_connection((sys.argv[1], 9), 3)"
    refused = made[0].run(["python3", "-c", reach, addresses[1]], check=False)
    assert "ConnectionRefusedError" in refused.stderr  # the other device answered


@pytest.mark.parametrize("how", ["half-open", "down", "drop"])
async def test_cuts_and_heals_a_link(device: Device, lan: ServedLan, how: Cut) -> None:
    device.run(
        ["systemd-run", "--quiet", "--unit=echo", "--property=Restart=always", PYTHON, "-c", ECHO]
    )
    client = await nats.connect(lan.nats.host_url)
    try:
        await _until_answered(client)
        device.link.cut(how)
        with pytest.raises(NatsTimeoutError):
            await client.request("echo", b"cut", timeout=0.5)
        device.link.heal()
        await _until_answered(client)
        device.link.reset()
        await _until_answered(client)
    finally:
        await client.close()


async def _until_answered(client: Client) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            assert (await client.request("echo", b"hello", timeout=2)).data == b"hello"
        except (NatsTimeoutError, NoRespondersError):
            assert time.monotonic() < deadline, "the device never answered"
            time.sleep(0.05)
        else:
            return


async def test_the_server_keeps_its_store_over_kill_pause_and_restart(lan: ServedLan) -> None:
    async def connect() -> Client:
        return await nats.connect(lan.nats.host_url, connect_timeout=20, allow_reconnect=False)

    client = await connect()
    bucket = await client.jetstream().create_key_value(bucket="kept")
    await bucket.put("key", b"value")
    assert client.max_payload == 1024 * 1024
    await client.close()

    lan.nats.kill()
    lan.nats.configure(max_payload=2 * 1024 * 1024, sync_interval="always")
    lan.nats.start()
    client = await connect()
    assert client.max_payload == 2 * 1024 * 1024
    assert (await (await client.jetstream().key_value("kept")).get("key")).value == b"value"

    lan.nats.pause()
    with pytest.raises(NatsTimeoutError):
        await client.flush(timeout=1)
    lan.nats.resume()
    await client.close()
    lan.nats.restart()
    client = await connect()
    assert (await (await client.jetstream().key_value("kept")).get("key")).value == b"value"
    await client.close()


def test_a_power_cut_loses_what_was_not_synced(durable_device: Callable[[], Device]) -> None:
    device = durable_device()
    for number in range(2):
        before = device.boot_id()
        device.write("/srv/kept", f"kept {number}")
        device.run(["sync", "/srv/kept", "/srv"])
        device.write("/srv/lost", "lost" * 1000)
        assert device.read("/srv/lost") == b"lost" * 1000
        device.power_cut(boot=False)
        assert device.read("/srv/kept").decode() == f"kept {number}"
        assert not device.exists("/srv/lost") or device.read("/srv/lost") == b""
        device.boot()
        assert device.boot_id() != before
        assert device.systemctl("is-system-running").stdout.strip() == "running"


def test_a_running_device_holds_no_disk_that_was_mounted_when_it_booted(
    device: Device, durable_device: Callable[[], Device]
) -> None:
    durable = durable_device()
    device.stop()
    device.boot()
    nspawn = Path(f"/proc/{device.host_pid(1)}/status").read_text(encoding="ascii")
    parent = next(line.split()[1] for line in nspawn.splitlines() if line.startswith("PPid:"))
    mounted = Path(f"/proc/{parent}/mounts")
    assert durable.name in mounted.read_text(encoding="utf-8")
    durable.close()
    assert durable.name not in mounted.read_text(encoding="utf-8")


def test_only_a_durable_device_can_lose_its_power(device: Device) -> None:
    with pytest.raises(HarnessError, match="durable"):
        device.power_cut()


def test_keeps_the_agents_unit(device: Device) -> None:
    config: dict[str, dict[str, object]] = {
        "agent": {"device_id": "pi-01", "kinds": ["File"]},
        "intervals": {"relist": 10},
    }
    agent = device.agent.install(config, command=["/usr/bin/sleep", "infinity"])
    assert agent.active
    assert device.read_text("/etc/harmony/agent.toml") == to_toml(config)
    assert device.run(["cat", "/etc/harmony/agent.toml"], user=USER).rc == 0
    assert Path(f"/proc/{device.host_pid(agent.pid)}/comm").read_text(encoding="ascii") == "sleep\n"
    killed = agent.kill(signal.SIGKILL)
    assert agent.await_new_pid(killed) != killed
    assert any("killed" in message.lower() for message in agent.messages())
    device.reboot()
    assert agent.active
    agent.stop()
    assert not agent.active
    assert agent.start().restart().active


def test_the_project_is_installed_in_the_device(device: Device) -> None:
    modules = (
        "import anyio, h11, nats, nkeys, pydantic, sdbus, scores, harmony_agent, harmony_updater"
    )
    device.run([PYTHON, "-c", modules], user=USER)
    for script in ("harmony-agent", "harmony-updater"):
        assert device.run(
            ["readlink", "--canonicalize", f"/usr/local/bin/{script}"]
        ).stdout.startswith("/opt/harmony")
    assert (
        device.run(["find", "/opt/harmony", "-path", "*/harmony_agent/__pycache__/*.pyc"]).stdout
        != ""
    )


def test_leaves_nothing_behind(lab: Lab, suite: str) -> None:
    with Lab() as other:
        lan = other.lan()
        one = other.device(suite, lan)
        durable = other.device(suite, lan, durable=True)
        one.podman("run", "--detach", "--restart=always", one.load_busybox(), "sleep", "1000")
        durable.power_cut()
        run = other.folder.name
        assert traces(run)
    assert traces(run) == []


def test_the_next_run_removes_what_a_killed_one_left(lab: Lab, suite: str) -> None:
    script = f"""
        from tests.device.lab import Lab
        with Lab() as lab:
            lan = lab.lan()
            lab.device({suite!r}, lan)
            lab.device({suite!r}, lan, durable=True)
            print(lab.folder.name, flush=True)
            input()
    """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True
    ) as child:
        assert child.stdout is not None
        run = child.stdout.readline().strip()
        assert run
        assert run not in sweep()  # its owner lives
        child.kill()
    left = traces(run)
    assert any("nats-server" in line for line in left)
    assert any("systemd-nspawn" in line for line in left)
    assert run in sweep()
    assert traces(run) == []


def test_a_runs_file_names_what_is_left() -> None:
    journal = b'{"owner":1}\n{"claim":["tree","/a"]}\n{"claim":["netns","b"]}\n{"freed":["tree","/a"]}\n{"claim":["tr'
    assert left_over(journal) == [("netns", "b")]
    assert left_over(b"") == []


def test_builds_from_the_hosts_own_mirror() -> None:
    lines = [line.split() for line in mirror_sources("trixie").splitlines()]
    assert all(line[0] == "deb" and line[3] == "main" for line in lines)
    # On a host that isn't Debian there is no such mirror, and mmdebstrap takes its own.
    assert [line[2] for line in lines][:1] in (["trixie"], [])


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)], ids=["by hand", "under CI"])
def test_a_skip_is_a_failure_under_ci(tmp_path: Path, ci: str, code: int) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.device.conftest import pytest_runtest_makereport\n"
    )
    (tmp_path / "test_one.py").write_text(
        "import pytest\n\ndef test_one():\n    pytest.skip('no root')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    env = {**os.environ, "CI": ci, "PYTHONPATH": str(REPOSITORY)}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == code, ran.stdout
    assert "no root" in ran.stdout or ci == ""
