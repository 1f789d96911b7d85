"""A disk whose power can be cut: an ext4 file system in a file of the host, on a loop device.

Must not know what is on it, nor whose processes use it: they have to be stopped before, and ended
after, `fail`.
"""

import fcntl
import os
import time
from pathlib import Path

from tests.device.claims import FREE
from tests.device.tools import HarnessError, call

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2


def make_disk(image: Path, size: str) -> None:
    """An empty file system in the file `image`; `size` as of truncate(1)."""
    call("truncate", "--size", size, str(image))
    call("mke2fs", "-q", "-t", "ext4", str(image))


class Disk:
    """The file system in the file `image`, at the folder `folder`."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self.folder = image, folder

    def mount(self) -> None:
        """Mount it, with the recovery of its journal where the power was cut."""
        # Mounted while the loop device of the last mount lingers, the dead file system would be the
        # one that answers.
        deadline = time.monotonic() + 60
        while call("losetup", "--associated", str(self._image)):
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"cannot mount {self._image} again: something still holds its loop device"
                )
            time.sleep(0.01)
        call("mount", "-t", "ext4", "-o", "loop,noatime", str(self._image), str(self.folder))

    def fail(self) -> None:
        """The power goes: what was not synced by now will never be there."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, _NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(fd)

    def come_back(self) -> None:
        """After `fail`, once nobody uses it any more: mounted again, with what had reached it."""
        FREE["mount"](str(self.folder))
        self.mount()
