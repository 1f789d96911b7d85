"""Schedules of containers: what is one, and what goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from scores import Container
from scores.manifest import InvalidManifest, Manifest, validate

JOB = {"kind": "Container", "name": "backup", "image": "localhost/restic", "schedule": "0 3 * * *"}


def codes(**fields: Any) -> list[tuple[str, str]]:
    try:
        validate(Manifest, {"deployment": "web", "scores": [{**JOB, **fields}]})
    except InvalidManifest as error:
        return [(one.field.removeprefix("scores[0]."), one.code) for one in error.errors]
    return []


@pytest.mark.parametrize(
    "cron", ["0 3 * * *", "*/5 6-20 * * mon-fri", "0 0 29 2 *", "5,35 * * * *"]
)
def test_five_fields(cron: str) -> None:
    assert codes(schedule=cron) == []


@pytest.mark.parametrize(
    "cron", ["", "daily", "0 3 * *", "0 0 3 * * *", "61 * * * *", "0 0 30 2 *"]
)
def test_no_schedule(cron: str) -> None:
    assert codes(schedule=cron) == [("schedule", "InvalidCron")]


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"restart": "never", "run_missed": True, "timezone": "local"}, None),
        ({"restart": "always"}, "restart"),
        ({"restart": "on-failure"}, "restart"),
        ({"restart_tries": 3}, "restart_tries"),
        ({"init_containers": [{"name": "a"}]}, "init_containers"),
        ({"readiness": {"tcp": {"port": 1}}}, "readiness"),
        ({"liveness": {"tcp": {"port": 1}}}, "liveness"),
        ({"schedule": None, "run_missed": True}, "run_missed"),
        (
            {"schedule": None, "userns": "auto", "init_containers": [{"name": "a"}]},
            "init_containers",
        ),
    ],
)
def test_what_goes_with_it(fields: dict[str, Any], refused: str | None) -> None:
    assert codes(**fields) == ([] if refused is None else [(refused, "FieldConflict")])


@pytest.mark.parametrize("userns", ["auto", "auto:size=5000", "keep-id"])
def test_ids_of_its_own(userns: str) -> None:
    assert Container(name="a", image="a", userns=userns).userns == userns


@pytest.mark.parametrize("userns", ["auto:5000", "auto:size=0", "host", "auto:uidmapping=0:1:2"])
def test_no_user_namespace(userns: str) -> None:
    [(field, _)] = codes(userns=userns)
    assert field == "userns"
