"""Package: it is there, or it is waited for. Pure."""

from __future__ import annotations

from typing import Final

from harmony_agent.core.actions import Converged, Plan, Wait
from harmony_agent.core.debian_version import is_older
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.package.actions import PackageAction
from harmony_agent.topology.packages import PackageState
from scores.package import Package

PackagePlan = Plan[PackageAction]
POLL: Final = 10.0


def plan(desired: Desired[Package] | None, observed: PackageState | None) -> PackagePlan:
    """Plan the next look. No plan has an action."""
    if desired is None:
        return Converged()
    spec = desired.spec
    lacks = _lacks(spec, observed)
    if not lacks:
        return Converged()
    text = f"the package {spec.wanted} {lacks}, as root on the device"
    return Wait("PackageMissing", text, "Blocked", POLL)


def _lacks(spec: Package, observed: PackageState | None) -> str:
    """Name what is wrong with it, and the command that mends it. Empty: nothing."""
    if observed is None:
        return f"isn't installed: apt-get install {spec.wanted}"
    if not observed.usable:
        return f"is {observed.state}: dpkg --configure -a"
    if spec.version is not None and is_older(observed.version, spec.version):
        return (
            f"is {observed.version}, and {spec.version} or later is needed: "
            f"apt-get install {spec.wanted}"
        )
    return ""
