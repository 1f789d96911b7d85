"""Which failures are run once more, and what is said on the way."""

import pytest

from tests.suite import AT_MOST, EVERY, Durations, Progress, again

DEVICE = "tests/device/test_file.py::test_modes[bookworm]"
UNIT = "tests/unit/engine/test_work_queue.py::test_order"


@pytest.mark.parametrize(
    ("code", "failed", "expected"),
    [
        (1, [DEVICE], True),
        (
            1,
            [
                "tests/integration/test_device_reports.py::test_a",
                "tests/contract/test_units.py::test_b",
            ],
            True,
        ),
        (1, [f"{DEVICE}{number}" for number in range(AT_MOST)], True),
        (1, [f"{DEVICE}{number}" for number in range(AT_MOST + 1)], False),
        (1, [DEVICE, UNIT], False),
        (1, [], False),
        (0, [], False),
        (2, [DEVICE], False),
        (3, [DEVICE], False),
        (5, [], False),
    ],
)
def test_only_a_few_failures_on_real_machines_are_run_again(
    code: int, failed: list[str], expected: bool
) -> None:
    assert again(code, failed) is expected


def test_progress_is_said_by_folder_each_minute_and_when_one_is_done() -> None:
    said: list[str] = []
    now = [1000.0]
    progress = Progress(said.append, lambda: now[0])
    other = "tests/unit/core/test_dependencies.py::test_b"
    progress.collected([UNIT, other, DEVICE, DEVICE + "x"])
    progress.ended(UNIT)
    assert said == []
    now[0] += EVERY
    progress.ended(DEVICE)
    assert said == ["[1 min] device 1/2; unit 1/2"]
    progress.ended(other)
    assert said[1:] == ["[1 min] unit is done; device 1/2; unit 2/2"]


def test_the_longest_files_come_first() -> None:
    durations = Durations()
    for node, seconds in ((UNIT, 1.0), (DEVICE, 2.0), (DEVICE, 9.4), (UNIT + "2", 1.0)):
        durations.pytest_runtest_logreport(
            pytest.TestReport(node, ("", None, ""), {}, "passed", None, "call", duration=seconds)
        )
    assert durations.table(1) == ["    11 s  tests/device/test_file.py"]
    assert durations.table(2)[1] == "     2 s  tests/unit/engine/test_work_queue.py"
