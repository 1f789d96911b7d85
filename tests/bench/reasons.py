"""Why a row isn't met, as far as that was found by measurement; how it was found stands in ADR
0040.
"""

from __future__ import annotations

from typing import Final

WHY: Final = {
    "put to Converged": (
        "of 2.9 ms the commit is 0.5, the file 0.9, the acknowledgement 0.6, all of which the floor has as well; 0.9 "
        "are Python that runs once and then sleeps (a piece of it takes 200 µs, and 40 when repeated), and the longest "
        "entry of the profile has 4 %"
    ),
    "the same, for each 100": (
        "it is all processor time, 0.023 to 0.026 ms a resource where a lstat loop over 1,000 takes 2.4 ms; the "
        "machine was slower than that"
    ),
    "first convergence": (
        "the syncs are few by now (ADR 0107); what is left is Python for each File: three rounds of observe, plan "
        "and decide, two lines of log, a record and a status"
    ),
    "no-op pass over 1000 Files": (
        "each File is looked at within five minutes, so 34 of 1,000 in each pass, at 15 µs, and one hop into a thread"
    ),
    "file edited": (
        "0.3 ms from the event to the look, 0.3 the look, 0.25 plan, evidence of drift and log, where the floor goes "
        "from the event to the write; the ratio is 2.0 to 2.7, the more the faster the disk"
    ),
    "idle, 100 ": (
        "what the libraries leave below the target is 2 to 6 MB, and what is ours is live: modules 4.0, schemas 1.4, "
        "SQLite 0.6 to 1.2, 100 Files 0.9; a collection and malloc_trim give back 0.4"
    ),
    "the updater in memory": (
        "Python with its standard library is 15.2 MB, pydantic's core with one schema 20.7, pydantic with one model "
        "31.2; ours are 1.2"
    ),
    "no-op over 1000 Files, CPU: the best peer": "a bare loop of lstat over them is 50 times less, and no more",
}


def why(what: str) -> str:
    """The reason for a row of this name; the longest name that fits is the one meant."""
    fitting = [name for name in WHY if what.startswith(name)]
    return (
        WHY[max(fitting, key=len)]
        if fitting
        else "no reason is known: a regression, or a machine that did other work"
    )
