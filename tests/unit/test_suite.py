"""Which failures are run once more."""

import pytest

from tests.suite import AT_MOST, again

DEVICE = "tests/device/test_file.py::test_modes[bookworm]"
UNIT = "tests/unit/engine/test_work_queue.py::test_order"


@pytest.mark.parametrize(
    ("code", "failed", "expected"),
    [
        (1, [DEVICE], True),
        (
            1,
            ["tests/integration/test_says.py::test_a", "tests/contract/test_units.py::test_b"],
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
