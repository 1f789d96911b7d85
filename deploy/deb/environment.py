"""The Python libraries of a package: which, fetched by the hashes of requirements.lock, unpacked
and thinned.

Wheels for the target's Python and machine, whatever this machine is; nothing is compiled. What was
fetched is kept in a folder of the cache that is named by all that it was made of.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Final, NamedTuple

from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CACHE: Final = ROOT / ".cache" / "deb"
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
PYTHONS: Final = {"bookworm": "3.11", "trixie": "3.13"}
# Published by its authors as a source archive alone; pure Python, so that its wheel fits every
# Python and machine.
_SOURCE_ONLY: Final = frozenset({"nkeys"})
# glibc of Debian 12 is 2.36; pip wants every older platform named that a wheel may be built for.
_GLIBC: Final = (36, 35, 34, 31, 28, 27, 26, 24, 17)
# Used to build, to check types or to serve code of other times; nothing that runs here imports
# them.
_UNUSED: Final = (
    "cffi/",
    "pycparser/",
    "pydantic/v1/",
    "pydantic/mypy.py",
    "sdbus/unittest.py",
    "sdbus/autodoc.py",
)
_SUFFIXES: Final = (".pyi", ".typed", ".h", ".c", ".pyx", ".pth")
_FOLDERS: Final = frozenset({"tests", "test", "testing", "__pycache__"})


class Target(NamedTuple):
    """What a package is built for: `bookworm` or `trixie`, and Debian's name of the machine."""

    suite: str
    arch: str

    @property
    def python(self) -> str:
        """The suite's Python, as `3.11`."""
        return PYTHONS[self.suite]


def canonical(name: str) -> str:
    """A distribution's name as the lock file spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    """Name to requirement, with version and hashes, of every line of requirements.lock."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith(("#", "-")))
    return {canonical(line.split("==")[0]): re.sub(r";[^-]*", "", line) for line in lines}


def wanted(target: Target, *extras: str) -> list[str]:
    """The names of all that the project stands on with these extras, by the metadata of what is
    installed here.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    todo = [*project["dependencies"]]
    todo += [line for extra in extras for line in project["optional-dependencies"][extra]]
    found: dict[str, None] = {}
    while todo:
        needed = Requirement(todo.pop())
        name = canonical(needed.name)
        if name in found or not _applies(needed.marker, target):
            continue
        found[name] = None
        try:
            todo += requires(name) or []
        except PackageNotFoundError as error:
            raise SystemExit(
                f"cannot tell what {name} needs: it isn't installed here; run `make venv`"
            ) from error
    return sorted(found)


def _applies(marker: Marker | None, target: Target) -> bool:
    if marker is None:
        return True
    environment = {
        "python_version": target.python,
        "python_full_version": f"{target.python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": MACHINES[target.arch],
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }
    return marker.evaluate(environment)


def libraries(target: Target, *extras: str, without: Collection[str] = ()) -> Path:
    """A folder with `site/`, ready to be imported, and `licences/`, a file for each
    distribution.
    """
    pins = locked()
    lines = [pins[name] for name in wanted(target, *extras) if name not in without]
    made_of = [*target, *lines, Path(__file__).read_text(encoding="utf-8")]
    folder = CACHE / f"libraries-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:16]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as draft:
            wheels, fresh = Path(draft, "wheels"), Path(draft, "fresh")
            _fetch(wheels, target, lines)
            for wheel in sorted(wheels.glob("*.whl")):
                _unpack(wheel, fresh)
            if not folder.exists():
                fresh.rename(folder)
    return folder


def _fetch(folder: Path, target: Target, lines: list[str]) -> None:
    source_only = [line for line in lines if line.split("==")[0] in _SOURCE_ONLY]
    if source_only:
        _pip("wheel", folder, source_only)
    platforms = [f"manylinux_2_{minor}_{MACHINES[target.arch]}" for minor in _GLIBC]
    platforms.append(f"manylinux2014_{MACHINES[target.arch]}")
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
    for abi in (f"cp{target.python.replace('.', '')}", "abi3", "none"):
        options += ["--abi", abi]
    for name in platforms:
        options += ["--platform", name]
    _pip("download", folder, [line for line in lines if line not in source_only], *options)


def _pip(verb: str, folder: Path, lines: list[str], *options: str) -> None:
    into = "--wheel-dir" if verb == "wheel" else "--dest"
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join([*lines, ""]))
        file.flush()
        argv = [
            sys.executable,
            "-m",
            "pip",
            verb,
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            into,
        ]
        argv += [str(folder), "--require-hashes", "--requirement", file.name, *options]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    if done.returncode:
        raise SystemExit(f"cannot {verb} the libraries: {done.stderr.strip()}")


def _unpack(wheel: Path, fresh: Path) -> None:
    """What of a wheel is imported goes to `site`, its licence to `licences`."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA")).partition("/")[
            0
        ]
        for name in names:
            if _is_used(name, info):
                target = fresh / "site" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
        licences = fresh / "licences" / canonical(wheel.name.split("-")[0])
        licences.parent.mkdir(parents=True, exist_ok=True)
        licences.write_text("".join(_licence(archive, names, info)), encoding="utf-8")


def _is_used(name: str, info: str) -> bool:
    parts = Path(name).parts
    if name.endswith("/") or parts[0] == info or parts[0].endswith(".data") or ".." in parts:
        return False
    return not (name.startswith(_UNUSED) or name.endswith(_SUFFIXES) or _FOLDERS & set(parts[:-1]))


def _licence(archive: zipfile.ZipFile, names: list[str], info: str) -> Iterator[str]:
    """The name of its licence in a line of its own, then its text as far as the wheel has it."""
    metadata = archive.read(f"{info}/METADATA").decode()
    found = re.search(r"^License(?:-Expression)?: (\S.*)$", metadata, re.MULTILINE)
    classifier = re.search(r"^Classifier: License :: OSI Approved :: (.*)$", metadata, re.MULTILINE)
    yield f"{found[1] if found else classifier[1] if classifier else 'unknown'}\n"
    for name in names:
        if name.startswith(info) and re.search(
            r"(LICEN[CS]E|COPYING|NOTICE)[^/]*$", name, re.IGNORECASE
        ):
            yield archive.read(name).decode(errors="replace")


def copy_sources(site: Path, package: str, pattern: str) -> None:
    """The files of one of the project's packages into a site-packages."""
    for path in sorted((ROOT / package).rglob(pattern)):
        target = site / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
