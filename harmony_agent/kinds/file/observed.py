"""Observed state of a File, and what others need of its places. Pure."""

from __future__ import annotations

from typing import Final

from harmony_agent.core.frozen import frozen
from harmony_agent.topology.files import PathState


@frozen()
class Ties:
    """Interests of others in the places that a File gives up.

    `held`: (path, name) of places that another File is to have, and waits for. `heirs`: directories
    in which other Files have places; they get them. `early`: places that stand in the way of
    another File. `spare`: parents that were made for a File which wants its path absent by now, and
    that nothing else needs. `made`: the path that is wanted is a directory which was made as a
    parent of Files.
    """

    held: tuple[tuple[str, str], ...] = ()
    heirs: frozenset[str] = frozenset()
    early: frozenset[str] = frozenset()
    spare: tuple[str, ...] = ()
    made: bool = False

    def taker(self, path: str) -> str | None:
        """Return the next owner of the place at `path`."""
        return next((name for at, name in self.held if at == path), None)


NONE: Final = Ties()


@frozen()
class FileState:
    """Observed state of the desired path (or the one to give up), and of older paths to give up.

    `wanted` is the digest of a template's content as it would be now; "" where there is none.
    """

    at: PathState
    old: tuple[PathState, ...] = ()
    ties: Ties = NONE
    wanted: str = ""
