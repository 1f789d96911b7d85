"""systemd's side: readiness, status and watchdog (sd_notify), and structured log records into the
journal.

Both are datagrams to a Unix socket that may not be there: then nothing is sent, and logs go to
standard error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from harmony_agent.adapters.log_rate_limit import LogRateLimit

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
"""Seconds for which a full journal may hold a record up; while it stays full, none."""
_FIELDS: Final = ("device", "deployment", "resource", "generation", "reason")


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Tell the service manager, as ``READY=1`` or ``STATUS=…``; nothing where none listens."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.settimeout(1.0)
        sender.sendto(state.encode(), address)


def watchdog_seconds(environ: Mapping[str, str] = os.environ) -> float | None:
    """Within how many seconds the service manager wants to hear of progress; None where it
    doesn't.
    """
    text, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or int(text) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(text) / 1e6


async def feed_watchdog(stuck: Callable[[], str], environ: Mapping[str, str] = os.environ) -> None:
    """Tell of progress three times in each watchdog period, while `stuck` names nothing; without a
    watchdog, never.

    What is stuck is named in the log; the service manager then restarts the agent.
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
        """OSError where there is no journal."""
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
        """Send one record; what the journal doesn't take is dropped: a journal that hangs must not
        stop the agent.
        """
        try:
            data = self._entry(record)
        except (
            Exception
        ):  # as every handler: a record that can't be formatted is shown, and stops nobody
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
        """Let go of the socket."""
        self._socket.close()
        super().close()


def _encode(name: str, value: str) -> bytes:
    """The journal's native protocol: NAME=value, or with a length where the value has lines."""
    data = value.encode("utf-8", "backslashreplace")
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"


def set_up_logging(device: str, *, verbose: bool, environ: Mapping[str, str] = os.environ) -> None:
    """Into the journal when systemd started us (it then owns standard error), else to standard
    error.
    """
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
