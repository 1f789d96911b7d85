"""How tests are spread over workers: a file stays together, for its fixtures; its two Debians may
go to two workers. And what holds for each property test.
"""

import re

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.device.image import SUITES

# How long an example takes says how busy the machine is, and nothing about the project.
settings.register_profile("harmony", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("harmony")


class Together(LoadScopeScheduling):
    """Units of work: what a file has for one Debian, or all that it has."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, parameters = nodeid.partition("::")
        words = set(re.split(r"[\[\]-]", parameters))
        return f"{file}-{next((suite for suite in SUITES if suite in words), '')}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    """Not `--dist loadgroup`: it hands its groups over in an attribute that pytest no longer
    reads.
    """
    return Together(config, log)
