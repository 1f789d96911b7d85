"""The end of a process: whether it runs again, and what is told if it doesn't. Pure."""

from __future__ import annotations

from harmony_agent.core.actions import Converged, Wait


def runs_again(restart: str, code: int | None) -> bool:
    """Return whether what ended with `code` is to run again; `restart` is the Score's."""
    return restart == "always" or (restart == "on-failure" and code != 0)


def final_end(code: int | None) -> Converged | Wait:
    """The plan for what has ended with `code` and isn't to run again."""
    if code == 0:
        return Converged("Completed")
    return Wait("ExitedNonZero", f"it exited with {code}: look at its logs", "Failed", 60.0)
