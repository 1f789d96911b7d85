"""Session: what the configuration forbids of one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_agent.core.paths import PathSet
from scores.manifest import FieldError
from scores.session import Session


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """Folders under which env files may be read, and what none of them may touch."""

    env_roots: Sequence[str]
    closed_files: PathSet

    def violations(self, spec: Session) -> Iterator[FieldError]:
        """Env files outside the roots, and those that are closed."""
        for index, path in enumerate(spec.env_files):
            if not any(path.startswith(f"{root.rstrip('/')}/") for root in self.env_roots):
                yield FieldError(f"env_files[{index}]", "PathOutsideRoots")
            elif self.closed_files.touched_by(path):
                yield FieldError(f"env_files[{index}]", "PathForbidden")
