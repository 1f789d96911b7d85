"""What the kind believes of packages, asked of the fake and of dpkg's file as dpkg writes it; and of
this machine's own dpkg, where it has one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harmony_agent.adapters.dpkg import STATUS, DpkgPackages
from harmony_agent.core.debian_version import is_older
from harmony_agent.core.errors import Transient
from harmony_agent.topology.packages import Packages, PackageState
from tests.fakes.packages import FakePackages

Install = Callable[[dict[str, tuple[str, str]]], None]


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Packages, Install]:
    if request.param == "fake":
        fake = FakePackages()

        def remember(packages: dict[str, tuple[str, str]]) -> None:
            fake.known = {
                name: PackageState(version, state)
                for name, (version, state) in packages.items()
                if state not in ("not-installed", "config-files")
            }

        return fake, remember
    path = tmp_path / "status"

    def write(packages: dict[str, tuple[str, str]]) -> None:
        """As dpkg does: written beside, then renamed."""
        stanzas = [
            f"Package: {name}\nStatus: install ok {state}\nPriority: optional\nVersion: {version}\n"
            f"Description: a package\n Package: other\n Status: install ok installed\n"
            for name, (version, state) in packages.items()
        ]
        new = tmp_path / "status-new"
        new.write_text("\n".join(stanzas))
        new.rename(path)

    return DpkgPackages(str(path)), write


async def test_what_is_installed_and_what_was(world: tuple[Packages, Install]) -> None:
    packages, install = world
    install({"a": ("1.0", "installed"), "b": ("2", "config-files"), "c": ("3", "half-installed")})
    wanted = ("a", "b", "c", "d", "other")
    found = {"a": PackageState("1.0"), "c": PackageState("3", "half-installed")}
    for _ in range(2):
        assert await packages.look(wanted) == found
    install({"a": ("1.1", "installed")})
    assert await packages.look(wanted) == {"a": PackageState("1.1")}
    assert await packages.look(("b",)) == {}


async def test_of_two_architectures_the_one_that_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "status"
    stanza = "Package: libc6\nStatus: install ok {}\nArchitecture: {}\nVersion: 2.36\n\n"
    for states in (("unpacked", "installed"), ("installed", "unpacked")):
        path.write_text(
            "".join(stanza.format(*one) for one in zip(states, ("amd64", "arm64"), strict=True))
        )
        found = await DpkgPackages(str(path)).look({"libc6"})
        assert found["libc6"].usable


async def test_a_device_without_dpkg(tmp_path: Path) -> None:
    with pytest.raises(Transient) as caught:
        await DpkgPackages(str(tmp_path / "gone")).look({"a"})
    assert (caught.value.reason, caught.value.phase) == ("PackagesUnreadable", "Unknown")


@pytest.mark.skipif(not os.path.exists(STATUS), reason="this machine has no dpkg")
async def test_dpkg_says_the_same() -> None:
    names = ["dpkg", "libc6", "bash"]
    query = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\\n", *names]
    said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    found = await DpkgPackages().look(names)
    assert dict(line.split() for line in said.splitlines()) == {
        name: state.version for name, state in found.items()
    }


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="this machine has no dpkg")
@pytest.mark.parametrize("one", ["1.0", "1.0~rc1-1", "1:0.9", "1.0-1+b2", "1.0-1~bpo12+1", "1.0a"])
@pytest.mark.parametrize("other", ["1.0", "1.0-0", "1.0.1", "1.0+dfsg-1", "2~", "1.0-1"])
def test_dpkg_orders_versions_as_we_do(one: str, other: str) -> None:
    done = subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False)
    assert is_older(one, other) == (done.returncode == 0)
