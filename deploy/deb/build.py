"""Builds the Debian packages: harmony-agent and harmony-updater for Debian 12 and 13, amd64 and
arm64.

    python deploy/deb/build.py [--suite bookworm] [--arch amd64] [--version 0.2.0] [--out dist]

Each package is a folder beside this file: `control`, maintainer scripts, lintian's overrides, and
`files/`, which is copied as it is. The Python environment comes from environment.py. Needs no root
and no Debian tool but dpkg-deb; the same tree gives the same bytes. Must not read the clock.
"""

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from environment import MACHINES, PYTHONS, ROOT, Target, copy_sources, libraries

HERE: Final = Path(__file__).resolve().parent
RELEASES: Final = {"bookworm": 12, "trixie": 13}
MAINTAINER: Final = "Harmony maintainers <maintainers@harmony.invalid>"
# What is Debian's to hold the text of, by a word of it.
COMMON: Final = {
    "apache license|apache-2": "Apache-2.0",
    "gnu lesser general public license": "LGPL-2.1",
}
SCRIPTS: Final = ("preinst", "postinst", "prerm", "postrm")


class Kind(NamedTuple):
    """A package: the home of its Python environment (if it has one), its extras, what of the
    project is in it, and what it leaves out of the project's own dependencies.
    """

    home: str = ""
    extras: tuple[str, ...] = ()
    project: tuple[tuple[str, str], ...] = ()
    command: str = ""
    without: tuple[str, ...] = ()


UPDATER: Final = (("harmony_updater", "*.py"), ("harmony_updater", "*.conf"))
AGENT: Final = (
    *((package, "*.py") for package in ("scores", "harmony_nats", "harmony_agent")),
    ("harmony_updater", "__init__.py"),
)
PACKAGES: Final = {
    # The agent imports the updater's protocol and nothing else of it.
    "harmony-agent": Kind(
        "opt/harmony/agent",
        extras=("agent",),
        project=(*AGENT, ("harmony_updater", "protocol.py")),
        command="harmony-agent",
    ),
    # What runs as root has no library that it doesn't use.
    "harmony-updater": Kind(
        "opt/harmony/updater", (), UPDATER, "harmony-updater", without=("cronsim",)
    ),
    "harmony-agent-system": Kind(),
}


def run(*argv: str, **environment: str) -> str:
    """Run a tool; its output. Exits with what it said when it fails."""
    done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
        argv,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    if done.returncode:
        raise SystemExit(
            f"{argv[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
        )
    return done.stdout.strip()


def epoch() -> int:
    """When the sources were last changed: $SOURCE_DATE_EPOCH, else the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    if (ROOT / ".git").exists():
        return int(run("git", "log", "-1", "--format=%ct"))
    return int((ROOT / "pyproject.toml").stat().st_mtime)


def project_version() -> str:
    """The version in the agent's source."""
    text = (ROOT / "harmony_agent/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit("cannot find __version__ in harmony_agent/__init__.py")
    return found[1]


class Build:
    """One package for one target, in a folder of its own."""

    def __init__(self, name: str, target: Target, version: str, when: int, root: Path) -> None:
        self.name, self.kind, self.target, self.root, self.when = (
            name,
            PACKAGES[name],
            target,
            root,
            when,
        )
        self.upstream = version
        self.version = f"{version}-1" + (f"+deb{RELEASES[target.suite]}" if self.kind.home else "")
        self.arch = target.arch if self.kind.home else "all"
        major, minor = target.python.split(".")
        self.words = {
            "package": name,
            "version": self.version,
            "arch": self.arch,
            "maintainer": MAINTAINER,
            "python": target.python,
            "next_python": f"{major}.{int(minor) + 1}",
            "suite": target.suite,
            "date": formatdate(when),
        }

    @property
    def file(self) -> str:
        """The name of the package's file."""
        return f"{self.name}_{self.version}_{self.arch}.deb"

    def write(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        """Put a file below the package's root."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        target.chmod(mode)

    def fill(self) -> None:
        """Everything that the package installs."""
        if self.kind.home:
            self._environment()
        shutil.copytree(HERE / self.name / "files", self.root, dirs_exist_ok=True)
        for path in sorted(self.root.rglob("*")):
            path.chmod(
                0o755 if path.is_dir() or _is_program(path) else 0o644
            ) if not path.is_symlink() else None
        for manual in sorted(self.root.glob("usr/share/man/man*/*")):
            self.write(f"{manual.relative_to(self.root)}.gz", _gzip(manual.read_bytes()))
            manual.unlink()
        self._papers()

    def _environment(self) -> None:
        home = self.kind.home
        found = libraries(self.target, *self.kind.extras, without=self.kind.without)
        site = f"{home}/lib/python{self.target.python}/site-packages"
        shutil.copytree(found / "site", self.root / site)
        for package, pattern in self.kind.project:
            copy_sources(self.root / site, package, pattern)
        for marked in (self.root / site).glob("harmony_*/__init__.py"):
            text = marked.read_text(encoding="utf-8")
            self.write(
                str(marked.relative_to(self.root)), text.replace(project_version(), self.upstream)
            )
        python = f"/usr/bin/python{self.target.python}"
        lines = [
            "home = /usr/bin",
            "include-system-site-packages = false",
            f"version = {self.target.python}",
        ]
        self.write(f"{home}/pyvenv.cfg", "\n".join([*lines, f"executable = {python}", ""]))
        (self.root / home / "bin").mkdir()
        (self.root / home / "bin/python3").symlink_to(python)
        (self.root / "usr/bin").mkdir(parents=True)
        (self.root / "usr/bin" / self.kind.command).symlink_to(f"/{home}/bin/{self.kind.command}")
        self.licences = found / "licences"

    def _papers(self) -> None:
        doc = f"usr/share/doc/{self.name}"
        entry = (
            f"{self.name} ({self.version}) {self.target.suite if self.kind.home else 'unstable'}; urgency=medium\n\n"
            f"  * Version {self.upstream} of the sources.\n\n -- {MAINTAINER}  {self.words['date']}\n"
        )
        self.write(f"{doc}/changelog.Debian.gz", _gzip(entry.encode()))
        self.write(f"{doc}/copyright", self._copyright())
        overrides = HERE / self.name / "lintian-overrides"
        if overrides.exists():
            self.write(f"usr/share/lintian/overrides/{self.name}", overrides.read_bytes())

    def _copyright(self) -> str:
        """The project's licence, and those of the libraries as their authors give them."""
        text = (HERE / "copyright").read_text(encoding="utf-8")
        for path in sorted(self.licences.iterdir()) if self.kind.home else []:
            name, _, body = path.read_text(encoding="utf-8").partition("\n")
            common = [
                line for said, line in COMMON.items() if re.search(said, name + body, re.IGNORECASE)
            ]
            body = f"See /usr/share/common-licenses/{common[0]}." if common else body.strip()
            text += (
                f"\n{'=' * 78}\n{path.name} in /{self.kind.home}: {name}\n{'=' * 78}\n\n{body}\n"
            )
        return text

    def pack(self, out: Path, compression: str) -> Path:
        """Add the control files, and make the package."""
        files = sorted(
            path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()
        )
        sums = [f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(self.root)}\n"
                for path in files]  # fmt: skip
        size = sum((path.lstat().st_size + 1023) // 1024 or 1 for path in self.root.rglob("*"))
        control = Template((HERE / self.name / "control").read_text(encoding="utf-8"))
        self.write("DEBIAN/control", control.substitute(self.words, size=size))
        self.write("DEBIAN/md5sums", "".join(sums))
        for script in SCRIPTS:
            if (HERE / self.name / script).exists():
                self.write(f"DEBIAN/{script}", (HERE / self.name / script).read_bytes(), 0o755)
        for path in (self.root, *self.root.rglob("*")):
            os.utime(path, (self.when, self.when), follow_symlinks=False)
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        made = out / self.file
        argv = (
            "dpkg-deb",
            "--root-owner-group",
            f"-Z{compression}",
            "--build",
            str(self.root),
            str(made),
        )
        run(*argv, SOURCE_DATE_EPOCH=str(self.when))
        return made


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)


def build(name: str, target: Target, version: str, out: Path, compression: str = "xz") -> Path:
    """Build one package; where it is."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Build(name, target, version, epoch(), Path(folder, "root"))
        made.root.mkdir()
        made.fill()
        return made.pack(out, compression)


def lint(debs: list[Path]) -> None:
    """Exit where lintian finds an error or warns."""
    if shutil.which("lintian") is None:
        sys.stdout.write("lintian isn't installed: the packages are not checked\n")
        return
    run("lintian", "--fail-on", "error,warning", "--allow-root", *map(str, debs))


def main() -> int:
    """Build what the command line names; every package for every target, when it names none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", action="append", choices=sorted(PYTHONS), help="default: all")
    parser.add_argument("--arch", action="append", choices=sorted(MACHINES), help="default: all")
    parser.add_argument("--package", action="append", choices=sorted(PACKAGES), help="default: all")
    parser.add_argument("--version", default=project_version(), help="default: that of the sources")
    parser.add_argument(
        "--compression", default="xz", choices=("xz", "none"), help="none is made faster"
    )
    parser.add_argument("--no-lint", action="store_true", help="don't run lintian")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    asked = parser.parse_args()
    made = set()
    for suite in asked.suite or PYTHONS:
        for arch in asked.arch or MACHINES:
            for name in asked.package or PACKAGES:
                made.add(
                    build(name, Target(suite, arch), asked.version, asked.out, asked.compression)
                )
    if not asked.no_lint:
        lint(sorted(made))
    for path in sorted(made):
        sys.stdout.write(f"{path.stat().st_size / 1e6:6.1f} MB  {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
