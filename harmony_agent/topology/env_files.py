"""Env files of the device: what kinds that run something read their variables from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from harmony_agent.core.env_files import BadEnvFile, parse_env
from harmony_agent.core.errors import Transient
from scores.canonical import digest


class EnvFiles(Protocol):
    """Files of NAME=value lines below allowed folders. No symbolic link is followed below them.

    Each method raises Transient if the disk doesn't answer in time.
    """

    async def digests(self, paths: Collection[str]) -> Mapping[str, str | None]:
        """Digest each file's content. None if it can't be read. Cheap when nothing changed."""
        ...

    async def read(self, path: str) -> bytes | None:
        """Read the content. None if it can't be read."""
        ...

    async def identify(self, paths: Collection[str]) -> Mapping[str, str | None]:
        """Name what each path of the device leads to now, as text that is good for comparing; None
        where that can't be seen.
        """
        ...

    async def resolve(self, paths: Collection[str]) -> Mapping[str, str]:
        """Resolve each path of the device with all its links, as far as it can be read."""
        ...


async def read_variables(
    env_files: EnvFiles, paths: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The digests of the files by path, and their variables; later files win.

    Raises Transient EnvFileMissing or EnvFileInvalid: neither names a value.
    """
    digests: dict[str, str] = {}
    variables: dict[str, str] = {}
    for path in paths:
        content = await env_files.read(path)
        if content is None:
            text = f"cannot read {path}: make the file, or take it out of env_files"
            raise Transient("EnvFileMissing", text, phase="Blocked", delay=5.0)
        try:
            variables |= parse_env(path, content)
        except BadEnvFile as error:
            text = f"{error}: mend the file"
            raise Transient("EnvFileInvalid", text, phase="Blocked", delay=5.0) from None
        digests[path] = digest(content)
    return digests, variables
