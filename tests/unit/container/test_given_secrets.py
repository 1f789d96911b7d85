"""Secrets of a container: as variables, as files in memory; waited for, given anew, taken back."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.adapters.secret_files import TmpfsSecretFiles
from harmony_agent.core.actions import Converged, Wait
from harmony_agent.core.errors import Transient
from scores.container import InitContainer
from scores.container_parts import SecretMount
from scores.secrets import Secret
from tests.unit.container.bench import Bench, web

VALUE, LATER = b"hunter2", b"correct horse"
ENV = web(env={"TZ": "UTC", "PASSWORD": Secret("pw")})
MOUNT = web(secrets=[SecretMount(secret="pw")])


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder, "secrets")


@pytest.fixture
def bench(memory: Path) -> Bench:
    made = Bench()
    made.secret_files = TmpfsSecretFiles(str(memory))
    made.restart_agent()
    made.secrets.give("pw", VALUE)
    return made


def wait(plan: Any) -> tuple[str, str]:
    assert isinstance(plan, Wait), plan
    return plan.phase, plan.reason


async def test_a_variable_is_filled_for_podman_and_stands_in_no_record(bench: Bench) -> None:
    made = await bench.made(ENV)
    assert made.payload["env"] == {"TZ": "UTC", "PASSWORD": "hunter2"}
    assert "hunter2" not in str(bench.facts())
    assert await bench.settle() == Converged()
    assert bench.done() == []


async def test_a_file_is_in_memory_and_read_by_its_owner_alone(bench: Bench, memory: Path) -> None:
    made = await bench.made(MOUNT)
    (mount,) = made.payload["mounts"]
    assert mount["destination"] == "/run/secrets/pw"
    assert "ro" in mount["options"]
    path = Path(mount["source"])
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (VALUE, 0o400)
    assert stat.S_IMODE(memory.stat().st_mode) == 0o700
    assert "hunter2" not in str(made.payload)


@pytest.mark.parametrize("spec", [ENV, MOUNT])
async def test_given_anew_it_is_made_anew_once(bench: Bench, spec: Any) -> None:
    first = await bench.made(spec)
    bench.secrets.give("pw", LATER)
    bench.want(spec)
    assert await bench.settle() == Converged()
    second = bench.containers.get("web")
    assert second.id != first.id
    assert [one for one in bench.done() if one.startswith("start")] == ["start web"]
    bench.containers.calls.clear()
    assert await bench.settle() == Converged()
    assert bench.done() == []
    for mount in second.payload.get("mounts", []):
        assert Path(mount["source"]).read_bytes() == LATER


@pytest.mark.parametrize("spec", [ENV, MOUNT])
async def test_taken_back_what_runs_goes_on(bench: Bench, spec: Any) -> None:
    made = await bench.made(spec)
    bench.secrets.take("pw")
    bench.want(spec)
    assert wait(await bench.settle()) == ("Blocked", "SecretMissing")
    assert bench.containers.get("web").id == made.id
    assert bench.containers.get("web").state == "running"
    assert bench.done() == []
    bench.want(spec.stopped())
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "exited"


async def test_missing_it_isnt_made(bench: Bench) -> None:
    bench.secrets.take("pw")
    bench.want(ENV)
    assert wait(await bench.settle()) == ("Blocked", "SecretMissing")
    assert bench.containers.named("web") is None


async def test_after_a_boot_its_file_is_there_again(bench: Bench, memory: Path) -> None:
    made = await bench.made(MOUNT)
    path = Path(made.payload["mounts"][0]["source"])
    path.unlink()
    bench.reboot()
    assert await bench.settle() == Converged()
    assert path.read_bytes() == VALUE
    assert bench.containers.get("web").id == made.id


async def test_the_file_goes_with_what_names_it(bench: Bench, memory: Path) -> None:
    await bench.made(MOUNT)
    await bench.kind.relist()
    assert [path.name for path in memory.rglob("*") if path.is_file()] == ["run%2Fsecrets%2Fpw"]
    await bench.made(web())
    await bench.kind.relist()
    assert [path for path in memory.rglob("*") if path.is_file()] == []


async def test_init_containers_have_its_files_and_variables_of_their_own(bench: Bench) -> None:
    init = InitContainer(name="migrate", env={"PASSWORD": Secret("pw")})
    spec = web(secrets=[SecretMount(secret="pw", mode="0444")], init_containers=[init])
    assert spec.secret_names() == ("pw",)
    bench.want(spec)
    await bench.once()
    state = bench.containers.named("web.init-migrate")
    assert state is not None
    made = state.payload
    assert made["env"] == {"PASSWORD": "hunter2"}
    assert [one["destination"] for one in made["mounts"]] == ["/run/secrets/pw"]


async def test_podmans_words_never_repeat_it(bench: Bench) -> None:
    for spec in (ENV, MOUNT):
        bench.containers.refuse("create", "no such thing: hunter2")
        bench.want(spec)
        with pytest.raises(Transient) as caught:
            await bench.settle()
        assert "hunter2" not in str(caught.value)


async def test_what_is_no_text_is_no_variable(bench: Bench) -> None:
    bench.secrets.give("pw", b"\xff\x00")
    bench.want(ENV)
    with pytest.raises(Transient) as caught:
        await bench.settle()
    assert caught.value.reason == "SecretUnfit"


def test_a_folder_on_a_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Transient, match="in memory") as caught:
        TmpfsSecretFiles(str(tmp_path / "secrets")).put("web", "pw", VALUE, 0o400)
    assert caught.value.reason == "SecretFilesUnusable"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
