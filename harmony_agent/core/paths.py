"""Which paths hold one another. Pure text: what stands there, links for instance, is the adapters' to see."""

from __future__ import annotations

from collections.abc import Iterable


def below(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or in it, at any depth. Neither ends with a slash; / itself is ""."""
    return path == directory or path.startswith(directory + "/")


def touches(path: str, places: Iterable[str]) -> bool:
    """Whether `path` is one of `places`, in one, or holds one."""
    return any(below(path, place) or below(place, path) for place in places)
