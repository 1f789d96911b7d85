"""SystemUpgrade: asks the device's root updater, once, for a full upgrade of its packages and a
reboot.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from scores.base import Score
from scores.names import Identifier, Time


class SystemUpgrade(Score):
    """One attempt of one run. There is nothing to cancel and nothing to undo."""

    kind: Literal["SystemUpgrade"] = Field(
        default="SystemUpgrade", description="SystemUpgrade, as the class says."
    )
    attempt_id: Identifier = Field(
        description="Unique for this device and run; the same id is never run twice.",
        examples=["2026-11-29-pi-01"],
    )
    run_uid: Identifier = Field(
        description="The task run that this attempt is part of.", examples=["2026-11-29"]
    )
    expires_at: Time = Field(
        description="The attempt can't start later than this: RFC 3339, in UTC.",
        examples=["2026-11-29T18:00:00Z"],
    )
