"""Hops into worker threads for file work: each with its own time, and errors of the kernel turned into core.errors.

A thread that hangs in the kernel can't be ended. It is left alone, told not to change anything more, and its path is
refused until it comes back; what hangs in one lane takes no thread from another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from harmony_agent.adapters.filedraft import Changed
from harmony_agent.adapters.filetree import Abandoned, Job, MissingParents, Obstacle, trouble
from harmony_agent.core.errors import Transient
from harmony_agent.topology.files import Trouble

T = TypeVar("T")
_THREADS: Final = 4
"""At once in one lane."""


class Threads:
    """Runs one piece of work for a key at a time, a few in each lane."""

    def __init__(self) -> None:
        self._lanes: dict[str, anyio.CapacityLimiter] = {}
        self._busy: set[str] = set()

    async def run(self, lane: str, key: str, doing: str, seconds: float, work: Callable[[Job], T]) -> T:
        """`work` in a thread of `lane`, which must end within `seconds`. `doing` is as ``write /srv/a``.

        Raises Transient alone.
        """
        if key in self._busy:
            raise _timeout(doing, "an earlier attempt still hangs")
        job = Job()
        self._busy.add(key)

        def run() -> T:
            job.started = True
            try:
                job.check()
                return work(job)
            finally:
                self._busy.discard(key)

        limiter = self._lanes.setdefault(lane, anyio.CapacityLimiter(_THREADS))
        try:
            with anyio.fail_after(seconds):
                return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
        except TimeoutError as error:
            raise _timeout(doing, f"it took longer than {seconds:g} s") from error
        except (OSError, Changed, Obstacle, MissingParents, Abandoned) as error:
            raise _transient(error, doing) from error
        finally:
            job.abandoned = True
            if not job.started:
                self._busy.discard(key)


def _timeout(doing: str, why: str) -> Transient:
    return Transient("Timeout", f"cannot {doing}: {why}; see whether its disk answers", phase="Unknown")


def _transient(error: Exception, doing: str) -> Transient:
    if isinstance(error, Obstacle):
        return from_trouble(error.trouble)
    if isinstance(error, MissingParents):
        return Transient("ParentMissing", f"cannot {doing}: {error.paths[0]} isn't there", delay=1.0)
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return from_trouble(trouble(error, doing))
    message = f"cannot {doing}: it changed since it was looked at; looking again"
    return Transient("ChangedMeanwhile", message, delay=0.2, phase="Progressing")


def from_trouble(found: Trouble) -> Transient:
    """The error for it: retried at the pace of its outside cause, or with backoff."""
    delay = found.seconds if found.phase == "Blocked" else None
    return Transient(found.reason, found.message, delay=delay, phase=found.phase)
