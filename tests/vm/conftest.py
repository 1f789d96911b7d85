"""Fixtures: one virtual machine for all tests of this folder, because it takes long to boot. See
machine.py.
"""

import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.device.control import Control
from tests.device.lab import ServedLan, missing
from tests.device.upgrades import PI
from tests.vm.machine import QEMU, Vm, VmLab
from tests.vm.services import Served

HERE = Path(__file__).parent
_VM = pytest.StashKey[Vm]()
_TIMEOUT = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, and give it the time that an emulated processor takes."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vm)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_TIMEOUT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the end of the machine's console and journal."""
    report = yield
    vm = item.session.stash.get(_VM, None)
    if report.failed and vm is not None:
        report.sections.append((f"console of {vm.name}", vm.last_words()))
        if vm.running:
            report.sections.append((f"journal of {vm.name}", _journal_end(vm)))
    return report


def _journal_end(vm: Vm) -> str:
    try:
        return "\n".join(vm.messages()[-60:])
    except (RuntimeError, AssertionError) as error:
        return f"cannot read it: {error}"


@pytest.fixture(scope="session")
def lab() -> Iterator[VmLab]:
    """Where the machine is made. That this host can't make one is a failure: nobody asks for these
    tests by chance.
    """
    lacks = missing()
    if shutil.which(QEMU) is None:
        lacks.append(
            f"cannot boot a virtual machine: {QEMU} not installed; see tests/vm/apt-packages.txt"
        )
    if lacks:
        pytest.fail("; ".join(lacks), pytrace=False)
    with VmLab() as made:
        yield made


@pytest.fixture(scope="session")
def lan(lab: VmLab) -> Iterator[ServedLan]:
    """The network, with a nats-server."""
    made = lab.lan()
    yield made
    made.close()


@pytest.fixture(scope="session")
def control(lan: ServedLan) -> Iterator[Control]:
    """The control plane's hand."""
    with Control(lan.nats.host_url) as made:
        yield made


@pytest.fixture(scope="session")
def vm(request: pytest.FixtureRequest, lab: VmLab, lan: ServedLan) -> Iterator[Vm]:
    """The machine, booted."""
    made = lab.vm(lan, boot=False)
    request.session.stash[_VM] = made
    yield made.boot()
    made.close()
    del request.session.stash[_VM]


@pytest.fixture(scope="session")
def served(vm: Vm, lab: VmLab, control: Control) -> Iterator[Served]:
    """The machine with agent and updater as its services."""
    made = Served(vm, lab.folder / "apt")
    control.resync(PI, timeout=60)
    yield made
    made.close()
