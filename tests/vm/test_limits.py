"""Limits that a Score sets bite, on a kernel with all its controllers: a device in namespaces has
them not.
"""

import time
from collections.abc import Iterator

import pytest

from scores import Container, File, Manifest, SystemdUnit
from scores.container_parts import Mount
from tests.device.control import Control
from tests.device.prepare import BUSYBOX, USER
from tests.device.upgrades import PI
from tests.vm.machine import Vm
from tests.vm.services import Served

MIB = 1024 * 1024
SECONDS = 120
FORKS = "i=0\nwhile [ $i -lt 100 ]; do sleep 3 & i=$((i+1)); echo $i; done\n"
HUNGRY = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/dd if=/dev/zero of=/dev/null bs=100M count=1\n"


@pytest.fixture(scope="module")
def limited(served: Served, control: Control) -> Iterator[Vm]:
    """A container with every limit, as a manifest brings it."""
    web = Container(
        name="limited", image=BUSYBOX, command=["sleep"], args=["infinity"], memory="64Mi", cpus=0.5, pids=40,
        mounts=[Mount(type="bind", source="/srv/limits", target="/limits", read_only=True)],
        after=["File/forks"],
    )  # fmt: skip
    forks = File(name="forks", path="/srv/limits/forks", content=FORKS, parents=True)
    control.converge(PI, Manifest(deployment="limits", scores=[forks, web]), timeout=SECONDS)
    yield served.vm
    control.remove(PI, "limits", timeout=SECONDS)


def seen(vm: Vm, name: str) -> str:
    """What the container's own control group says."""
    return vm.podman("exec", "limited", "cat", f"/sys/fs/cgroup/{name}").stdout.strip()


def events(vm: Vm, name: str) -> dict[str, int]:
    """Its counters."""
    return {
        key: int(value) for key, value in (line.split() for line in seen(vm, name).splitlines())
    }


def test_a_containers_memory_is_bounded(limited: Vm) -> None:
    assert seen(limited, "memory.max") == str(64 * MIB)
    fits = limited.podman(
        "exec", "limited", "dd", "if=/dev/zero", "of=/dev/null", "bs=20M", "count=1", check=False
    )
    assert fits.rc == 0, fits.stderr
    over = limited.podman(
        "exec", "limited", "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1", check=False
    )
    assert over.rc == 137
    assert events(limited, "memory.events")["oom_kill"] >= 1


def test_a_containers_processor_time_is_bounded(limited: Vm) -> None:
    assert seen(limited, "cpu.max") == "50000 100000"
    before, begun = events(limited, "cpu.stat"), time.monotonic()
    burn = ["exec", "limited", "timeout", "6", "dd", "if=/dev/zero", "of=/dev/null", "bs=64k"]
    assert limited.podman(*burn, check=False).rc == 143
    after, lasted = events(limited, "cpu.stat"), time.monotonic() - begun
    assert after["nr_throttled"] > before["nr_throttled"]
    assert (after["usage_usec"] - before["usage_usec"]) / 1e6 < 0.65 * lasted


def test_a_containers_processes_are_bounded(limited: Vm) -> None:
    assert seen(limited, "pids.max") == "40"
    forked = limited.podman("exec", "limited", "sh", "/limits/forks", check=False)
    assert forked.rc != 0
    assert "fork" in forked.stderr
    assert 1 <= len(forked.stdout.split()) < 40
    # Nothing reaps the sleepers, so there is no room for one more command: looked at from outside.
    group = limited.podman("inspect", "--format={{.State.CgroupPath}}", "limited").stdout.strip()
    assert limited.read_text(f"/sys/fs/cgroup{group}/pids.events").split()[1] != "0"


def test_a_units_memory_is_bounded(served: Served, control: Control) -> None:
    def hungry(limit: str) -> Manifest:
        unit = SystemdUnit(
            name="hungry.service", content=HUNGRY, dropins={"10-mem.conf": f"[Service]\nMemoryMax={limit}\n"},
            state="running",
        )  # fmt: skip
        return Manifest(deployment="unit", scores=[unit])

    control.apply(PI, hungry("40M"))
    show = ["systemctl", "--user", "show", "--property=Result,MemoryMax", "hungry.service"]
    shown = served.vm.until(
        "it was killed for its memory", show, says="Result=oom-kill", user=USER, timeout=SECONDS
    )
    assert f"MemoryMax={40 * MIB}" in shown.stdout.splitlines()
    control.wait(PI, "unit", phase="Degraded", timeout=SECONDS)
    control.converge(PI, hungry("300M"), timeout=SECONDS)
    assert "Result=success" in served.vm.run(show, user=USER).stdout.splitlines()
    control.remove(PI, "unit", timeout=SECONDS)
