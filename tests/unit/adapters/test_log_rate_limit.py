"""A log that something flaps into stays small, loses no other record, and says how many it left
out.
"""

from __future__ import annotations

import logging
from typing import Any

from harmony_agent.adapters.sd_notify import ALL_BURST, BURST, MAX_KEYS, SECONDS, LogRateLimit


class Now:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def record(message: str = "%s is %s", *args: Any, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("harmony_agent", logging.INFO, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


def passed(bounds: LogRateLimit, *records: logging.LogRecord) -> list[str]:
    return [one.getMessage() for one in records if bounds.filter(one)]


def test_a_flapping_resource_is_told_a_few_times_and_then_once_a_minute() -> None:
    now = Now()
    bounds = LogRateLimit(now)
    told = []
    for _ in range(600):
        for phase, reason in (("Ready", None), ("Degraded", "CrashLoop")):
            told += passed(
                bounds, record("%s is %s", "File/a", phase, resource="File/a", reason=reason)
            )
        now.seconds += 1
    assert len(told) <= 2 * (BURST + 600 / SECONDS)
    assert told[-1].endswith("more like this)")


def test_what_was_left_out_is_counted() -> None:
    now = Now()
    bounds = LogRateLimit(now)
    assert len(passed(bounds, *(record("x %d", n) for n in range(BURST + 7)))) == BURST
    now.seconds += SECONDS
    assert passed(bounds, record("x %d", 99)) == ["x 99 (and 7 more like this)"]
    now.seconds += SECONDS
    assert passed(bounds, record("x %d", 100)) == ["x 100"]


def test_one_that_flaps_silences_no_other() -> None:
    bounds = LogRateLimit(Now())
    passed(bounds, *(record("%s", "a", resource="File/a") for _ in range(1000)))
    assert passed(bounds, record("%s", "b", resource="File/b")) == ["b"]
    assert passed(bounds, record("%s", "a", resource="File/a", reason="NoSpace")) == ["a"]


def test_all_together_are_bounded_and_so_is_the_memory() -> None:
    now = Now()
    bounds = LogRateLimit(now)
    told = 0
    for number in range(4 * MAX_KEYS):
        told += len(passed(bounds, record("x", resource=f"File/{number}")))
    assert told == ALL_BURST
    assert len(bounds._keys) == MAX_KEYS
    now.seconds += 60
    assert passed(bounds, record("x", resource="File/other")) == ["x"]
