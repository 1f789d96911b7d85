"""Secret files: what containers are handed to read, in memory and never on a disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol


class SecretFiles(Protocol):
    """A folder in memory, which is empty after a boot."""

    def path(self, container: str, name: str) -> str:
        """Where a container's secret is, on the device."""
        ...

    def put(self, container: str, name: str, content: bytes, mode: int) -> None:
        """Have it there so. Raises Transient ``SecretFilesUnusable``."""
        ...

    def retain(self, wanted: Mapping[str, Collection[str] | None]) -> None:
        """Keep these secrets of each container, all of them where it says None; nothing else."""
        ...


class NoSecretFiles:
    """`SecretFiles` of what hands out none."""

    def path(self, container: str, name: str) -> str:
        """Nothing is ever there."""
        return f"/nonexistent/{container}/{name}"

    def put(self, container: str, name: str, content: bytes, mode: int) -> None:
        """Without a secret there is nothing to put."""
        raise AssertionError(f"no folder for {len(content)} bytes of {container}/{name}, {mode:o}")

    def retain(self, wanted: Mapping[str, Collection[str] | None]) -> None:
        """Nothing is there."""


NO_SECRET_FILES: Final[SecretFiles] = NoSecretFiles()
