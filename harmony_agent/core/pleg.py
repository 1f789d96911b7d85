"""Compare two lists of one kind, and return the names to observe again.

Pure; after kubelet's PLEG.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def events(old: Mapping[str, T], new: Mapping[str, T]) -> set[str]:
    """Names that appeared, went, or look different."""
    if old == new:  # mostly, and much faster: the same objects are compared by their identity
        return set()
    gone = old.keys() - new.keys()
    return gone | {name for name, status in new.items() if old.get(name) != status}
