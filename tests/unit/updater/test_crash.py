"""A crash, a full disk and a failing disk at each point of the updater: the recovery table
holds.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import harmony_updater
from harmony_updater.machine import TERMINAL
from tests.unit.updater.campaign import CALLS

SOURCES = sorted(Path(harmony_updater.__file__).parent.glob("*.py"))
SHARDS = 2
# What changes a disk or starts a process, and that no point is laid for.
FORBIDDEN = {
    "os": {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "rename", "link", "symlink", "truncate",
           "ftruncate", "pwrite", "writev", "sendfile", "copy_file_range", "remove", "rmdir", "mkdir", "fdatasync"},
    "subprocess": {"run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree"},
}  # fmt: skip
# Not of the journal: the socket's place, the folders, the lock's empty file.
APART = {("os", "unlink", "server.py"), ("os", "makedirs", "journal.py"), ("os", "open", "lock.py")}
APART |= {("os", "makedirs", "host.py")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every run of the campaign, the first one without a cut."""
    folders = [tmp_path_factory.mktemp(f"shard{shard}") for shard in range(SHARDS)]
    shards = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.unit.updater.campaign",
                str(folder),
                str(shard),
                str(SHARDS),
            ]
        )
        for shard, folder in enumerate(folders)
    ]
    assert [shard.wait() for shard in shards] == [0] * SHARDS
    first, *others = (json.loads((folder / "runs.json").read_bytes()) for folder in folders)
    return [*first, *(run for other in others for run in other[1:])]


def name(run: dict[str, Any]) -> str:
    cut = run["cut"]
    what = next(
        (p for p in run["points"] if p[:2] == [cut["role"], cut["number"]]), ["", "", "", "?", "?"]
    )
    return f"{cut['fault']} at {cut['role']} {cut['number']} ({what[2]} {what[4]}, {what[3]}): {summary(run)}"


def summary(run: dict[str, Any]) -> str:
    final = f"{run['final'].get('phase')}/{run['final'].get('reason')}"
    did = f"{run['upgrades']} upgrades, {run['reboots']} reboots {run['trouble']} {run['wrong']}"
    return f"{run['at_restart'].get('phase')}/{run['ended']!r} -> {final}, {did}"


def test_without_a_cut_it_ends_complete(runs: list[dict[str, Any]]) -> None:
    first = runs[0]
    assert (first["final"]["phase"], first["upgrades"], first["reboots"], first["lives"]) == (
        "complete",
        1,
        1,
        2,
    )
    assert first["final"]["result"]["upgraded"] == ["demo (1.0 => 2.0)"]


def test_every_point_was_cut(
    runs: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    points = {tuple(point[:2]) for point in runs[0]["points"]}
    hit = {(run["cut"]["role"], run["cut"]["number"]) for run in runs[1:]}
    for run in runs[1:]:  # the cut came about: the run reached its point
        assert [run["cut"]["role"], run["cut"]["number"]] in [
            point[:2] for point in run["points"]
        ], name(run)
    assert hit == points
    with capsys.disabled():
        ends = sorted({(run["final"]["phase"]) for run in runs[1:]})
        print(f"\n{len(points)} points, {len(runs) - 1} cuts; ends: " + ", ".join(
            f"{sum(run['final']['phase'] == end for run in runs[1:])} {end}" for end in ends))  # fmt: skip


def test_nothing_is_upgraded_twice_nothing_is_falsely_complete_nothing_is_lost(
    runs: list[dict[str, Any]],
) -> None:
    for run in runs:
        final = run["final"]
        assert not run["trouble"], name(run)
        assert not run["wrong"], name(
            run
        )  # apt while the journal doesn't say applying, a reboot while not rebooting
        assert final["phase"] in TERMINAL, name(run)
        assert run["upgrades"] <= 1, name(run)
        assert run["holder"] == "", name(run)
        assert final["rebootsAsked"] - 1 <= run["reboots"] <= final["rebootsAsked"] <= 3, name(run)
        if final["phase"] == "complete":
            assert run["upgrades"] == 1, name(run)
            assert final["bootIdAfter"] not in {None, final["bootIdBefore"]}, name(run)
        if run["accepted"]:
            assert run["at_restart"], name(run)


def test_the_recovery_table_holds(runs: list[dict[str, Any]]) -> None:
    for run in runs:
        phase, final = (
            run["at_restart"].get("phase"),
            (run["final"]["phase"], run["final"]["reason"]),
        )
        killed_runner = run["cut"]["role"] == "runner" and run["cut"]["fault"].startswith("kill")
        if run["cut"]["role"] == "runner":
            # Begun and not noted as ended, or never begun: interrupted. Only what ended and is
            # noted counts.
            assert final in {("complete", ""), ("repair-required", "Interrupted")}, name(run)
            assert final[0] == "repair-required" or not killed_runner or run["cut"]["number"] > 6, (
                name(run)
            )
        elif phase in {None, "preflight", "blocked", "rebooting", "verifying", "complete"}:
            faulty_disk = run["cut"]["fault"] in {
                "EIO",
                "ENOSPC",
            }  # `applying` may be on disk, though it failed to sync
            assert final == ("complete", "") or (faulty_disk and final[1] == "Interrupted"), name(
                run
            )
        else:
            assert phase == "applying", name(run)
            noted = run["ended"].isdecimal() or run["running"]
            assert final == (("complete", "") if noted else ("repair-required", "Interrupted")), (
                name(run)
            )


def test_no_line_changes_a_disk_or_starts_a_process_without_a_point(
    runs: list[dict[str, Any]],
) -> None:
    seen = {point[3] for point in runs[0]["points"]}
    wrapped = {
        (module.__name__.replace("builtins", ""), attribute) for module, attribute in CALLS.values()
    }
    laid = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in {"os", "subprocess", "shutil"}:
                pytest.fail(
                    f"{path.name}:{node.lineno} hides calls of {node.module} from this test"
                )
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Attribute(value=ast.Name(id=module), attr=attribute):
                    called = (module, attribute)
                case ast.Name(id=attribute):
                    called = ("", attribute)
                case _:
                    continue
            assert called[1] not in FORBIDDEN.get(called[0], set()), (
                f"{path.name}:{node.lineno}: {called} has no point"
            )
            writes = called[1] != "open" or any(
                isinstance(a, ast.Constant) and set("wax+") & set(str(a.value))
                for a in node.args[1:]
            )
            apart = (*called, path.name) in APART
            if called in wrapped and writes and not apart:
                laid.add(f"{path.name}:{node.lineno}")
            if called[0] == "os" and called[1] in {"open", "makedirs"} and not apart:
                assert "O_DIRECTORY" in ast.unparse(node), (
                    f"{path.name}:{node.lineno}: {ast.unparse(node)}"
                )
    assert laid == seen
