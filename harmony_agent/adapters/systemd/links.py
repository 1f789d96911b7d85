"""The links that enable a unit, give it another name, or replace it.

Blocking: call it in a worker thread. Changes nothing that isn't a symbolic link.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harmony_agent.adapters.posix.atomic import Check, in_directory, make_directory, sync_directory
from harmony_agent.adapters.posix.stat_cache import StatCache, is_settled
from harmony_agent.adapters.systemd.disk import naming, put_link

LINK_DIRECTORIES: Final = (".wants", ".requires", ".upholds")


@dataclass(slots=True)
class _Folder:
    """The links in one directory, by the unit's name, and its directories of links."""

    about: dict[str, dict[str, str]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)


def pulls_in(path: str, name: str, directory: str = "") -> bool:
    """Return whether a link at `path` pulls the unit in by its name.

    With `directory`, the link must be below it.
    """
    folder, _, entry = path.rpartition("/")
    below = not directory or folder.startswith(f"{directory}/")
    return below and entry == name and folder.endswith(LINK_DIRECTORIES)


class UnitLinks:
    """Links below several unit directories."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = tuple(directories)
        self._known = StatCache[_Folder]()

    def folders(self) -> list[_Folder]:
        """Return every directory that may hold links. An unchanged one isn't read again."""
        found = []
        for directory in self._directories:
            top = self._read(directory)
            found += [top, *(self._read(path) for path in top.folders)]
        return found

    def of(self, name: str, folders: Sequence[_Folder] | None = None) -> dict[str, str]:
        """The links that are about `name`: path -> target."""
        links: dict[str, str] = {}
        for folder in self.folders() if folders is None else folders:
            links |= folder.about.get(name, {})
        return links

    def become(self, name: str, links: Mapping[str, str], check: Check) -> None:
        """Make the links about `name` exactly these."""
        now = self.of(name)
        for path in now.keys() - links.keys():
            with naming("remove", path), contextlib.suppress(FileNotFoundError):
                check()
                os.unlink(path)
                sync_directory(os.path.dirname(path))
        for path, target in links.items():
            folder, _, entry = path.rpartition("/")
            if now.get(path) == target or (os.path.lexists(path) and not os.path.islink(path)):
                continue
            with naming("link", path):
                make_directory(folder)
                with in_directory(folder) as inside:
                    put_link(inside, entry, target, check)
        for folder in {os.path.dirname(path) for path in now.keys() - links.keys()}:
            if folder.endswith(LINK_DIRECTORIES):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def _read(self, path: str) -> _Folder:
        looked = time.time()
        try:
            at = os.stat(path).st_mtime_ns
            known = self._known.find(path, (at,))
            if known is not None:
                return known
            found = _Folder()
            with os.scandir(path) as entries:
                for entry in entries:
                    self._note(found, entry)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return _Folder()
        self._known.put(path, (at,), found, settled=is_settled(at, looked))
        return found

    def _note(self, folder: _Folder, entry: os.DirEntry[str]) -> None:
        if entry.is_symlink():
            target = os.readlink(entry.path)
            for name in {entry.name, os.path.basename(target)}:
                folder.about.setdefault(name, {})[entry.path] = target
        elif entry.name.endswith(LINK_DIRECTORIES):
            folder.folders.append(entry.path)
