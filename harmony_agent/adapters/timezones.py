"""The system's time zones, from tzdata and /etc/localtime.

The library is imported only where a zone is asked for: most devices have no schedule.
"""

from __future__ import annotations

import os
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final

_LOCAL: Final = Path("/etc/localtime")


class SystemTimezones:
    """Implements `topology.timezones.Timezones`."""

    def __init__(self, local: Path = _LOCAL) -> None:
        self._local = local
        self._own: tuple[object, tzinfo] = (None, UTC)

    def zone(self, name: str) -> tzinfo | None:
        """The zone of this name; a device that has no time zone of its own is in UTC."""
        if name == "UTC":
            return UTC
        if name == "local":
            return self._device()
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - see above

        try:
            return ZoneInfo(name)
        except (OSError, ValueError, LookupError):
            return None

    def _device(self) -> tzinfo | None:
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - see above

        try:
            found = os.stat(self._local)
            fingerprint = found.st_dev, found.st_ino, found.st_mtime_ns
            if self._own[0] != fingerprint:
                with self._local.open("rb") as file:
                    self._own = fingerprint, ZoneInfo.from_file(file, "local")
        except FileNotFoundError:
            return UTC
        except (OSError, ValueError):
            return None
        return self._own[1]
