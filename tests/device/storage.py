"""One btrfs file system in a sparse file, where base images are subvolumes and a device is a
snapshot of one.

It is mounted while some process uses it and unmounted by the last one. Must not know what is in an
image.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.device.claims import FREE, Claim, Run, mounted
from tests.device.tools import HarnessError, call

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE_VARIABLE = "HARMONY_DEVICE_CACHE"
_SIZE = "24G"  # sparse: takes what is in it, no more


def cache_folder() -> Path:
    """Where images and wheels are kept: $HARMONY_DEVICE_CACHE, else .cache/harmony-device in the
    repository.
    """
    return Path(
        os.environ.get(CACHE_VARIABLE) or REPOSITORY / ".cache" / "harmony-device"
    ).absolute()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, waiting for it; the kernel frees it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Pool:
    """The mounted file system. Use as a context manager; any number of processes may have it
    open.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = cache or cache_folder()
        self.path = self.cache / "pool"
        self._file = self.cache / "pool.btrfs"
        self._gate = self.cache / "pool.lock"
        self._users = self.cache / "pool.users"
        self._use: int | None = None

    def __enter__(self) -> "Pool":
        with locked(self._gate):
            self._use = os.open(self._users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            alone = _try_exclusive(self._use)
            try:
                self._mount()
                if alone:
                    self._clear_devices()
            except BaseException:
                os.close(self._use)
                raise
            fcntl.flock(self._use, fcntl.LOCK_SH)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._use is None:
            return
        with locked(self._gate):
            try:
                if _try_exclusive(self._use):
                    FREE["mount"](str(self.path))
            finally:
                os.close(self._use)
                self._use = None

    def _mount(self) -> None:
        if not self._file.exists():
            fresh = self._file.with_suffix(".new")
            call("truncate", "--size", _SIZE, str(fresh))
            call("mkfs.btrfs", "--quiet", "--force", str(fresh))
            fresh.rename(self._file)
        self.path.mkdir(exist_ok=True)
        if not mounted(str(self.path)):
            try:
                call(
                    "mount",
                    "-t",
                    "btrfs",
                    "-o",
                    "loop,noatime,discard=async",
                    str(self._file),
                    str(self.path),
                )
            except HarnessError as error:
                raise HarnessError(
                    "cannot mount the pool of device images; `python -m tests.device.image clean` removes it"
                ) from error
        # Devices' mount namespaces copy what is mounted here; only from a shared mount do they hear
        # that it has gone, and a disk that is mounted anywhere isn't written to its end.
        call("mount", "--make-shared", str(self.path))
        for name in ("images", "work", "devices"):
            (self.path / name).mkdir(exist_ok=True)

    def _clear_devices(self) -> None:
        """Nobody else has the pool open, so what still lies here was left by a run that died."""
        for folder in ("devices", "work"):
            for path in sorted((self.path / folder).iterdir()):
                FREE["mount"](str(path))
                if path.is_dir() and path.stat().st_ino == SUBVOLUME_INODE:
                    FREE["subvolume"](str(path))
                else:
                    FREE["tree"](str(path))

    def snapshot(self, run: Run, image: Path, name: str) -> tuple[Path, list[Claim]]:
        """A writable copy of the subvolume `image` for the device `name`."""
        target = self.path / "devices" / name
        return target, [self._copy(run, image, target)]

    def disk(self, run: Run, image: Path, name: str) -> tuple[Path, Path, list[Claim]]:
        """A copy of the disk image `image`, and an empty folder to mount it on; the last claim is
        of that mount.
        """
        disk, folder, claims = self.place(run, name)
        call("cp", "--reflink=always", str(image), str(disk))
        return disk, folder, claims

    def place(self, run: Run, name: str) -> tuple[Path, Path, list[Claim]]:
        """Where a disk image may be made, and an empty folder to mount it on; the last claim is of
        that mount.
        """
        disk, folder = self.path / "devices" / f"{name}.img", self.path / "devices" / name
        claims = [
            run.claim("tree", str(disk)),
            run.claim("tree", str(folder)),
            run.claim("mount", str(folder)),
        ]
        folder.mkdir()
        return disk, folder, claims

    def _copy(self, run: Run, image: Path, target: Path) -> Claim:
        if target.exists():  # a snapshot onto a folder that exists would land inside it
            raise HarnessError(f"cannot snapshot onto {target}: it exists")
        claim = run.claim("subvolume", str(target))
        call("btrfs", "subvolume", "snapshot", str(image), str(target))
        return claim

    def draft(self, run: Run, origin: Path | None = None) -> Path:
        """A subvolume to build an image in: empty, or a copy of `origin`. Goes away unless it is
        published.
        """
        target = self.path / "work" / run.unique("image")
        if origin is not None:
            self._copy(run, origin, target)
        else:
            run.claim("subvolume", str(target))
            call("btrfs", "subvolume", "create", str(target))
        return target

    def publish(self, draft: Path, name: str) -> Path:
        """Give a finished draft its name among the images, in one step."""
        target = self.path / "images" / name
        draft.rename(target)
        return target

    def remove(self) -> None:
        """Unmount, and remove the whole cache. Refused while another process uses it."""
        if not self.cache.exists():
            return
        with locked(self._gate), open(self._users, "wb") as users:
            if not _try_exclusive(users.fileno()):
                raise HarnessError(
                    "cannot remove the device images: another process uses them; try again when it ends"
                )
            if mounted(str(self.path)):
                self._clear_devices()
                call("umount", str(self.path))
            shutil.rmtree(self.cache)


SUBVOLUME_INODE = 256  # the inode number of every subvolume's root in btrfs


def _try_exclusive(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
