"""Plan how a File gives up its places: removed, restored, passed on, or released. Pure.

What the ledger doesn't show as this agent's work is never removed, nor is a directory that holds
something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.kinds.file.actions import FileAction, Release
from harmony_agent.kinds.file.facts import Owned, OwnedPath
from harmony_agent.kinds.file.observed import FileState
from harmony_agent.topology.files import PathError, PathState

LATER: Final = 10.0
"""Seconds between looks at an outside cause that no event may tell of."""
_SOON: Final = 1.0


def removal(name: str, owned: Owned, state: FileState) -> Plan[FileAction]:
    """Plan to remove everything of ours and to restore the previous object.

    The present place is the last to go: the record's spec is about the first one that it names.
    """
    plan = release_all(name, owned.places[::-1], state)
    if not isinstance(plan, Converged) or not state.ties.held:
        return plan
    takers = ", ".join(sorted({f"File/{taker}" for _, taker in state.ties.held}))
    return Wait("WaitsFor", f"waits for {takers}, which is to have its place", seconds=LATER)


def release_all(name: str, places: Sequence[OwnedPath], state: FileState) -> Plan[FileAction]:
    """Plan to give up these places, except those that another File is to have."""
    path_states = {path_state.path: path_state for path_state in (state.at, *state.old)}
    steps: list[FileAction] = []
    for place in places:
        if state.ties.taker(place.path) is not None:
            continue
        path_state = path_states.get(place.path, PathState(place.path))
        step = _release(name, place, path_state, passes_on=place.path in state.ties.heirs)
        if isinstance(step, Wait):
            return step
        steps += [] if step is None else [step]
    return Act(tuple(steps)) if steps else Converged()


def _release(
    name: str, place: OwnedPath, path_state: PathState, *, passes_on: bool
) -> Release | Wait | None:
    """Plan to give up one place. None if nothing of it is left.

    A directory that holds something is let go of. Where that is other Files', they take it along
    (`passes_on`).
    """
    trouble, seen, former = path_state.error, path_state.stat, place.former
    if (
        trouble is not None
        and ((place.proven and not place.vacant) or (place.kept and path_state.has_backup))
        and trouble.reason != "NotADirectory"
    ):
        return wait(trouble)
    ours = seen is not None and place.may_be_ours(seen)
    restore = _restore(name, place, path_state, ours=ours)
    if isinstance(restore, Wait):
        return restore
    gone = ours and former is None
    is_directory = seen is not None and seen.type == "directory"
    full = seen is not None and is_directory and (passes_on or not seen.empty)
    if full and restore and former is not None and former.type != "directory":
        return wait(not_empty(f"put back what was at {place.path}", _SOON))
    if not (gone or former is not None or path_state.leftover or place.made):
        return None
    reason = "what was there before is put back" if restore else "it is wanted no more"
    if full and gone:
        reason = "the directory stays, for it holds what isn't this File's"
    return Release(
        name=name,
        reason=reason,
        place=place,
        path_state=path_state,
        remove=gone and not full,
        restore=restore,
        stays=full and gone,
    )


def _restore(name: str, place: OwnedPath, path_state: PathState, *, ours: bool) -> bool | Wait:
    """Return whether what stood there before must be put back; a Wait when that can't be."""
    former, seen = place.former, path_state.stat
    if former is None or former.matches(seen) or place.untouched:
        return False
    kept = is_kept(place, path_state)
    if seen is not None and not ours:
        if not kept or not (place.proven or former.type == "file"):
            return False  # somebody else's, from before anything was done
        message = f"cannot put back what was at {place.path}: something that isn't ours is there now; move it away"
        return Wait("OwnershipConflict", message, "Blocked", LATER)
    if kept:
        return True
    if seen is None and not place.proven:
        return False
    copy = place.copy_of(name)
    message = f"cannot put back what was at {place.path}: its copy former/{copy} is gone; put it there, or orphan this"
    return Wait("FormerLost", message, "Blocked", LATER)


def is_kept(place: OwnedPath, path_state: PathState) -> bool:
    """Return whether what stood there before can be put back."""
    return not place.needs_copy or (place.kept and path_state.has_backup)


def wait(trouble: PathError) -> Wait:
    """A plan that waits for the trouble to end."""
    return Wait(trouble.reason, trouble.message, trouble.phase, trouble.seconds)


def not_empty(doing: str, seconds: float) -> PathError:
    """A directory that holds something is in the way of `doing`."""
    message = f"cannot {doing}: a directory is there and holds something; choose another path, or move that elsewhere"
    return PathError("DirectoryNotEmpty", message, seconds=seconds)
