"""Keeps the log bounded: what flaps says the same a few times and then once a minute, and all
together have a bound.

A filter of `logging`: drops records, counts them, and lets the next one that passes tell how many.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BURST, SECONDS = 10, 60.0
"""Records of one key that pass at once, and the seconds after which one more does."""
ALL_BURST, ALL_SECONDS = 4000, 0.1
"""The same for all keys together: a generation of a thousand resources fits into the burst."""
MAX_KEYS: Final = 4096


@dataclass(slots=True)
class _Bucket:
    """Tokens, as of a time."""

    tokens: float
    at: float
    dropped: int = 0

    def take(self, now: float, most: float, seconds: float) -> bool:
        """One token, if there is one."""
        self.tokens, self.at = min(most, self.tokens + (now - self.at) / seconds), now
        if self.tokens < 1.0:
            self.dropped += 1
            return False
        self.tokens -= 1.0
        return True


class LogRateLimit(logging.Filter):
    """One a handler."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._all = _Bucket(ALL_BURST, monotonic())
        self._keys: OrderedDict[tuple[object, ...], _Bucket] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether it is passed on; with how many like it were not, where there were any."""
        now = self._monotonic()
        key = (
            record.msg,
            *(record.__dict__.get(name) for name in ("deployment", "resource", "reason")),
        )
        bucket = self._keys.get(key)
        if bucket is None:
            bucket = self._keys[key] = _Bucket(BURST, now)
            if len(self._keys) > MAX_KEYS:
                self._keys.popitem(last=False)
        else:
            self._keys.move_to_end(key)
        if not bucket.take(now, BURST, SECONDS):
            return False
        if not self._all.take(now, ALL_BURST, ALL_SECONDS):
            bucket.dropped += 1
            return False
        if bucket.dropped:
            record.msg, record.args = (
                f"{record.getMessage()} (and {bucket.dropped} more like this)",
                (),
            )
            bucket.dropped = 0
        return True
