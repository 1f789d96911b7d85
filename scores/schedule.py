"""Schedules as cron writes them: five fields, and the times that they name.

The library is imported only where a schedule is read: most devices have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from scores.names import Text

_A_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)


def _cron(value: str) -> str:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - see above

    try:
        times = CronSim(value, _A_DAY)
        known = len(value.split()) == 5  # the library takes seconds, too
        comes = known and next(times, None) is not None
    except CronSimError:
        known = comes = False
    if not known:
        raise PydanticCustomError(
            "InvalidCron", "must be a cron expression of five fields, as 0 3 * * 0"
        )
    if not comes:
        raise PydanticCustomError("InvalidCron", "must name a time that comes")
    return value


Cron = Annotated[Text, Field(max_length=256), AfterValidator(_cron)]


def times_after(cron: str, moment: datetime) -> Iterator[datetime]:
    """The times later than `moment`, in its time zone, soonest first.

    Where clocks are set forward, a time of the hour that is left out comes right after it. Where
    they are set back, an hour's fixed time comes once.
    """
    from cronsim import CronSim  # noqa: PLC0415 - see above

    return CronSim(cron, moment)


def times_before(cron: str, moment: datetime) -> Iterator[datetime]:
    """The times earlier than `moment`, in its time zone, latest first."""
    from cronsim import CronSim  # noqa: PLC0415 - see above

    return CronSim(cron, moment, reverse=True)
