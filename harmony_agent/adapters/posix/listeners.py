"""Listeners to a change. Made before those that tell of it and those that listen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Listeners(Generic[T]):
    """Callables, each called with what changed."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[T], None]] = []

    def add(self, listener: Callable[[T], None]) -> None:
        """Tell this one from now on."""
        self._listeners.append(listener)

    @contextmanager
    def listening(self, listener: Callable[[T], None]) -> Iterator[None]:
        """Tell this one within a `with`."""
        self.add(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def tell(self, changed: T) -> None:
        """Call each listener."""
        for listener in list(self._listeners):
            listener(changed)
