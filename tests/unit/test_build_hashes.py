"""What goes into a package is what the lock's hashes say, or nothing is built."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.arch.tree import ROOT


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that fetches the libraries; it stands beside the package's own files."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "deb"))
    import environment

    yield environment
    sys.modules.pop("environment", None)


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A library in a folder that pip looks into, and nowhere else; its hash."""
    wheel = tmp_path / "offered" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in about.items():
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_a_library_of_another_hash_or_of_none_is_refused(
    environment: ModuleType, digest: str, tmp_path: Path
) -> None:
    into = tmp_path / "fetched"
    for line in ("tiny==1.0", f"tiny==1.0 --hash=sha256:{'0' * 64}"):
        with pytest.raises(SystemExit, match="cannot download the libraries"):
            environment._pip("download", into, [line])
    assert not list(into.glob("*"))
    environment._pip("download", into, [f"tiny==1.0 --hash=sha256:{digest}"])
    assert [path.name for path in into.iterdir()] == ["tiny-1.0-py3-none-any.whl"]


def test_each_library_of_the_lock_has_a_hash() -> None:
    entries = (ROOT / "requirements.lock").read_text("utf-8").replace("\\\n", " ").splitlines()
    named = [line for line in entries if line.strip() and not line.lstrip().startswith("#")]
    assert len(named) > 10
    assert [line.split()[0] for line in named if "--hash=sha256:" not in line] == []
