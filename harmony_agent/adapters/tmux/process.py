"""Runs a program by its argument list, for a bounded time, with nothing of the agent's environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

import anyio

from harmony_agent.core.errors import Transient
from harmony_agent.core.frozen import frozen

SECONDS: Final = 10.0
MOST: Final = 8 * 1024 * 1024
"""Bytes of output that are read."""


@frozen()
class Done:
    """A program that has ended. `error` is what it said on standard error, on one line."""

    code: int
    output: bytes
    error: str


@contextmanager
def _standard_input(given: bytes) -> Iterator[BinaryIO]:
    """A file in memory. A pipe would break where the program ends before it has read all."""
    with os.fdopen(os.memfd_create("stdin"), "wb+") as file:
        file.write(given)
        file.seek(0)
        yield file


async def run(argv: Sequence[str], env: Mapping[str, str], given: bytes = b"") -> Done:
    """Run it. Raises Transient where there is no such program, or it takes too long."""
    try:
        with _standard_input(given) as stdin, anyio.fail_after(SECONDS):
            done = await anyio.run_process(list(argv), stdin=stdin, check=False, env=dict(env))
    except TimeoutError:
        text = f"cannot speak with the sessions: {argv[0]} didn't end in {SECONDS:g} s"
        raise Transient("Timeout", text, phase="Unknown") from None
    except OSError as error:
        text = f"cannot run {argv[0]}: {error.strerror}. Install tmux, or take Session out of agent.kinds"
        raise Transient("SessionsUnavailable", text, phase="Blocked", delay=5.0) from None
    words = done.stderr.decode(errors="replace").split()
    return Done(done.returncode, done.stdout[:MOST], " ".join(words)[:200])
