"""The wheels that go into a device, made outside because a device reaches no registry.

Must not touch an image; it fills folders of the cache, each named by the hash of what it holds.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.device.storage import REPOSITORY, locked
from tests.device.tools import HarnessError, call

_KEPT_FOR = 24 * 3600.0
_PACKAGES = ("scores", "harmony_nats", "harmony_agent", "harmony_updater", "harmony_fleet")
# Pure Python that its authors publish without a wheel: built here first, so that nothing is built
# for another Python.
_SOURCE_ONLY = ("nkeys",)
# pyproject.toml's build system with what it wants for an editable install, and that of the above.
_BUILDERS = ("hatchling", "editables", "setuptools", "wheel")
# glibc of Debian 12 is 2.36; pip wants every older platform named that a wheel may be built for.
_GLIBC = ("2_36", "2_35", "2_34", "2_31", "2_28", "2_27", "2_24", "2_17", "2_12", "2_5")


def requirements(repository: Path = REPOSITORY) -> list[str]:
    """What the agent needs, from pyproject.toml, each pinned as in the lock file where that names
    it.
    """
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["agent"]]


def pins(repository: Path = REPOSITORY) -> list[str]:
    """The `name==version` of every line of requirements.lock; none when there is no lock file."""
    lock = repository / "requirements.lock"
    if not lock.exists():
        return []
    lines = (
        line.split("#")[0].split(";")[0].strip(" \\")
        for line in lock.read_text(encoding="utf-8").splitlines()
    )
    return [line.split()[0] for line in lines if "==" in line and not line.startswith("-")]


def dependencies(cache: Path, python: str) -> Path:
    """A folder with the wheels of all that the agent needs, for Python `python` (`3.11`) on this
    machine's kind.
    """
    wanted, pinned = requirements(), pins()
    target = cache / "wheels" / f"{python}-{platform.machine()}-{_digest([*wanted, '', *pinned])}"
    with locked(cache / "wheels.lock"):
        if not target.exists():
            _into(target, lambda folder: _download(folder, python, wanted, pinned))
    return target


def _download(folder: Path, python: str, wanted: list[str], pinned: list[str]) -> None:
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
    ]
    argv += ["--dest", str(folder), *_platform(python)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(pinned) + "\n")
        constraints.flush()
        for requirement in (
            line for line in wanted if re.match(r"[\w.-]+", line)[0] in _SOURCE_ONLY
        ):  # type: ignore[index]
            build = [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
            ]
            call(
                *build,
                "--wheel-dir",
                str(folder),
                "--constraint",
                constraints.name,
                requirement,
                timeout=300,
            )
        argv += ["--find-links", str(folder), "--constraint", constraints.name]
        call(*argv, *wanted, timeout=600)


def _platform(python: str) -> list[str]:
    """pip's options for another Python than the one that runs this, on this machine's kind."""
    options = ["--implementation", "cp", "--python-version", python]
    options += [
        option
        for abi in ("cp" + python.replace(".", ""), "abi3", "none")
        for option in ("--abi", abi)
    ]
    for glibc in _GLIBC:
        options += ["--platform", f"manylinux_{glibc}_{platform.machine()}"]
    return [
        *options,
        "--platform",
        f"manylinux2014_{platform.machine()}",
        "--platform",
        f"manylinux1_{platform.machine()}",
    ]


def everything(cache: Path, python: str, repository: Path = REPOSITORY) -> Path:
    """A folder with all that `make venv` fetches: what the lock file names, and what builds the
    project.
    """
    lock = repository / "requirements.lock"
    target = (
        cache
        / "wheels"
        / f"all-{python}-{platform.machine()}-{_digest([lock.read_text(encoding='utf-8')])}"
    )
    with locked(cache / "wheels.lock"):
        if not target.exists():
            _into(target, lambda folder: _download_everything(folder, python, lock))
    return target


def _download_everything(folder: Path, python: str, lock: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
    ]
    locked_ones = ["--no-deps", "--require-hashes", "--requirement", str(lock)]
    call(*argv, *_platform(python), *locked_ones, timeout=600)
    call(*argv, *_platform(python), "--only-binary=:all:", *_BUILDERS, timeout=600)


def project(cache: Path, repository: Path = REPOSITORY) -> Path:
    """The project's own wheel, built from the tree as it is now."""
    files = [repository / "pyproject.toml", repository / "README.md"]
    for package in _PACKAGES:
        files += sorted(path for path in (repository / package).rglob("*") if _shipped(path))
    # Read once, so that a file which changes meanwhile can't give a wheel that isn't what its name
    # says.
    content = {str(path.relative_to(repository)): path.read_bytes() for path in files}
    target = (
        cache
        / "wheels"
        / f"project-{_digest(f'{path} {data.hex()}' for path, data in content.items())}"
    )
    with locked(cache / "wheels.lock"):
        if not target.exists():
            _into(target, lambda folder: _build(folder, content))
            for old in (cache / "wheels").glob("project-*"):
                if time.time() - old.stat().st_mtime > _KEPT_FOR:
                    shutil.rmtree(old)
    os.utime(target)
    found = list(target.glob("*.whl"))
    if len(found) != 1:
        raise HarnessError(
            f"cannot use {target}: it should hold one wheel; remove it and try again"
        )
    return found[0]


def _build(folder: Path, content: Mapping[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as copy:
        for path, data in content.items():
            inside = Path(copy, path)
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.write_bytes(data)
        argv = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        argv += ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
        call(*argv, "--wheel-dir", str(folder), copy, timeout=300)


def _shipped(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts


def _into(target: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside `target` and give it its name when it is whole."""
    fresh = target.with_name(f".{target.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    fill(fresh)
    fresh.rename(target)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
