"""Containment of paths. Pure text: links, for instance, are for the adapters to resolve."""

from __future__ import annotations

from collections.abc import Iterable


def below(path: str, directory: str) -> bool:
    """Return whether `path` is `directory` or in it, at any depth.

    Neither ends with a slash; / itself is "".
    """
    return path == directory or path.startswith(directory + "/")


class PathSet:
    """Paths that nothing may touch. They are asked for a thousand paths at each manifest, so none
    of them is walked.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._at = frozenset(path.rstrip("/") for path in paths)
        self._inside = tuple(path + "/" for path in self._at)
        self._above = frozenset(above for path in self._at for above in parents(path))

    def __bool__(self) -> bool:
        return bool(self._at)

    def touched_by(self, path: str) -> bool:
        """Return whether `path` is one of them, in one, or holds one."""
        path = path.rstrip("/")
        return path in self._at or path in self._above or path.startswith(self._inside)


def parents(path: str) -> list[str]:
    """The directories that hold `path`, outermost first; / is ""."""
    return [path[:index] for index, char in enumerate(path) if char == "/"]
