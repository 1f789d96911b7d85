"""A unit that is enabled by a target which its manager doesn't have."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.actions import Converged
from harmony_agent.kinds.systemd_unit import UnitReconciler
from tests.unit.systemd_unit.bench import Bench, web

SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n"


def install(lines: str) -> str:
    return f"{SLEEP}[Install]\n{lines}\n"


@pytest.mark.parametrize(
    ("content", "fields", "named"),
    [
        (install("WantedBy=multi-user.target"), {}, "multi-user.target is"),
        (install("WantedBy=multi-user.target\nRequiredBy=graphical.target"), {}, "graphical.target, multi-user.target is"),
        (install("WantedBy=multi-user.target default.target"), {}, ""),
        (install("WantedBy=multi-user.target\nWantedBy=own.target"), {}, ""),
        (install("WantedBy=default.target"), {}, ""),
        (install("WantedBy=multi-user.target"), {"enabled": None}, ""),
        (install("#WantedBy=multi-user.target\nWantedBy=timers.target"), {}, ""),
    ],
)  # fmt: skip
async def test_it_is_told_where_no_boot_starts_it(
    content: str, fields: dict[str, Any], named: str
) -> None:
    bench = Bench()
    done = await bench.want(web(**{"content": content, "enabled": True, **fields}))
    assert isinstance(done.plan, Converged)
    assert (done.plan.phase, done.plan.reason) == ("Ready", "TargetMissing" if named else "")
    assert named in done.plan.message


async def test_the_system_s_manager_has_them() -> None:
    bench = Bench()
    bench.kind = UnitReconciler(bench.units, bench.store, for_user=False)
    done = await bench.want(web(content=install("WantedBy=multi-user.target"), enabled=True))
    assert done.plan == Converged()
