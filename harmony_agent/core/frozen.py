"""Frozen dataclasses with slots at a third of their memory.

``dataclass(frozen=True, slots=True)`` compiles six methods for each class, 15 KB and a millisecond,
and the agent has 150 of them. Here ``__init__`` alone is made for each class; the others are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a frozen class: equal by its fields, hashable where they are, and shown by them.

    mypy refuses an assignment to a field; nothing refuses it when the agent runs.
    ``field(repr=False)`` and ``field(compare=False)`` are kept, as are methods of the class's own.
    """

    def make(cls: type[T]) -> type[T]:
        own = vars(cls)
        for name, shared in _SHARED.items():
            # A class with an __eq__ has __hash__ = None, though its author wrote none.
            if own.get(name) is None:
                setattr(cls, name, shared)
        made: Any = dataclass(slots=True, eq=False, repr=False, kw_only=kw_only)(cls)
        named = [one.name for one in fields(made) if one.compare]
        made._values = attrgetter(*named) if named else _NOTHING
        return made  # type: ignore[no-any-return]

    return make


def _eq(self: Any, other: Any) -> bool:
    if self.__class__ is not other.__class__:
        return NotImplemented  # type: ignore[no-any-return]
    equal: bool = self._values(self) == self._values(other)
    return equal


def _hash(self: Any) -> int:
    return hash(self._values(self))


def _repr(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


_NOTHING: Any = staticmethod(lambda _one: ())
_SHARED: Any = {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr}
