"""Units: what a service manager is capable of, and what is seen of one unit. Units and unit files;
no library.

Files are named relative to the unit directory: ``web.service`` and ``web.service.d/10-mem.conf``.
What stands at such a place is told by a short text, never by its content: ``""`` nothing,
``sha256:…`` a regular file, ``link:<target>`` a symbolic link, ``unreadable`` a regular file or a
directory of drop-ins that the agent may not read, ``other`` anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Final, Protocol

from harmony_agent.core.frozen import frozen
from harmony_agent.core.reconciler import LogLine

MASK: Final = "link:/dev/null"
OTHER: Final = "other"
UNREADABLE: Final = "unreadable"
RUNNING: Final = frozenset({"active", "reloading", "refreshing"})
"""Active states in which a unit does its work."""

REFUSED: Final = frozenset({"bad-setting", "error"})
"""Load states of a unit whose files the manager refuses."""


@frozen()
class Complaint:
    """A fault that the manager found in a file of a unit. Never holds what the file says."""

    fault: str
    """In plain words."""
    path: str = ""
    """Of the file; "" where the fault is of the unit as a whole."""
    line: int = 0


@frozen()
class Refusal:
    """The manager's answer where it can't tell how the files of a unit stand."""

    reason: str
    message: str


@frozen()
class Unit:
    """One unit as it stands on disk (in the directory that is ours to write) and in the manager."""

    name: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Every place of this unit that isn't empty, ours or not; ``x.service.d`` alone where that is
    no directory.
    """
    backups: frozenset[str] = frozenset()
    """Digests of former files that were kept aside for this unit."""
    linked: bool = False
    """Links in our directory pull the unit in: it was enabled there, even if its file is gone."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Links that enable it, name it otherwise or stand in its place: path -> target; in our
    directory, and in the manager's for links that last until the next boot."""
    enabled_by: str = ""
    """Path of a link elsewhere that enables it, where no link of ours does."""
    unit_file_state: str = ""
    """As on disk now (``enabled``, ``static``, ``masked``, …); "" where there is no unit file, or
    where `refusal` says why it isn't known.
    """
    refusal: Refusal | None = None
    """A file of it can't be read, or its links lead nowhere."""
    load_state: str = "not-found"
    """``loaded``, ``not-found``, ``masked``, ``bad-setting``, ``error``; "" for a template, which
    is never loaded.
    """
    active_state: str = "inactive"
    sub_state: str = "dead"
    id: str = ""
    """The name that the manager knows it by; another than `name` where that is an alias. "" where
    it isn't loaded.
    """
    fragment: str = ""
    """Path of the unit file that the manager has loaded."""
    loaded_dropins: tuple[str, ...] = ()
    """Paths of the drop-ins that the manager has loaded."""
    loaded_file_state: str = ""
    """The unit file state as the manager remembers it from its last reload."""
    stale: bool = False
    """The manager says that files changed since it loaded them."""
    condition: bool | None = None
    """The unit's conditions held at its last start. None before the first."""
    assertion: bool | None = None
    rested: bool = False
    """Its conditions were looked at so long ago that it is worth another start."""
    invocation: str = ""
    """Id of the last run that the manager remembers."""
    result: str = "success"
    job: str = ""
    """Type of the job that is queued or running for it (``start``, ``stop``, ``restart``, …)."""
    oneshot: bool = False
    """A service of Type=oneshot that is over when its process ends well."""
    finished: bool = False
    """The log says that a one-shot of which the manager remembers nothing ended well; see
    `Units.finished`.
    """
    ended: bool = False
    """A service whose main process ended without being asked to."""
    exit_status: int = 0
    """How its last main process ended, or the command of `step`; 128 and the signal's number where
    a signal ended it.
    """
    step: str = ""
    """The setting whose command failed, as ``ExecStartPre``; "" where that is the main process."""
    spawn: str = ""
    """What the manager says of a command that it couldn't start: the program, and the error."""
    complaints: tuple[Complaint, ...] = ()
    """What the manager found wrong in the files, where it refuses them."""
    timed: bool = False
    """A timer that the manager has loaded starts it."""
    can_reload: bool = False
    main_pid: int = 0
    restarts: int = 0
    since: int = 0
    """Time at which `active_state` was entered, in microseconds since 1970. 0 before that."""
    began: int = 0
    """Microseconds between the boot and the start of its main process, else of the unit. 0 before that."""
    changed: int = 0
    """Time of the last change of state, reloads included, in microseconds since 1970."""

    @property
    def run(self) -> str:
        """Name of the current or last run: another text after every start. "" before the first."""
        return self.invocation or (f"@{self.since}" if self.since else "")


class Units(Protocol):
    """The service manager, and the directory in which we write unit files. Raises `core.errors`
    alone.

    Jobs return their result (``done``, ``failed``, ``skipped``, ``dependency``, ``canceled``,
    ``timeout``, …), or "" when the unit is still on its way after a short wait.
    """

    @property
    def directory(self) -> str:
        """Absolute path of the unit directory."""
        ...

    async def list_units(self, names: Collection[str]) -> Mapping[str, Unit]:
        """Those of `names` of which anything exists. Cheap: what seems unchanged isn't looked at
        again.
        """
        ...

    async def look(self, name: str) -> Unit | None:
        """One, fresh and whole; None where nothing of it exists."""
        ...

    async def write(self, name: str, place: str, content: str, keep: str) -> None:
        """Put a file at `place` of unit `name`, atomically and durably. What stood there, `keep`,
        is kept aside.
        """
        ...

    async def remove(self, name: str, place: str, keep: str) -> None:
        """Take the file or link at `place` away, and its drop-in directory when that is then empty;
        see `write`.
        """
        ...

    async def keep(self, name: str, place: str, keep: str) -> None:
        """Keep what stands at `place`, `keep`, aside, and leave it where it is."""
        ...

    async def relink(self, name: str, links: Mapping[str, str]) -> None:
        """Make the `Unit.links` of `name` exactly these; what is no link is left alone."""
        ...

    async def restore(self, name: str, place: str, former: str) -> None:
        """Put `former` (a link, or a digest that was kept aside) back at `place`."""
        ...

    async def drop_backups(self, name: str) -> None:
        """Let go of everything that was kept aside for `name`."""
        ...

    def batch_begin(self, names: Collection[str]) -> None:
        """These may write files soon: one reload shall serve them all."""
        ...

    def batch_end(self, name: str) -> None:
        """`name` writes no more files for now."""
        ...

    async def reload(self, name: str) -> None:
        """Return when the manager has loaded what `name` wrote. Waits, boundedly, for the others
        that are expected.
        """
        ...

    async def enable(self, name: str) -> None:
        """Enable; does nothing where the unit file has no [Install] section."""
        ...

    async def disable(self, name: str, *, runtime: bool) -> None:
        """Disable; with `runtime` also until the next boot."""
        ...

    async def mask(self, name: str) -> None:
        """Mask, durably."""
        ...

    async def unmask(self, name: str, *, runtime: bool) -> bool:
        """Unmask; False where there was no mask that could be taken away."""
        ...

    async def start(self, name: str) -> str:
        """Start, however it failed and however often it was started; remember how it ends even if
        it ends at once.
        """
        ...

    async def stop(self, name: str) -> str:
        """Stop."""
        ...

    async def restart(self, name: str) -> str:
        """Stop and start, or start; see `start`."""
        ...

    async def reload_unit(self, name: str) -> str:
        """Let the unit read its configuration again."""
        ...

    async def reset_failed(self, name: str) -> None:
        """Forget that it failed, and how often it was started."""
        ...

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        """The last lines that it logged, oldest first; of the last `seconds` where that is set."""
        ...

    def journal_cursor(self) -> str:
        """Now, as `finished` wants it."""
        ...

    async def finished(self, name: str, moment: str) -> bool:
        """Return whether the log says that a start of this one-shot, begun after `moment`, ended
        well.

        False if in doubt.
        """
        ...

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the name of a unit that was listed or looked at before; run until
        cancelled.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...
