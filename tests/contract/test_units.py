"""The cases of `units_cases`, over the fake and over real managers: a user's and the system's, of
each Debian.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract import units_cases
from tests.contract.units_world import FakeWorld
from tests.device.image import SUITES
from tests.device.lab import Lab, missing
from tests.device.machine import Device
from tests.device.prepare import USER

INSIDE = "/opt/contract"
REPOSITORY = Path(__file__).resolve().parents[2]
NEEDED = (
    *(
        "tests/__init__.py",
        "tests/fakes/__init__.py",
        "tests/fakes/store.py",
        "tests/fakes/drive.py",
    ),
    *("tests/fakes/units.py", "tests/contract/__init__.py", "tests/contract/units_cases.py"),
    "tests/contract/units_world.py",
)


@pytest.mark.parametrize("name", units_cases.CASES)
async def test_in_memory(name: str) -> None:
    world = FakeWorld()
    await units_cases.CASES[name](world)
    await world.close()
    assert world.units.closed


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if lacks := missing():
        pytest.skip("; ".join(lacks))
    with Lab() as made:
        yield made


@pytest.fixture(scope="module", params=SUITES)
def device(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Device]:
    made = lab.device(request.param)
    for path in NEEDED:
        made.write(f"{INSIDE}/{path}", (REPOSITORY / path).read_text(encoding="utf-8"))
    yield made
    made.close()


@pytest.fixture(scope="module", params=["user", "system"])
def real(request: pytest.FixtureRequest, device: Device) -> dict[str, Any]:
    """All cases on one manager, run one after another in one process there."""
    argv = ["/opt/harmony/bin/python", "-W", "error", "-m", "tests.contract.units_world"]
    user = USER if request.param == "user" else None
    ran = device.run(["env", "-C", INSIDE, *argv], user=user, timeout=240)
    results: dict[str, Any] = json.loads(ran.stdout)
    return results


@pytest.mark.device
@pytest.mark.parametrize("name", units_cases.CASES)
def test_on_a_device(real: dict[str, Any], name: str) -> None:
    assert real[name]["error"] == ""
