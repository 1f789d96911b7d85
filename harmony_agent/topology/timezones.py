"""Time zones of the device. No I/O."""

from __future__ import annotations

from datetime import tzinfo
from typing import Protocol


class Timezones(Protocol):
    """The device's list of time zones, and its own. Cheap when nothing changed."""

    def zone(self, name: str) -> tzinfo | None:
        """The zone of this name; ``local`` is the device's own. None where there is no such zone.

        The same object as long as nothing changed.
        """
        ...
