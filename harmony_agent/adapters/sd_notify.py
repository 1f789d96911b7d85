"""The agent as a service of systemd: readiness, status and watchdog (sd_notify), and its log.

Both go as datagrams to a Unix socket. If that isn't there, nothing is sent and the log goes to
standard error. The log is bounded: what flaps says the same a few times and then once a minute.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

log = logging.getLogger(__name__)

_JOURNAL: Final = "/run/systemd/journal/socket"
_PRIORITY: Final = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
_PATIENCE: Final = 0.2
"""Seconds that a record waits for a full journal. No later one waits while it stays full."""
_FIELDS: Final = ("device", "deployment", "resource", "generation", "reason")

BURST, SECONDS = 10, 60.0
"""Records of one key that pass at once, and seconds until one more passes."""
ALL_BURST, ALL_SECONDS = 4000, 0.1
"""The same for all keys together: a generation of a thousand resources fits into the burst."""
MAX_KEYS: Final = 4096


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Tell the service manager, as ``READY=1`` or ``STATUS=…``, if one listens."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.settimeout(1.0)
        sender.sendto(state.encode(), address)


def watchdog_seconds(environ: Mapping[str, str] = os.environ) -> float | None:
    """Return the watchdog period in seconds. None without a watchdog."""
    text, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or int(text) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(text) / 1e6


async def feed_watchdog(stuck: Callable[[], str], environ: Mapping[str, str] = os.environ) -> None:
    """Tell of progress three times in each watchdog period, while `stuck` names nothing.

    The log names what is stuck. The service manager then restarts the agent.
    """
    seconds = watchdog_seconds(environ)
    if seconds is None:
        return
    said = ""
    while True:
        what = stuck()
        if not what:
            notify("WATCHDOG=1", environ)
        elif what != said:
            log.error(
                "%s makes no progress: the watchdog isn't fed", what, extra={"reason": "Stuck"}
            )
        said = what
        await anyio.sleep(seconds / 3)


class JournalHandler(logging.Handler):
    """Log records as journal entries with HARMONY_DEVICE, …_DEPLOYMENT, …_RESOURCE, …_GENERATION,
    …_REASON.
    """

    def __init__(self, device: str, path: str = _JOURNAL) -> None:
        """Connect. Raises OSError if there is no journal."""
        super().__init__()
        self._device = device
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_PATIENCE)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record. It is dropped if the journal doesn't take it: the agent must go on."""
        try:
            data = self._entry(record)
        except Exception:  # as every handler: a record that can't be formatted stops nobody
            self.handleError(record)
            return
        try:
            self._socket.send(data)
            self._socket.settimeout(_PATIENCE)
        except OSError:
            self._socket.settimeout(0.0)

    def _entry(self, record: logging.LogRecord) -> bytes:
        fields = {
            "MESSAGE": record.getMessage(),
            "PRIORITY": str(_PRIORITY.get(record.levelno, 6)),
            "SYSLOG_IDENTIFIER": "harmony-agent",
            "CODE_FUNC": f"{record.name}.{record.funcName}",
        }
        values = {"device": self._device, **record.__dict__}
        fields |= {
            f"HARMONY_{name.upper()}": str(values[name])
            for name in _FIELDS
            if values.get(name) is not None
        }
        return b"".join(_encode(name, value) for name, value in fields.items())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


def _encode(name: str, value: str) -> bytes:
    """Encode for the journal's native protocol: NAME=value, or a length if there are lines."""
    data = value.encode("utf-8", "backslashreplace")
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"


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
        """Return whether it is passed on. It then tells how many like it were dropped."""
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


def set_up_logging(device: str, *, verbose: bool, environ: Mapping[str, str] = os.environ) -> None:
    """Log to the journal if systemd owns standard error, else to standard error."""
    handler: logging.Handler
    try:
        if "JOURNAL_STREAM" not in environ:
            raise OSError  # noqa: TRY301  # no journal is asked for
        handler = JournalHandler(device)
    except OSError:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(LogRateLimit())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("harmony_agent").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # its errors come to us by callback
