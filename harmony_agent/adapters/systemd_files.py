"""The unit directory: reads what stands in it, and writes, removes, keeps aside and puts back files.

Blocking: call it in a worker thread. Nothing is written through a link, and every change is on the disk when it
returns. Content leaves this module only as a digest.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import OTHER

_LINK_DIRECTORIES: Final = (".wants", ".requires", ".upholds")
_UNFINISHED: Final = (".harmony-", ".new")
_RACY_NS: Final = 100_000_000
"""A file younger than this may change once more without a change of its stamp: its digest isn't remembered."""
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What stands in the unit directory of one unit; see `topology.units`."""

    files: Mapping[str, str] = field(default_factory=dict)
    linked: bool = False
    kept: frozenset[str] = frozenset()


class UnitFiles:
    """One unit directory, and the directory in which former files are kept aside (mode 0700)."""

    def __init__(self, directory: str, keep: str) -> None:
        self.directory = directory
        self._keep = keep
        self._digests: dict[tuple[int, ...], str] = {}
        self._swept = False

    def scan(self, names: Collection[str]) -> dict[str, OnDisk]:
        """What stands there of each of `names`."""
        if not self._swept:
            self._sweep()
        seen: dict[tuple[int, ...], str] = {}
        try:
            directory = _open(self.directory)
        except FileNotFoundError:
            entries: frozenset[str] = frozenset()
            directory = -1
        except OSError as error:
            raise _failed("read", self.directory, error) from error
        else:
            entries = frozenset(os.listdir(directory))
        try:
            linked = self._linked(entries)
            kept = frozenset(_entries(self._keep))
            found = {}
            for name in names:
                files = dict(self._files(directory, name, entries, seen))
                aside = (
                    frozenset(f"sha256:{entry}" for entry in _entries(f"{self._keep}/{name}")) if name in kept else ()
                )
                found[name] = OnDisk(files, name in linked, frozenset(aside))
        finally:
            if directory >= 0:
                os.close(directory)
        if len(names) > 1:
            self._digests = seen
        else:
            self._digests.update(seen)
        return found

    def _files(
        self, directory: int, name: str, entries: frozenset[str], seen: dict[tuple[int, ...], str]
    ) -> Iterator[tuple[str, str]]:
        if name in entries and (stands := self._stands(directory, name, seen)):
            yield name, stands
        folder = f"{name}.d"
        if folder not in entries:
            return
        try:
            inside = _open(folder, directory)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            yield folder, OTHER
            return
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise _failed("read", folder, error) from error
            yield folder, OTHER
            return
        try:
            for entry in sorted(os.listdir(inside)):
                if entry.endswith(".conf") and (stands := self._stands(inside, entry, seen)):
                    yield f"{folder}/{entry}", stands
        finally:
            os.close(inside)

    def _stands(self, directory: int, entry: str, seen: dict[tuple[int, ...], str]) -> str:
        try:
            status = os.stat(entry, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return f"link:{os.readlink(entry, dir_fd=directory)}"
            if not stat.S_ISREG(status.st_mode):
                return OTHER
            stamp = _stamp(status)
            digest = self._digests.get(stamp)
            if digest is None:
                digest = f"sha256:{hashlib.sha256(_read(entry, directory)).hexdigest()}"
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise _failed("read", entry, error) from error
        if abs(time.time_ns() - status.st_ctime_ns) > _RACY_NS:
            seen[stamp] = digest
        return digest

    def _linked(self, entries: Iterable[str]) -> frozenset[str]:
        """Names that links in this directory pull in."""
        found: set[str] = set()
        for folder in entries:
            if folder.endswith(_LINK_DIRECTORIES):
                found.update(_entries(f"{self.directory}/{folder}"))
        return frozenset(found)

    def _sweep(self) -> None:
        """Remove what a killed agent left half written."""
        for folder in (self.directory, *(f"{self.directory}/{entry}" for entry in _entries(self.directory))):
            if folder != self.directory and not folder.endswith(".d"):
                continue
            for entry in _entries(folder):
                if entry.startswith(_UNFINISHED[0]) and entry.endswith(_UNFINISHED[1]):
                    with contextlib.suppress(OSError):
                        os.unlink(f"{folder}/{entry}")
        self._swept = True

    def write(self, name: str, place: str, content: bytes, keep: str) -> None:
        """Put a file at `place`, after keeping `keep` aside."""
        self._aside(name, place, keep)
        with _naming("write", place), self._folder(place, make=True) as folder:
            _put(folder, os.path.basename(place), content, 0o644)

    def remove(self, name: str, place: str, keep: str) -> None:
        """Take a file or link away, after keeping `keep` aside; an empty drop-in directory goes with its last file."""
        self._aside(name, place, keep)
        with _naming("remove", place), contextlib.suppress(FileNotFoundError), self._folder(place) as folder:
            os.unlink(os.path.basename(place), dir_fd=folder)
            os.fsync(folder)
        self._drop_empty(place)

    def restore(self, name: str, place: str, former: str) -> None:
        """Put a link, or what was kept aside, back."""
        with _naming("restore", place), self._folder(place, make=True) as folder:
            kind, _, value = former.partition(":")
            if kind == "link":
                _put_link(folder, os.path.basename(place), value)
            else:
                with _opened(f"{self._keep}/{name}") as kept:
                    content = _read(value, kept)
                _put(folder, os.path.basename(place), content, 0o644)

    def drop_kept(self, name: str) -> None:
        """Remove all that was kept aside for `name`."""
        folder = f"{self._keep}/{name}"
        with _naming("remove", folder), contextlib.suppress(FileNotFoundError):
            for entry in os.listdir(folder):
                os.unlink(f"{folder}/{entry}")
            os.rmdir(folder)

    def unlink_wants(self, name: str) -> None:
        """Remove the links in this directory that pull `name` in: for a unit whose file is gone already."""
        for entry in _entries(self.directory):
            if entry.endswith(_LINK_DIRECTORIES):
                place = f"{entry}/{name}"
                with _naming("remove", place), contextlib.suppress(FileNotFoundError), self._folder(place) as folder:
                    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                        os.unlink(name, dir_fd=folder)
                        os.fsync(folder)
                with contextlib.suppress(OSError):
                    os.rmdir(f"{self.directory}/{entry}")

    def _drop_empty(self, place: str) -> None:
        folder, slash, _ = place.rpartition("/")
        if slash:
            with contextlib.suppress(OSError), _opened(self.directory) as directory:
                os.rmdir(folder, dir_fd=directory)
                os.fsync(directory)

    def _aside(self, name: str, place: str, keep: str) -> None:
        if not keep:
            return
        with _naming("keep", place):
            with self._folder(place) as folder:
                content = _read(os.path.basename(place), folder)
            value = hashlib.sha256(content).hexdigest()
            if f"sha256:{value}" != keep:
                raise Transient("ChangedMeanwhile", f"cannot keep {place}: it was changed just now")
            os.makedirs(f"{self._keep}/{name}", mode=0o700, exist_ok=True)
            with _opened(f"{self._keep}/{name}") as kept:
                _put(kept, value, content, 0o600)
            for above in (self._keep, os.path.dirname(self._keep)):
                with _opened(above) as parent:
                    os.fsync(parent)

    @contextlib.contextmanager
    def _folder(self, place: str, *, make: bool = False) -> Iterator[int]:
        """The open directory that `place` is in; made, durably, where it is missing and `make` says so."""
        if make and not os.path.isdir(self.directory):
            _make(self.directory)
        with _opened(self.directory) as directory:
            folder, slash, _ = place.rpartition("/")
            if not slash:
                yield directory
                return
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o755, dir_fd=directory)
                    os.fsync(directory)
            with _opened(folder, directory) as inside:
                yield inside


def _make(path: str) -> None:
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        _make(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)
    with _opened(above) as parent:
        os.fsync(parent)


def _open(path: str, within: int | None = None) -> int:
    # The last component may be a link where it is the administrator's own choice of directory, never below that.
    follow = 0 if within is None else os.O_NOFOLLOW
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=within)


@contextlib.contextmanager
def _opened(path: str, within: int | None = None) -> Iterator[int]:
    directory = _open(path, within)
    try:
        yield directory
    finally:
        os.close(directory)


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _failed("read", path, error) from error


def _read(entry: str, directory: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(entry, flags, dir_fd=directory), "rb") as file:
        return file.read()


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _unfinished(entry: str) -> str:
    # Of a fixed length, for a unit's name may leave no room; the same every time, so that a leftover is found again.
    return f"{_UNFINISHED[0]}{hashlib.sha256(entry.encode()).hexdigest()[:16]}{_UNFINISHED[1]}"


def _put(folder: int, entry: str, content: bytes, mode: int) -> None:
    """Write beside, fsync, rename, fsync the directory. Leaves nothing behind when it fails."""
    beside = _unfinished(entry)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(beside, entry, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


def _put_link(folder: int, entry: str, target: str) -> None:
    beside = _unfinished(entry)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    os.symlink(target, beside, dir_fd=folder)
    os.rename(beside, entry, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


@contextlib.contextmanager
def _naming(deed: str, place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _failed(deed, place, error) from error


def _failed(deed: str, place: str, error: OSError) -> Transient:
    why = os.strerror(error.errno) if error.errno else "unknown error"
    text = f"cannot {deed} {place}: {why}"
    if error.errno in _NO_SPACE:
        return Transient("NoSpace", f"{text}; free some space on the device")
    if error.errno == errno.EROFS:
        return Transient("ReadOnly", f"{text}; mount the file system for writing")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Transient("AccessDenied", f"{text}; give the agent's user this right", phase="Blocked", delay=60.0)
    return Transient("UnitFileError", text)
