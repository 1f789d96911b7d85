"""A single file that is allowed, though no root holds it: it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harmony_agent.adapters.posix.path_errors import PathRefused
from harmony_agent.adapters.posix.safe_path import RootedPaths
from harmony_agent.core.paths import PathSet
from harmony_agent.kinds.file.policy import FilePolicy
from scores import File
from scores.manifest import FieldError


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/etc/modprobe.d/a.conf", True),
        ("/etc/modprobe.d/b.conf", False),
        ("/etc/modprobe.d", False),
        ("/etc/modprobe.d/a.conf/b", False),
        ("/srv/a", True),
        ("/srv", False),
    ],
)
def test_the_policy(path: str, allowed: bool) -> None:
    policy = FilePolicy(["/srv"], ["/etc/modprobe.d/a.conf"], PathSet(()))
    refused = [] if allowed else [FieldError("path", "PathOutsideRoots")]
    assert list(policy.violations(File(name="a", path=path, content="x"))) == refused


def test_what_is_closed_stays_so() -> None:
    policy = FilePolicy([], ["/etc/harmony/agent.toml"], PathSet(("/etc/harmony",)))
    spec = File(name="a", path="/etc/harmony/agent.toml", content="x")
    assert list(policy.violations(spec)) == [FieldError("path", "PathForbidden")]


def test_the_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    single = f"{tmp_path}/etc/a.conf"
    paths = RootedPaths([f"{tmp_path}/srv"], [single])
    with paths.parent(single) as parent:
        assert parent.name == "a.conf"
    for other in (f"{tmp_path}/etc/b.conf", f"{single}/b", f"{tmp_path}/etc"):
        with pytest.raises(PathRefused), paths.parent(other):
            pass
