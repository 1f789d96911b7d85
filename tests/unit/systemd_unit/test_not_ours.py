"""What stands at a place of a unit that comes to us later is somebody's, also where it is exactly as
wanted: it is there at the end.
"""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.topology.units import MASK
from tests.unit.systemd_unit.bench import NAME, SLEEP, Bench, web

MEMORY = "[Service]\nMemoryMax=64M\n"
DROPIN = f"{NAME}.d/10-mem.conf"


@pytest.mark.parametrize(
    ("disk", "later"),
    [
        ({NAME: SLEEP}, {"content": SLEEP}),
        ({NAME: SLEEP, DROPIN: MEMORY}, {"dropins": {"10-mem.conf": MEMORY}}),
        (
            {NAME: SLEEP, DROPIN: MEMORY},
            {"content": SLEEP, "dropins": {"10-mem.conf": MEMORY}},
        ),
        ({NAME: MASK}, {"masked": True, "state": "stopped"}),
    ],
    ids=["unit file", "drop-in", "both", "mask"],
)
@pytest.mark.parametrize(
    "last", [{}, {"content": f"{SLEEP}# ours\n", "adopt": True}], ids=["", "then otherwise"]
)
async def test_what_is_asked_for_later_stays(
    disk: dict[str, str], later: dict[str, Any], last: dict[str, Any]
) -> None:
    bench = Bench()
    bench.units.disk |= disk
    await bench.units.reload(NAME)
    await bench.want(web(content=None, state="none"))
    bench.units.calls.clear()
    await bench.want(web(**{"content": None, "state": "none", **later}))
    assert bench.units.disk == disk
    assert not [call for call in bench.units.calls if call.startswith(("write", "remove"))]
    if last:
        await bench.want(web(state="none", **last))
        assert bench.units.disk[NAME] == last["content"]
    await bench.want(None)
    assert bench.units.disk == disk
    assert bench.units.kept == {}
    assert bench.store.record(NAME) is None


async def test_a_drop_in_of_others_outlives_a_unit_of_ours() -> None:
    bench = Bench()
    await bench.want(web())
    bench.units.disk[DROPIN] = MEMORY
    await bench.units.reload(NAME)
    await bench.want(web(dropins={"10-mem.conf": MEMORY}))
    await bench.want(None)
    assert bench.units.disk == {DROPIN: MEMORY}
    assert bench.units.kept == {}


async def test_what_an_administrator_did_before_a_spec_asked_for_it_stays() -> None:
    """Enabled and started by hand while no spec had a say."""
    bench = Bench()
    bench.units.disk[NAME] = SLEEP
    await bench.units.reload(NAME)
    await bench.want(web(content=None, state="none"))
    await bench.units.enable(NAME)
    await bench.units.start(NAME)
    await bench.units.reload(NAME)
    await bench.want(web(content=None, enabled=True, state="running"))
    await bench.want(None)
    assert NAME in bench.units.enabled
    assert bench.units.loaded[NAME].active == "active"
