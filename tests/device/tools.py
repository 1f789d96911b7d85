"""Runs the host's tools for the device harness: fixed argument lists, a time limit on each, output
in the error.

Must not know what a device is, and must not use a shell.
"""

import subprocess
from collections.abc import Mapping, Sequence


class HarnessError(RuntimeError):
    """The harness itself could not do its work; the sentence says what, and what to do next."""


def call(
    *argv: str,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    ok: Sequence[int] = (0,),
) -> str:
    """Run a tool of the host to its end and return its standard output.

    Raises HarnessError when the tool is missing, ends with a code that is not in `ok`, or takes
    longer than `timeout` seconds (it is then killed).
    """
    try:
        done = subprocess.run(
            argv, input=stdin, env=env, capture_output=True, timeout=timeout, check=False
        )
    except FileNotFoundError as error:
        raise HarnessError(
            f"cannot run {argv[0]}: not installed; see tests/device/apt-packages.txt"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"cannot finish {' '.join(argv)}: no end after {timeout:g} s") from error
    if done.returncode not in ok:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-2000:]
        raise HarnessError(f"cannot run {' '.join(argv)}: exit code {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")
