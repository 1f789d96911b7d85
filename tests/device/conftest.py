"""Fixtures that give a test its own devices, networks and servers. All that they can do is in
lab.py.
"""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.device.image import SUITES
from tests.device.lab import Lab, ServedLan, missing
from tests.device.machine import Device
from tests.device.tools import HarnessError

HERE = Path(__file__).parent
_LAB = pytest.StashKey[Lab]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, so that `-m 'not device'` leaves it out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.device)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under CI a skip is a failure; and a failure shows the end of each running device's
    journal.
    """
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longreprtext}"
    lab = item.session.stash.get(_LAB, None)
    if report.failed and lab is not None:
        for device in lab.running:
            report.sections.append((f"journal of {device.name}", _journal_end(device)))
    return report


def _journal_end(device: Device) -> str:
    try:
        return "\n".join(device.messages()[-40:])
    except (HarnessError, AssertionError) as error:
        return f"cannot read it: {error}"


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Where devices are made; skips when this machine can't boot one."""
    if lacks := missing():
        pytest.skip("; ".join(lacks))
    with Lab() as made:
        request.session.stash[_LAB] = made
        yield made
        del request.session.stash[_LAB]


@pytest.fixture(params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """Each Debian in turn."""
    return str(request.param)


@pytest.fixture
def lan(lab: Lab) -> Iterator[ServedLan]:
    """A network with a nats-server, for this test alone."""
    made = lab.lan()
    yield made
    made.close()


@pytest.fixture
def device(lab: Lab, lan: ServedLan, suite: str) -> Iterator[Device]:
    """A booted device on the lan."""
    made = lab.device(suite, lan)
    yield made
    made.close()


@pytest.fixture
def devices(lab: Lab, lan: ServedLan, suite: str) -> Iterator[Callable[[int], list[Device]]]:
    """Makes that many booted devices on the lan, side by side."""
    made: list[Device] = []

    def make(count: int) -> list[Device]:
        more = lab.devices(count, suite, lan)
        made.extend(more)
        return more

    yield make
    for one in made:
        one.close()


@pytest.fixture
def durable_device(lab: Lab, lan: ServedLan, suite: str) -> Iterator[Callable[[], Device]]:
    """Makes a booted device whose power can be cut."""
    made: list[Device] = []

    def make() -> Device:
        made.append(lab.device(suite, lan, durable=True))
        return made[-1]

    yield make
    for one in made:
        one.close()
