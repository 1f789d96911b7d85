"""The unit directory: reads, writes, removes, backs up and restores its files.

Blocking: call it in a worker thread. Writes nothing through a link. A change is durable when its
method returns. Content leaves this module only as a digest.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Final

from harmony_agent.adapters.posix.atomic import (
    Check,
    in_directory,
    is_temp,
    make_directory,
    open_directory,
    sync,
    sync_directory,
)
from harmony_agent.adapters.posix.stat_cache import StatCache, fingerprint, is_settled
from harmony_agent.adapters.systemd.disk import (
    failed,
    names_in,
    naming,
    put_file,
    put_link,
    read_file,
)
from harmony_agent.adapters.systemd.links import UnitLinks, pulls_in
from harmony_agent.core.errors import Transient
from harmony_agent.core.frozen import frozen
from harmony_agent.topology.files import TEMP_PREFIX
from harmony_agent.topology.units import OTHER, UNREADABLE

_MOST_DIGESTS: Final = 4096


@frozen()
class OnDisk:
    """Files and links of one unit in the unit directory."""

    files: Mapping[str, str] = field(default_factory=dict)
    linked: bool = False
    backups: frozenset[str] = frozenset()
    links: Mapping[str, str] = field(default_factory=dict)


class UnitFiles:
    """One unit directory, and the directory `keep` for backups (mode 0700).

    With `to_root`, root owns what is made in the unit directory: other processes of the agent's
    user must not.
    """

    def __init__(
        self, directory: str, keep: str, *, runtime: str = "", to_root: bool = False
    ) -> None:
        """`runtime` is the manager's directory of links that last until the next boot."""
        self.directory = directory
        self._links = UnitLinks([path for path in (directory, runtime) if path])
        self._to_root = to_root
        self._keep = keep
        self._digests = StatCache[str](_MOST_DIGESTS)
        self._swept = False

    def scan(self, names: Collection[str]) -> dict[str, OnDisk]:
        """Read the files of each of `names`."""
        if not self._swept:
            self._sweep()
        seen: list[str] = []
        try:
            directory = open_directory(self.directory)
        except FileNotFoundError:
            entries: frozenset[str] = frozenset()
            directory = -1
        except OSError as error:
            raise failed("read", self.directory, error) from error
        else:
            entries = frozenset(os.listdir(directory))
        try:
            folders = self._links.folders()
            kept = frozenset(names_in(self._keep))
            found = {}
            for name in names:
                files = dict(self._files(directory, name, entries, seen))
                aside = (
                    frozenset(f"sha256:{entry}" for entry in names_in(f"{self._keep}/{name}"))
                    if name in kept
                    else ()
                )
                links = self._links.of(name, folders)
                linked = any(pulls_in(path, name, self.directory) for path in links)
                found[name] = OnDisk(files, linked, frozenset(aside), links)
        finally:
            if directory >= 0:
                os.close(directory)
        if len(names) > 1:
            self._digests.retain(seen)
        return found

    def _files(
        self, directory: int, name: str, entries: frozenset[str], seen: list[str]
    ) -> Iterator[tuple[str, str]]:
        if name in entries and (stands := self._stands(directory, name, name)):
            seen.append(name)
            yield name, stands
        folder = f"{name}.d"
        if folder not in entries:
            return
        try:
            inside = open_directory(folder, directory)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            yield folder, OTHER
            return
        except PermissionError:
            yield folder, UNREADABLE
            return
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise failed("read", folder, error) from error
            yield folder, OTHER
            return
        try:
            for entry in sorted(os.listdir(inside)):
                place = f"{folder}/{entry}"
                if entry.endswith(".conf") and (stands := self._stands(inside, entry, place)):
                    seen.append(place)
                    yield place, stands
        finally:
            os.close(inside)

    def _stands(self, directory: int, entry: str, place: str) -> str:
        looked = time.time()
        try:
            status = os.stat(entry, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(entry, dir_fd=directory)
                return f"link:{target}" if target.isprintable() else OTHER
            if not stat.S_ISREG(status.st_mode):
                return OTHER
            digest = self._digests.find(place, fingerprint(status))
            if digest is None:
                digest = f"sha256:{hashlib.sha256(read_file(entry, directory)).hexdigest()}"
                settled = is_settled(status.st_ctime_ns, looked)
                self._digests.put(place, fingerprint(status), digest, settled=settled)
        except FileNotFoundError:
            return ""
        except PermissionError:
            return UNREADABLE
        except OSError as error:
            raise failed("read", entry, error) from error
        return digest

    def _sweep(self) -> None:
        """Remove what a killed agent left half written."""
        for folder in (
            self.directory,
            *(f"{self.directory}/{entry}" for entry in names_in(self.directory)),
        ):
            if folder != self.directory and not folder.endswith(".d"):
                continue
            for entry in names_in(folder):
                if _is_unfinished(entry):
                    with contextlib.suppress(OSError):
                        os.unlink(f"{folder}/{entry}")
        self._swept = True

    def write(self, name: str, place: str, content: bytes, keep: str, check: Check) -> None:
        """Write a file at `place`, after a backup of `keep`. `check` raises if it is too late."""
        self._aside(name, place, keep, check)
        with naming("write", place), self._folder(place, make=True) as folder:
            put_file(folder, os.path.basename(place), content, 0o644, check, to_root=self._to_root)

    def remove(self, name: str, place: str, keep: str, check: Check) -> None:
        """Remove a file or link, after a backup of `keep`.

        An empty drop-in directory goes with its last file.
        """
        self._aside(name, place, keep, check)
        check()
        with (
            naming("remove", place),
            contextlib.suppress(FileNotFoundError),
            self._folder(place) as folder,
        ):
            os.unlink(os.path.basename(place), dir_fd=folder)
            sync(folder)
        self._drop_empty(place)

    def keep(self, name: str, place: str, keep: str, check: Check) -> None:
        """Back up the file at `place`, which must have the digest `keep`."""
        self._aside(name, place, keep, check)

    def relink(self, name: str, links: Mapping[str, str], check: Check) -> None:
        """Make the links of `name` exactly these."""
        self._links.become(name, links, check)

    def link_in_place(self, name: str) -> dict[str, str]:
        """Return the link in place of the unit file, unless it is a mask: path -> target."""
        path = f"{self.directory}/{name}"
        return {
            at: to for at, to in self._links.of(name).items() if at == path and to != "/dev/null"
        }

    def restore(self, name: str, place: str, former: str, check: Check) -> None:
        """Put back a link or a backup."""
        with naming("restore", place), self._folder(place, make=True) as folder:
            kind, _, value = former.partition(":")
            if kind == "link":
                put_link(folder, os.path.basename(place), value, check)
            else:
                with in_directory(f"{self._keep}/{name}") as kept:
                    content, mode = read_file(value, kept), _mode(value, kept)
                put_file(
                    folder, os.path.basename(place), content, mode, check, to_root=self._to_root
                )

    def drop_backups(self, name: str) -> None:
        """Remove all backups of `name`."""
        folder = f"{self._keep}/{name}"
        with naming("remove", folder), contextlib.suppress(FileNotFoundError):
            for entry in os.listdir(folder):
                os.unlink(f"{folder}/{entry}")
            os.rmdir(folder)

    def unlink_wants(self, name: str, check: Check, *, runtime: bool) -> None:
        """Remove the links that pull `name` in, for a unit that the manager doesn't disable."""
        links = self._links.of(name)
        here = f"{self.directory}/"
        stay = {
            at: to
            for at, to in links.items()
            if not pulls_in(at, name) or not (runtime or at.startswith(here))
        }
        self._links.become(name, stay, check)

    def _drop_empty(self, place: str) -> None:
        folder, slash, _ = place.rpartition("/")
        if slash:
            with contextlib.suppress(OSError), in_directory(self.directory) as top:
                os.rmdir(folder, dir_fd=top)
                sync(top)

    def _aside(self, name: str, place: str, keep: str, check: Check) -> None:
        if not keep:
            return
        with naming("keep", place):
            with self._folder(place) as folder:
                entry = os.path.basename(place)
                content, mode = read_file(entry, folder), _mode(entry, folder)
            value = hashlib.sha256(content).hexdigest()
            if f"sha256:{value}" != keep:
                raise Transient("ChangedMeanwhile", f"cannot keep {place}: it was changed just now")
            make_directory(f"{self._keep}/{name}", 0o700)
            with in_directory(f"{self._keep}/{name}") as kept:
                # Its mode stays: only the agent may enter the directory.
                put_file(kept, value, content, mode, check)
            sync_directory(os.path.dirname(self._keep))  # perhaps a killed agent made it

    @contextlib.contextmanager
    def _folder(self, place: str, *, make: bool = False) -> Iterator[int]:
        """Open the directory that `place` is in. With `make`, make a missing one durably."""
        if make and not os.path.isdir(self.directory):
            make_directory(self.directory)
        with in_directory(self.directory) as top:
            folder, slash, _ = place.rpartition("/")
            if not slash:
                yield top
                return
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o755, dir_fd=top)
                    if self._to_root:
                        os.chown(folder, 0, 0, dir_fd=top, follow_symlinks=False)
                    sync(top)
            with in_directory(folder, top) as inside:
                yield inside


def _is_unfinished(entry: str) -> bool:
    """Return whether a killed agent left it half written; older agents gave another name."""
    former = entry.startswith(TEMP_PREFIX) and entry.endswith(".new")
    return former or is_temp(entry)


def _mode(entry: str, folder: int) -> int:
    """Return the mode to restore: a unit file that hid a password stays hidden."""
    return stat.S_IMODE(os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
