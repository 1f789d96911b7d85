"""File: what the configuration forbids of one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from harmony_agent.core.frozen import frozen
from harmony_agent.core.paths import PathSet
from harmony_agent.topology.files import TEMP_PREFIX, TEMP_SUFFIX
from scores.file import File
from scores.manifest import FieldError

_SETUID: Final = 0o6000


@frozen()
class FilePolicy:
    """The directories below which a File may be, single paths besides, and the paths that none may
    touch (what is the agent's own, and where its power comes from).
    """

    roots: Sequence[str]
    singles: Collection[str]
    forbidden: PathSet
    allow_setuid: bool = False

    def violations(self, spec: File) -> Iterator[FieldError]:
        """A path outside the roots or too near to the agent itself, and setuid bits."""
        path = spec.path
        if path not in self.singles and not any(path.startswith(root + "/") for root in self.roots):
            yield FieldError("path", "PathOutsideRoots")
        elif self.forbidden.touched_by(path) or _looks_temporary(path):
            yield FieldError("path", "PathForbidden")
        if spec.mode is not None and int(spec.mode, 8) & _SETUID and not self.allow_setuid:
            yield FieldError("mode", "SetuidRefused")


def _looks_temporary(path: str) -> bool:
    """A name that is the adapter's own, at any depth."""
    return TEMP_PREFIX in path and any(
        part.startswith(TEMP_PREFIX) and part.endswith(TEMP_SUFFIX) for part in path.split("/")
    )
