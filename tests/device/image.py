"""Base images of Debian for the device harness, built once and cached.

    python -m tests.device.image build [SUITE…]      builds all layers; bookworm and trixie when none is named
    python -m tests.device.image clean               unmounts and removes the whole cache

An image is made in layers, each a snapshot of the one before: Debian, prepared (by the week); the
agent's dependencies in /opt/harmony; the project itself. A layer's name is the hash of all that
went into it. Must not import pytest.
"""

import argparse
import datetime
import functools
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.device import prepare, wheels
from tests.device.claims import Run, sweep
from tests.device.storage import Pool, locked
from tests.device.tools import HarnessError, call

SUITES = ("bookworm", "trixie")
PYTHON = {"bookworm": "3.11", "trixie": "3.13"}
VENV = "/opt/harmony"
_DAY = 24 * 3600.0
_KEPT_FOR = {"base": 8 * _DAY, "deps": 8 * _DAY, "project": 1 * _DAY}  # since it was last used
_DISK_SIZE = "4G"


class Images:
    """The images of one pool. Each method returns at once when the image is there, and builds it
    when it isn't.

    What the project is, is decided once: all devices of one Images run the same code, however the
    tree changes.
    """

    def __init__(self, pool: Pool, run: Run) -> None:
        self._pool, self._run = pool, run

    def base(self, suite: str) -> Path:
        """Debian `suite`, prepared, with the image for containers loaded for root and
        fleet-agent.
        """
        if suite not in SUITES:
            raise HarnessError(f"cannot build an image of {suite!r}: only of {', '.join(SUITES)}")
        made_of = [suite, *self.packages(suite), *self.preparation()]
        year, week, _ = datetime.datetime.now(datetime.UTC).isocalendar()
        stem = f"{suite}-base-{_digest(*made_of)}"
        try:
            return self._layer(suite, f"{stem}-{year}w{week:02}", lambda: self._build_base(suite))
        except HarnessError:
            older = sorted((self._pool.path / "images").glob(f"{stem}-*"))
            if not older:
                raise
            return older[-1]  # last week's Debian is better than none when no mirror answers

    def packages(self, suite: str) -> list[str]:
        """The packages that the base image of `suite` is made with."""
        return packages(suite)

    def preparation(self) -> list[str]:
        """What prepare() does, as text that changes when it does."""
        return [Path(prepare.__file__).read_text(encoding="utf-8")]

    def prepare(self, root: Path) -> None:
        """Turn the unpacked Debian in `root` into the root of a device."""
        prepare.prepare(root)

    def agent(self, suite: str) -> Path:
        """The base with everything in /opt/harmony that the agent needs, but the project itself."""
        base = self.base(suite)
        house = wheels.dependencies(self._pool.cache, PYTHON[suite])
        name = f"{suite}-deps-{_digest(base.name, house.name)}"
        return self._layer(suite, name, lambda: self._build_deps(base, house))

    def wheels(self, suite: str) -> Path:
        """A folder with all that `make venv` fetches on `suite`."""
        return wheels.everything(self._pool.cache, PYTHON[suite])

    @functools.cached_property
    def _wheel(self) -> Path:
        return wheels.project(self._pool.cache)

    @functools.cache  # noqa: B019 - lives as long as one run of the harness
    def project(self, suite: str) -> Path:
        """The image that devices are made of: the agent's dependencies and the project as it was at
        first use.
        """
        deps = self.agent(suite)
        name = f"{suite}-project-{_digest(deps.name, self._wheel.parent.name)}"
        return self._layer(suite, name, lambda: self._build_project(deps))

    @functools.cache  # noqa: B019 - as above
    def disk(self, suite: str) -> Path:
        """The same as an ext4 file system in a file, for devices whose power can be cut."""
        deps = self.agent(suite)
        empty = self._layer(suite, f"{deps.name}.img", lambda: self._build_disk(deps))
        return self._layer(
            suite, f"{self.project(suite).name}.img", lambda: self._build_project_disk(empty)
        )

    def _layer(self, suite: str, name: str, build: Callable[[], Path]) -> Path:
        target = self._pool.path / "images" / name
        if not target.exists():
            with locked(self._pool.cache / f"build-{suite}.lock"):
                if not target.exists():
                    self._pool.publish(build(), name)
                    self._forget_old(suite)
        os.utime(target)
        return target

    def _forget_old(self, suite: str) -> None:
        """Remove this suite's images that nothing has used for long."""
        for layer, kept in _KEPT_FOR.items():
            for path in (self._pool.path / "images").glob(f"{suite}-{layer}-*"):
                if time.time() - path.stat().st_mtime > kept:
                    self._run.free(
                        self._run.claim("tree" if path.is_file() else "subvolume", str(path))
                    )

    def _build_base(self, suite: str) -> Path:
        root = self._pool.draft(self._run)
        sources = mirror_sources(suite)
        include = ",".join(self.packages(suite))
        argv = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={include}", suite, str(root)]
        call(*argv, *(["-"] if sources else []), stdin=sources.encode(), timeout=900)
        self.prepare(root)
        self._load_busybox(root)
        prepare.forget_first_boot(root)
        return root

    def _load_busybox(self, root: Path) -> None:
        """Boot the new base once, because only podman itself writes what podman reads."""
        from tests.device.machine import Device

        name = self._run.unique("build")
        console = self._run.folder / f"{name}.console"
        device = Device(
            self._run, root, name=name, suite="", hostname="build", link=None, console=console, claims=[]
        ).boot()  # fmt: skip
        try:
            for as_root in (True, False):
                device.podman("import", prepare.BUSYBOX_TAR, prepare.BUSYBOX, root=as_root)
            device.stop()
        finally:
            device.close()

    def _build_deps(self, base: Path, house: Path) -> Path:
        root = self._pool.draft(self._run, base)
        call("chroot", str(root), "python3", "-m", "venv", VENV)
        inside = root / "tmp/wheels"
        shutil.copytree(house, inside)
        names = [f"/tmp/wheels/{path.name}" for path in sorted(inside.glob("*.whl"))]
        _pip_install(root, *names)
        shutil.rmtree(inside)
        return root

    def _build_project(self, deps: Path) -> Path:
        root = self._pool.draft(self._run, deps)
        self._install_project(root)
        return root

    def _install_project(self, root: Path) -> None:
        inside = root / "tmp" / self._wheel.name
        shutil.copy(self._wheel, inside)
        _pip_install(root, f"/tmp/{self._wheel.name}")
        inside.unlink()
        for script in ("harmony-agent", "harmony-updater"):
            (root / "usr/local/bin" / script).symlink_to(f"{VENV}/bin/{script}")

    def _build_disk(self, deps: Path) -> Path:
        image = self._pool.path / "work" / self._run.unique("disk")
        self._run.claim("tree", str(image))
        call("truncate", "--size", _DISK_SIZE, str(image))
        call("mke2fs", "-q", "-F", "-t", "ext4", "-d", str(deps), str(image), timeout=300)
        return image

    def _build_project_disk(self, deps: Path) -> Path:
        image, folder, claims = self._pool.disk(self._run, deps, self._run.unique("disk"))
        call("mount", "-t", "ext4", "-o", "loop", str(image), str(folder))
        self._install_project(folder)
        self._run.free(claims[-1])
        return image


def packages(suite: str) -> list[str]:
    """The packages that the base image of `suite` is made with."""
    return prepare.PACKAGES + prepare.PACKAGES_ON[suite]


def _pip_install(root: Path, *names: str) -> None:
    argv = [
        "chroot",
        str(root),
        f"{VENV}/bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    call(*argv, "--no-cache-dir", "--disable-pip-version-check", *names, env=env, timeout=300)


def mirror_sources(suite: str) -> str:
    """The sources.list to build `suite` from: the host's own mirrors with the suite swapped.

    Empty when the host isn't Debian or has no such mirror; mmdebstrap then takes Debian's own.
    """
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
        if "=" in line
    )
    if release.get("ID") != "debian":
        return ""
    codename = release.get("VERSION_CODENAME", "").strip('"')
    listed = call(
        "apt-get",
        "indextargets",
        "--format",
        "$(RELEASE) $(COMPONENT) $(REPO_URI)",
        "Created-By: Packages",
    )
    found = {name: uri for name, component, uri in (line.split(" ", 2) for line in listed.splitlines())
             if component == "main"}  # fmt: skip
    if codename not in found:
        return ""
    parts = [part for part in ("", "-updates", "-security") if codename + part in found]
    return "".join(f"deb {found[codename + part]} {suite}{part} main\n" for part in parts)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def main() -> int:
    """Entry point of `python -m tests.device.image`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.device.image", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("action", choices=("build", "clean"))
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help="bookworm, trixie (default: both)"
    )
    arguments = parser.parse_args()
    try:
        sweep()
        if arguments.action == "clean":
            Pool().remove()
            return 0
        with Pool() as pool, Run() as run:
            for suite in arguments.suites or SUITES:
                begun = time.monotonic()
                image = Images(pool, run).project(suite)
                print(f"{image.name}: {time.monotonic() - begun:.1f} s")
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
