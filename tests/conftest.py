"""How tests are spread over workers: a file stays together, for its fixtures; its two Debians may go to two workers."""

import pytest

from tests.device.image import SUITES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of each test, as `--dist loadgroup` reads it."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        values = callspec.params.values() if callspec is not None else ()
        suite = next((value for value in values if isinstance(value, str) and value in SUITES), "")
        item.add_marker(pytest.mark.xdist_group(f"{item.path.name}-{suite}"))
