"""Runs the suite; a few failures on real servers and devices run once more by themselves, and are
told either way.

What a run could not decide because six machines shared two cores is decided without them. Nothing
is hidden: what failed stands in the output with its text, and again in the last lines as what was
run again. A test without a server or a device has no such excuse, nor have many failures at once.
ADR 0041.
"""

import subprocess
import sys

import pytest

REAL = ("tests/contract/", "tests/device/", "tests/integration/")
AT_MOST = 6


class Failures:
    """Node ids of what failed, be it in its fixtures or itself; in order, each once."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.found[report.nodeid] = None


def again(code: int, failed: list[str]) -> bool:
    """Whether a run that ended so may be decided by running these once more."""
    return (
        code == pytest.ExitCode.TESTS_FAILED
        and 0 < len(failed) <= AT_MOST
        and all(map(_is_real, failed))
    )


def _is_real(node: str) -> bool:
    return node.startswith(REAL)


def main(arguments: list[str]) -> int:
    """pytest's exit code of the run, or of the second run of what failed in it."""
    failures = Failures()
    code = int(pytest.main(arguments, plugins=[failures]))
    failed = list(failures.found)
    if not again(code, failed):
        return code
    print("\nThese failed once and run again now, one by one:", *failed, sep="\n  ", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-x", *failed], check=False).returncode
    verdict = "one failed again" if code else "each passed now: look into what it waits for"
    print(f"\nOf these, which failed once, {verdict}:", *failed, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
