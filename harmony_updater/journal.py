"""Keep what must survive a power cut: one journal for each attempt.

What can't be read in full is refused, and the file named.
"""

import contextlib
import os
from typing import Literal

from pydantic import Field, ValidationError

from harmony_updater.machine import TERMINAL
from harmony_updater.protocol import Status, Time

LOGS = 10  # ended attempts whose log stays
KEPT = 100  # ended attempts whose journal stays, though they can't come again
FULL = 300  # attempts beyond which only those are accepted that can't come again after a day


class JournalError(Exception):
    """Raised for a journal that can't be trusted: nothing changes until an operator has looked."""


class Record(Status):
    """An attempt. `bootIdBefore` is of the boot in which apt ran.

    Until apt has ended, `before` are the versions that were installed, and `planned` those that
    are to be, an empty one where the package is to go.
    """

    version: Literal[1] = 1
    expiresAt: Time
    before: dict[str, str] = Field(default_factory=dict)
    planned: dict[str, str] = Field(default_factory=dict)
    rebootsAsked: int = 0
    clearedAt: Time | None = None

    @property
    def ended(self) -> bool:
        """Tell whether it changes no more."""
        return self.phase in TERMINAL

    @property
    def needs_repair(self) -> bool:
        """Tell whether it keeps the device from any other attempt."""
        return self.phase == "repair-required" and not self.clearedAt

    @property
    def contradicts_itself(self) -> bool:
        """Tell whether apt ran, as the phase says, in a boot that isn't known."""
        mutated = {"applying", "rebooting", "verifying", "complete"}
        return self.phase in mutated and not self.bootIdBefore


def write_durably(path: str, text: str) -> None:
    """Put `text` on disk at `path`; on OSError what was there before may still be."""
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
    """Read the text at `path`, without space around it; empty when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


class Journal:
    """The journals in a directory, as `ATTEMPT.json`.

    Beside it are, of the run of apt, `ATTEMPT.exit`, how it ended, and `ATTEMPT.log`.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def load(self, attempt: str) -> Record | None:
        """Read a record; None when there is none, JournalError when it can't be trusted."""
        path = f"{self.folder}/{attempt}.json"
        try:
            with open(path, "rb") as file:
                record = Record.model_validate_json(file.read())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise JournalError(f"cannot trust {path}: {why}; repair or move it away") from None
        if record.attemptId != attempt or record.contradicts_itself:
            raise JournalError(
                f"cannot trust {path}: it contradicts itself; repair or move it away"
            )
        return record

    def all(self) -> list[Record]:
        """Read every record, the active one first, then the oldest.

        JournalError when one can't be trusted or more than one is active.
        """
        names = [name for name in os.listdir(self.folder) if name.endswith(".json")]
        found = [self.load(name.removesuffix(".json")) for name in names]
        records = [record for record in found if record is not None]
        active = [f"{record.attemptId}.json" for record in records if not record.ended]
        if len(active) > 1:
            where = f"{active} in {self.folder}"
            raise JournalError(f"cannot tell which of {where} is active; move all but one away")
        return sorted(records, key=lambda record: (record.ended, record.startedAt or ""))

    def write(self, record: Record) -> None:
        """Put the record on disk, in place of the one before; OSError when that can't be done."""
        write_durably(f"{self.folder}/{record.attemptId}.json", record.model_dump_json())

    def forget(self, records: list[Record], now: str) -> None:
        """Remove what isn't needed any more of these, the newest of which is the last.

        The newest KEPT stay. So does what may be asked for again, as it hasn't expired; what needs
        repair; and what is under way. Logs stay of the newest LOGS.
        """
        ended = [record for record in records if record.ended]
        for record in ended[:-LOGS]:
            self._remove(record, ".log", ".log.1")
        for record in ended[:-KEPT]:
            if record.expiresAt <= now and not record.needs_repair:
                self._remove(record, ".exit", ".json")

    def _remove(self, record: Record, *endings: str) -> None:
        for ending in endings:
            with contextlib.suppress(OSError):  # it isn't there, or is tried again the next time
                os.unlink(f"{self.folder}/{record.attemptId}{ending}")
