"""A signed repository of Debian packages that a test makes, as a file:/ source of a device.

    repository = Repository(lab.folder / "apt") repository.add(Package("harmony-sample", "1.0",
    {"/usr/share/harmony-sample/version": "1.0\\n"})) repository.give(device)

Packages are as small as dpkg takes them; scripts are maintainer scripts with their own first line.
The key is thrown away with the folder. Must not run apt.
"""

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any, Protocol

from tests.device.tools import HarnessError, call

PLACE = "/var/lib/harmony-test/apt"
KEY = "/usr/share/keyrings/harmony-test.gpg"
SOURCE = "/etc/apt/sources.list.d/harmony-test.list"
LINE = f"deb [signed-by={KEY}] file:{PLACE} ./\n"
_OWNER = "Harmony test repository <test@harmony.invalid>"


class Receiver(Protocol):
    """The part of a device that takes the repository."""

    def run(self, argv: Sequence[str], *, input: bytes | str | None = None) -> Any:  # noqa: A002 - a device's own
        """Run a command to its end, with that standard input."""

    def write(self, path: str, data: bytes | str) -> None:
        """Write a file, its folders made when missing."""


@dataclass(frozen=True)
class Package:
    """What goes into one .deb. `fields` are further lines of its control file, `scripts` its
    maintainer scripts.
    """

    name: str
    version: str
    files: Mapping[str, str] = field(default_factory=dict)
    conffiles: Sequence[str] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def control(self) -> str:
        """Its control file."""
        fixed = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "all",
            "Maintainer": "nobody <n@x.test>",
        }
        described = {**fixed, **self.fields, "Description": "made by a test"}
        return "".join(f"{key}: {value}\n" for key, value in described.items())


class Repository:
    """The repository on the host. The path of `folder` has to be short: gpg puts a socket below
    it.
    """

    def __init__(self, folder: Path) -> None:
        self._tree, self._home = folder / "tree", folder / "gnupg"
        self._packages: dict[str, str] = {}
        self._tree.mkdir(parents=True)
        self._home.mkdir(mode=0o700)
        self._gpg("--passphrase", "", "--quick-generate-key", _OWNER, "ed25519", "sign", "never")
        self._gpg("--output", str(folder / "key.gpg"), "--export", _OWNER)
        self.key = (folder / "key.gpg").read_bytes()

    def add(self, *packages: Package) -> "Repository":
        """Build the packages, or build them anew, and sign the index again."""
        for package in packages:
            self._packages[f"{package.name}_{package.version}_all.deb"] = package.control
            self._build(package)
        self.sign()
        return self

    def take(self, *debs: Path) -> "Repository":
        """Offer packages that were built elsewhere, and sign the index again."""
        for deb in debs:
            shutil.copyfile(deb, self._tree / deb.name)
            self._packages[deb.name] = f"{call('dpkg-deb', '--field', str(deb)).strip()}\n"
        self.sign()
        return self

    def drop(self, name: str, version: str) -> None:
        """Take one package out, and sign the index again."""
        deb = f"{name}_{version}_all.deb"
        del self._packages[deb]
        (self._tree / deb).unlink()
        self.sign()

    def sign(self) -> None:
        """Write the index of what is there now and sign it."""
        index = "\n".join(
            self._entry(deb, control) for deb, control in sorted(self._packages.items())
        ).encode()
        made = {"Packages": index, "Packages.gz": gzip.compress(index, mtime=0)}
        lines = [
            f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}" for name, data in made.items()
        ]
        head = [
            "Origin: harmony-test",
            "Suite: test",
            f"Date: {formatdate(usegmt=True)}",
            "Architectures: all amd64",
        ]
        made["Release"] = "\n".join([*head, "SHA256:", *lines, ""]).encode()
        for name, data in made.items():
            (self._tree / name).write_bytes(data)
        signed = self._tree / "InRelease"
        self._gpg("--yes", "--output", str(signed), "--clear-sign", str(self._tree / "Release"))

    def give(self, device: Receiver) -> None:
        """Copy the repository as it is now into a device, with its key and its line of the
        sources.
        """
        device.run(["rm", "-rf", PLACE])
        device.run(["mkdir", "--parents", PLACE])
        device.run(["tar", "--extract", "--file=-", f"--directory={PLACE}"], input=self._tar())
        device.write(KEY, self.key)
        device.write(SOURCE, LINE)

    def _entry(self, deb: str, control: str) -> str:
        data = (self._tree / deb).read_bytes()
        where = (
            f"Filename: ./{deb}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        )
        return control.replace("Description:", f"{where}Description:")

    def _build(self, package: Package) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name, "root")
            parts = {f"DEBIAN/{script}": text for script, text in package.scripts.items()}
            parts |= {path.lstrip("/"): text for path, text in package.files.items()}
            parts["DEBIAN/control"] = package.control
            if package.conffiles:
                parts["DEBIAN/conffiles"] = "".join(f"{path}\n" for path in package.conffiles)
            for path, text in parts.items():
                target = root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
                target.chmod(
                    0o755 if path.startswith("DEBIAN/") and text.startswith("#!") else 0o644
                )
            for folder, _, _ in os.walk(root):
                os.chmod(folder, 0o755)
            deb = self._tree / f"{package.name}_{package.version}_all.deb"
            call("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(deb))

    def _gpg(self, *argv: str) -> None:
        if len(str(self._home)) > 80:
            raise HarnessError(
                f"cannot use gpg below {self._home}: the path is too long for its socket; use another"
            )
        options = (
            "--batch",
            "--quiet",
            "--no-permission-warning",
            "--homedir",
            str(self._home),
            "--pinentry-mode",
        )
        try:
            call("gpg", *options, "loopback", *argv)
        finally:  # it leaves its agent running
            call("gpgconf", "--homedir", str(self._home), "--kill", "gpg-agent")

    def _tar(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            tar.add(self._tree, arcname=".", filter=_roots)
        return out.getvalue()

    def close(self) -> None:
        """Remove it from the host. What devices were given stays theirs."""
        shutil.rmtree(self._tree.parent)


def _roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Belongs to root and is readable for apt's own user."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry
