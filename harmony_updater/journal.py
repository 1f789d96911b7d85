"""What must survive a power cut: one journal per attempt. What can't be read in full is refused, and the file named."""

import contextlib
import os
from typing import Literal

from pydantic import Field, ValidationError

from harmony_updater.machine import TERMINAL
from harmony_updater.protocol import Status, Time

LOGS, KEPT = (
    10,
    100,
)  # attempts of which a log, and a journal, is kept, though they have ended and can't come again
FULL = 300  # attempts beyond which only those are accepted that can be forgotten after a day


class JournalError(Exception):
    """A journal that can't be trusted: nothing may change on this device until an operator has looked at it."""


class Record(Status):
    """An attempt. `bootIdBefore` is of the boot in which apt ran.

    Until apt has ended, `before` are the versions that were installed, and `planned` those that are to be, an empty one
    where the package is to go.
    """

    version: Literal[1] = 1
    expiresAt: Time
    before: dict[str, str] = Field(default_factory=dict)
    planned: dict[str, str] = Field(default_factory=dict)
    rebootsAsked: int = 0
    clearedAt: Time | None = None


def write_durably(path: str, text: str) -> None:
    """`text` is at `path` and on disk, or it raises OSError and what was there before may still be."""
    folder, name = os.path.split(path)
    with open(f"{folder}/.{name}.new", "wb") as file:
        if os.write(file.fileno(), text.encode()) < len(text.encode()):
            raise OSError(f"cannot write all of {path}")
        os.fsync(file.fileno())
    os.replace(f"{folder}/.{name}.new", path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: str) -> str:
    """The text at `path`, without space around it; empty when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


class Journal:
    """A directory with `ATTEMPT.json`, and of the run of apt `ATTEMPT.exit`, how it ended, and `ATTEMPT.log`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def load(self, attempt: str) -> Record | None:
        """The attempt's record; None when there is none, JournalError when it can't be trusted."""
        path = f"{self.folder}/{attempt}.json"
        try:
            with open(path, "rb") as file:
                record = Record.model_validate_json(file.read())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise JournalError(
                f"cannot trust {path}: {error.errors()[0]['msg']}; repair or move it away"
            ) from None
        mutated = record.phase in {"applying", "rebooting", "verifying", "complete"}
        if record.attemptId != attempt or (mutated and not record.bootIdBefore):
            raise JournalError(
                f"cannot trust {path}: it contradicts itself; repair or move it away"
            )
        return record

    def write(self, record: Record) -> None:
        """Put the record on disk, in place of the one before; OSError when that can't be done."""
        write_durably(f"{self.folder}/{record.attemptId}.json", record.model_dump_json())

    def forget(self, records: list[Record], now: str) -> None:
        """Remove what isn't needed any more of these, the newest last.

        The newest KEPT stay, and what may be asked for again, what needs repair, and what is under way. Of what stays,
        only the newest LOGS have a log.
        """
        ended = [record for record in records if record.phase in TERMINAL]
        for record in ended[:-KEPT]:
            if record.expiresAt <= now and (record.phase != "repair-required" or record.clearedAt):
                self._remove(record.attemptId, ".json", ".exit", ".log", ".log.1")
        for record in ended[:-LOGS]:
            self._remove(record.attemptId, ".log", ".log.1")

    def _remove(self, attempt: str, *endings: str) -> None:
        for ending in endings:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.folder}/{attempt}{ending}")

    def all(self) -> list[Record]:
        """Every record, the active one first; JournalError when one can't be trusted or more than one is active."""
        names = [
            name.removesuffix(".json") for name in os.listdir(self.folder) if name.endswith(".json")
        ]
        records = [record for name in names if (record := self.load(name))]
        active = [f"{record.attemptId}.json" for record in records if record.phase not in TERMINAL]
        if len(active) > 1:
            raise JournalError(
                f"cannot tell which of {active} in {self.folder} is active; move all but one away"
            )
        return sorted(
            records, key=lambda record: (record.phase in TERMINAL, record.startedAt or "")
        )
