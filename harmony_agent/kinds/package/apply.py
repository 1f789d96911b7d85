"""Package: takes no step."""

from __future__ import annotations

from typing import assert_never

from harmony_agent.kinds.package.actions import PackageAction


class Applier:
    """Changes nothing on the device."""

    async def apply(self, action: PackageAction) -> None:
        """Nothing: no plan has an action."""
        assert_never(action)
