"""Runs the suite: says first what it needs and how long it takes, and on the way how far each
folder is. A few failures on real servers and devices run once more by themselves, and are told
either way.

What a run could not decide because six machines shared two cores is decided without them. Nothing
is hidden: what failed stands in the output with its text, and again in the last lines as what was
run again. A test without a server or a device has no such excuse, nor have many failures at once.
ADR 0041.
"""

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import pytest

REAL = ("tests/contract/", "tests/device/", "tests/integration/")
AT_MOST = 6
EVERY = 60.0
"""Seconds between two lines of progress."""
SHOWN = 40
"""How many of the longest files are named."""
ROOT = """\
All tests, those on disposable Debian 12 and 13 too. About 35 minutes on 2 processors.
They need 4 GB of memory and, below .cache, 4 GB of disk; the first run makes the images there,
which takes some minutes and Debian's mirror. Nothing else leaves this machine.
`make test-quick` runs those that need no device, in 10 minutes."""
USER = """\
All tests but those on disposable Debian devices, which need root. About 10 minutes on 2
processors, 2 GB of memory. They use this machine's loopback alone."""


class Failures:
    """Node ids of what failed, be it in its fixtures or itself; in order, each once."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.found[report.nodeid] = None


class Durations:
    """How long each file's tests and fixtures took together, the longest files first.

    With several workers these run side by side: the sum is longer than the run.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def table(self, most: int) -> list[str]:
        """Lines with seconds and file."""
        longest = sorted(self._seconds.items(), key=lambda item: -item[1])
        return [f"{seconds:6.0f} s  {name}" for name, seconds in longest[:most]]


class Progress:
    """How many tests of each folder have ended; a line each minute, and one when a folder is done.

    With several workers each of them collects the same tests, and one process hears of all.
    """

    def __init__(
        self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._now = say, now
        self._began = self._said = now()
        self._all: Counter[str] = Counter()
        self._done: Counter[str] = Counter()

    def collected(self, nodes: Sequence[str]) -> None:
        """These will be run."""
        self._all = Counter(map(_folder, nodes))

    def ended(self, node: str) -> None:
        """One test is over, whatever came of it."""
        folder = _folder(node)
        self._done[folder] += 1
        if self._done[folder] == self._all[folder]:
            self._line(f"{folder} is done")
        elif self._now() - self._said >= EVERY:
            self._line("")

    def _line(self, news: str) -> None:
        self._said = self._now()
        parts = [f"{name} {self._done[name]}/{self._all[name]}" for name in sorted(self._all)]
        minutes = (self._said - self._began) / 60
        self._say(f"[{minutes:.0f} min] {'; '.join([*([news] if news else []), *parts])}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.collected(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.collected([item.nodeid for item in session.items])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.ended(nodeid)


def _folder(node: str) -> str:
    """`tests/unit/core/test_a.py::test_b` is one of `unit`."""
    parts = node.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else parts[0]


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
    failures, durations = Failures(), Durations()
    print(ROOT if os.geteuid() == 0 else USER, flush=True)
    progress = Progress(lambda line: print(f"\n{line}", flush=True))
    code = int(pytest.main(arguments, plugins=[failures, progress, durations]))
    print("\nThe longest files:", *durations.table(SHOWN), sep="\n", flush=True)
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
