"""A place in memory for thousands of damaged copies; where there is none, the usual one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = "/dev/shm"


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        yield Path(place)
