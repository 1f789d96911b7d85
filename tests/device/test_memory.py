"""A device that lost its memory, with real podman and systemd: what it had stands on, it says so,
and others decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scores import Manifest
from scores.base import Score
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.life import PI, STATE, UNITS, Life, eventually, living, one_of_each, page, web
from tests.device.pods import BUSYBOX, SLEEP, container
from tests.device.prepare import USER


@pytest.fixture(scope="module", params=SUITES)
def life(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Life]:
    with living(lab, request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def one_of_each_runs(life: Life) -> None:
    """Each test begins with the same three, converged."""
    life.converge(*one_of_each())


def decide(
    life: Life, *scores: Score, removed: bool = False, remains: list[Score] | None = None
) -> int:
    """The next generation, with what the operator says of what remains."""
    manifest = Manifest(
        deployment="life", scores=scores, removed=removed, remains=remains, allow_prune=3
    )
    return life.control.apply(PI, manifest)


def forget(life: Life) -> None:
    """The agent is stopped, and its state directory emptied."""
    life.device.agent.stop()
    life.device.run(["find", STATE, "-mindepth", "1", "-delete"])


def there(life: Life) -> tuple[bool, bool, bool]:
    """Which of the three stand: the file, the unit, the container."""
    active = life.unit("web.service", "ActiveState") == ["active"]
    return (
        life.device.exists("/srv/life/page"),
        active and life.device.exists(f"{UNITS}/web.service"),
        life.box()[2],
    )


def lost(life: Life, generation: int) -> set[str]:
    """Wait until the device says that its memory was lost; of what."""
    status = life.until(
        lambda status: status["reason"] == "LedgerLost" and status["generation"] == generation
    )
    assert status["phase"] == "Degraded"
    return {key for key, one in status["resources"].items() if one["reason"] == "LedgerLost"}


ALL = {"File/page", "SystemdUnit/web.service", "Container/box"}


def test_a_removal_meanwhile_is_not_removed_until_it_was_decided(life: Life) -> None:
    runs = life.runs()
    forget(life)
    removal = decide(life, removed=True)
    life.device.agent.start()
    assert lost(life, removal) == ALL
    assert life.runs() == runs
    life.device.agent.restart()
    assert lost(life, decide(life, removed=True)) == ALL
    assert life.runs() == runs
    decide(life, removed=True, remains=list(one_of_each()))
    life.until(lambda status: status["phase"] == "Removed")
    assert there(life) == (False, False, False)
    assert life.box() == ("", "", False)


def test_a_smaller_generation_meanwhile_leaves_remains_that_are_taken_off_by_decision(
    life: Life,
) -> None:
    runs = life.runs()
    forget(life)
    smaller = decide(life, page("first\n"))
    life.device.agent.start()
    assert lost(life, smaller) == ALL - {"File/page"}
    assert life.runs() == runs
    decide(life, page("first\n"), remains=list(one_of_each()[1:]))
    life.wait()
    assert there(life) == (True, False, False)


def test_what_differs_by_now_is_taken_back_by_decision(life: Life) -> None:
    box = life.box()[0]
    forget(life)
    life.device.write("/srv/life/page", "by hand")
    second = (page("first\n"), web("second"), container("box", env={"TEXT": "second"}))
    generation = decide(life, *second)
    life.device.agent.start()
    eventually(lambda: lost(life, generation) == ALL, "what isn't as it was told stays as it is")
    assert life.device.read("/srv/life/page") == b"by hand"
    assert life.box()[0] == box
    decide(life, *second, remains=list(one_of_each()[1:]))
    life.wait()
    assert life.device.read("/srv/life/page") == b"first\n"
    assert "second" in life.device.read_text(f"{UNITS}/web.service")
    assert life.box()[0] not in ("", box)
    life.remove()
    assert there(life) == (False, False, False)


def test_labels_alone_are_enough_where_nothing_was_told(life: Life) -> None:
    """Actual state was purged as well: the container still says whose it is."""
    forget(life)
    life.control.do(life.control.jetstream.purge_stream("KV_actual-state"))
    removal = decide(life, removed=True)
    life.device.agent.start()
    assert lost(life, removal) == {"Container/box"}
    assert there(life) == (True, True, True)
    decide(life, removed=True, remains=[container("box")])
    life.until(lambda status: status["phase"] == "Removed")
    assert life.box() == ("", "", False)
    life.device.systemctl("disable", "--now", "--quiet", "web.service", user=True)
    life.device.run(["rm", "/srv/life/page", f"{UNITS}/web.service"])
    life.device.systemctl("daemon-reload", user=True)
    life.device.make_folder(STATE, owner=USER)


def test_a_container_with_our_labels_that_nobody_accounts_for_is_told_and_left_alone(
    life: Life,
) -> None:
    labels = {
        "io.harmony.device": PI,
        "io.harmony.deployment": "gone",
        "io.harmony.resource": "Container/stray",
    }
    flags = [f"--label={name}={value}" for name, value in labels.items()]
    life.device.podman("run", "--detach", "--name=stray", *flags, BUSYBOX, *SLEEP)
    life.device.agent.restart()  # it looks at its start, then each minute
    bucket = life.control.do(life.control.jetstream.key_value("device-info"))

    def told() -> list[str]:
        value = life.control.do(bucket.get(f"info.{PI}")).value
        return list(json.loads(value or b"{}").get("unmanaged", ()))

    eventually(lambda: told() == ["stray"], "it is told by its name")
    checked = life.device.agent.command("check", check=False).stdout
    assert "unmanaged containers: stray:" in checked
    life.control.resync(PI)
    assert life.box("stray")[2]
    life.device.podman("rm", "--force", "--time=0", "stray")
