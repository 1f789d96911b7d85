"""Reads and changes a device's files, with its own tools, so that links and mounts are seen as the
device sees them.

Reading works also while the device isn't running.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tests.device.commands import CommandError, Commands, Result


@dataclass(frozen=True)
class FileStat:
    """A path of a device as stat(2) shows it, links not followed; `kind` is stat(1)'s %F, as in
    `regular file`.
    """

    kind: str
    mode: int
    owner: str
    group: str
    size: int
    inode: int
    links: int
    mtime_ns: int
    target: str | None


class Files(Commands):
    """The part of a device that knows its files."""

    def _look(self, argv: Sequence[str], *, check: bool = True) -> Result:
        """Run one of the device's own tools on its files; works also while it isn't running."""
        if self.running:
            return self.run(argv, check=check)
        result = self._communicate(["chroot", str(self.root), *argv], None, self.environment(), 60)
        if check and result.rc != 0:
            raise CommandError(
                f"{' '.join(argv)} on {self.name} ended with {result.rc}: {result.stderr.strip()}"
            )
        return result

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return self._look(["cat", "--", path]).out

    def read_text(self, path: str) -> str:
        """The content of a file, as UTF-8."""
        return self.read(path).decode()

    def exists(self, path: str) -> bool:
        """Whether there is anything at `path`, a dangling link included."""
        return self._look(["stat", "--", path], check=False).rc == 0

    def stat(self, path: str) -> FileStat:
        """What is at `path`."""
        shown = self._look(
            ["stat", "--printf", r"%F\n%a\n%U\n%G\n%s\n%i\n%h\n%.9Y", "--", path]
        ).stdout
        kind, mode, owner, group, size, inode, links, mtime = shown.split("\n")
        target = (
            self._look(["readlink", "--no-newline", "--", path]).stdout
            if kind == "symbolic link"
            else None
        )
        seconds, _, nanoseconds = mtime.partition(".")
        kind = "regular file" if kind == "regular empty file" else kind
        stamp = int(seconds) * 10**9 + int(nanoseconds)
        return FileStat(
            kind, int(mode, 8), owner, group, int(size), int(inode), int(links), stamp, target
        )

    def write(
        self, path: str, data: bytes | str, *, mode: int | None = None, owner: str | None = None
    ) -> None:  # fmt: skip
        """Write a file as an administrator's editor does: in place when it exists, its folders made
        when missing.

        `owner` is a user's name, and gives the file that user's group too. New files belong to root
        with mode 0644.
        """
        self.run(["mkdir", "--parents", "--", os.path.dirname(path)])
        self.run(["dd", "status=none", f"of={path}"], input=data)
        if owner is not None:
            self.run(["chown", f"{owner}:", "--", path])
        if mode is not None:
            self.run(["chmod", f"{mode:04o}", "--", path])

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all in it."""
        self.run(["rm", "-r", "--one-file-system", "--", path])

    def make_folder(self, path: str, *, owner: str = "root", mode: int = 0o755) -> None:
        """Make a folder with the missing ones above it."""
        self.run(["install", "-d", "-o", owner, "-g", owner, "-m", f"{mode:04o}", "--", path])
