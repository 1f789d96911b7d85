"""How a File gets right: the pure plan that chooses the actions from what was seen and what is ours.

What the ledger doesn't show as this agent's work is never replaced or removed, unless the Score says `adopt`; then it
is kept first. A directory that holds something is never removed. Nothing is done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harmony_agent.core.paths import below
from harmony_agent.core.reconcile import Act, Converged, Plan, Wait
from harmony_agent.kinds.file.actions import Amend, Drop, FileAction, Keep, MakeParents, Put, Release, Sweep
from harmony_agent.kinds.file.places import Owned, Place, copy_name, describe
from harmony_agent.topology.files import MAX_READ, Attributes, NodeType, Seen, Sight, Trouble
from scores.file import File

_LATER: Final = 10.0
"""Seconds between looks at an outside cause that no event may tell of."""
_SOON: Final = 1.0
_ATTRIBUTES: Final = frozenset({"mode", "owner", "group"})
_NODES: Final[Mapping[str, NodeType]] = {"file": "file", "directory": "directory", "symlink": "symlink"}
_STANDS: Final = {
    "directory": "a directory",
    "symlink": "a symbolic link",
    "file": "a file",
    "other": "no regular file",
}


@dataclass(frozen=True, slots=True)
class FileState:
    """What was seen at the path that is wanted (or to be given up), and at those that are to be given up besides."""

    at: Sight
    old: tuple[Sight, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A spec with the digest of its content ("" where it has none)."""

    name: str
    spec: File
    digest: str


def plan_wanted(wanted: Wanted, owned: Owned, state: FileState) -> Plan[FileAction]:
    """What to do so that the path is as the spec says, and older places are given up. New comes before old."""
    spec, sight = wanted.spec, state.at
    others = [place for place in owned.places if place.path != spec.path]
    entangled = [place for place in others if below(place.path, spec.path) or below(spec.path, place.path)]
    trouble = sight.trouble
    if trouble is not None and spec.type == "absent" and trouble.reason == "NotADirectory":
        trouble = None  # nothing can be there
    fields = differences(wanted, sight) if trouble is None else ()
    if entangled and (trouble is not None or fields):
        return _release_all(wanted.name, entangled, state)
    if trouble is not None:
        return _wait(trouble)
    if sight.unknown:
        return _wait(Trouble("UnknownOwner", f"cannot give {spec.path} to {sight.unknown}: make the account first"))
    if fields:
        return _change(wanted, owned, sight, fields)
    tidy = _copy_former(wanted, owned, sight) or _sweep(wanted, sight)
    if tidy is not None:
        return Act((tidy,), drift=False)
    return _release_all(wanted.name, others, state)


def differences(wanted: Wanted, sight: Sight) -> tuple[str, ...]:
    """The names of the Score's fields that differ from what was seen; those that it doesn't set aren't looked at."""
    spec, seen = wanted.spec, sight.seen
    if seen is None or seen.type != spec.type:
        return () if seen is None and spec.type == "absent" else ("type",)
    differ = {
        content_field(spec): spec.type == "file" and seen.digest != wanted.digest,
        "target": spec.type == "symlink" and seen.target != spec.target,
        "mode": spec.mode is not None and seen.mode != int(spec.mode, 8),
        "owner": sight.uid is not None and seen.uid != sight.uid,
        "group": sight.gid is not None and seen.gid != sight.gid,
    }
    return tuple(name for name, differs in differ.items() if differs)


def content_field(spec: File) -> str:
    """The field that holds the content."""
    return next((name for name in ("content", "content_base64") if getattr(spec, name) is not None), "object")


def _change(wanted: Wanted, owned: Owned, sight: Sight, fields: tuple[str, ...]) -> Plan[FileAction]:
    """What stands at the path isn't as wanted."""
    spec, seen = wanted.spec, sight.seen
    if seen is None:
        return _create(wanted, sight, fields)
    before: tuple[FileAction, ...] = ()
    place = next((place for place in owned.places if place.path == spec.path), None)
    if place is not None and not owned.settled:
        kept = _keep(wanted, place, sight, seen)
        if isinstance(kept, Wait):
            return kept
        before = kept
    if seen.type == "directory" and spec.type != "directory" and not seen.empty:
        return _wait(_not_empty(spec.path, _LATER))
    return Act((*before, _replace(wanted, sight, seen, fields)), fields)


def _create(wanted: Wanted, sight: Sight, fields: tuple[str, ...]) -> Plan[FileAction]:
    spec = wanted.spec
    put = _put(wanted, sight, "nothing is there")
    if not sight.missing:
        return Act((put,), fields)
    if not spec.parents:
        message = f"cannot make {spec.path}: {sight.missing[0]} isn't there; make it, or say parents"
        return Wait("ParentMissing", message, "Degraded", _SOON)
    parents = MakeParents(name=wanted.name, reason="parents aren't there", path=spec.path, parents=sight.missing)
    return Act((parents, put), fields)


def _replace(wanted: Wanted, sight: Sight, seen: Seen, fields: tuple[str, ...]) -> FileAction:
    """The one action that makes what stands there right."""
    name, spec = wanted.name, wanted.spec
    if spec.type == "absent":
        return Drop(name=name, reason=f"{_STANDS[seen.type]} is there", path=spec.path, expect=seen.mark)
    if seen.type != spec.type:
        return _put(wanted, sight, f"{_STANDS[seen.type]} is there")
    reason = f"{' and '.join(fields)} {'differs' if len(fields) == 1 else 'differ'}"
    if spec.type == "symlink" or not _ATTRIBUTES.issuperset(fields):
        return _put(wanted, sight, reason)
    attributes = Attributes(None if spec.mode is None else int(spec.mode, 8), sight.uid, sight.gid)
    return Amend(name=name, reason=reason, path=spec.path, attributes=attributes, expect=seen.mark)


def _put(wanted: Wanted, sight: Sight, reason: str) -> Put:
    return Put(
        name=wanted.name,
        reason=reason,
        disturbs=sight.seen is not None,
        spec=wanted.spec,
        type=_NODES[wanted.spec.type],
        digest=wanted.digest,
        uid=sight.uid,
        gid=sight.gid,
        expect=None if sight.seen is None else sight.seen.mark,
    )


def _sweep(wanted: Wanted, sight: Sight) -> Sweep | None:
    reason = "something unfinished stands beside it"
    return Sweep(name=wanted.name, reason=reason, path=sight.path) if sight.leftover else None


def _copy_former(wanted: Wanted, owned: Owned, sight: Sight) -> Keep | None:
    """A copy of what is adopted although it is as wanted already: a later spec will replace it, and removal may not."""
    seen, former = sight.seen, None
    place = next((place for place in owned.places if place.path == wanted.spec.path), None)
    if place is None or place.former is None or _is_kept(place, sight):
        return None
    if place.former.matches(seen):
        former = place.former
    elif place.kept:
        return None  # its copy is gone, and what could be copied, too
    elif seen is not None:
        former = describe(seen)  # it became otherwise before anything was done
    reason = "what was there isn't kept yet"
    expect = None if seen is None else seen.mark
    return Keep(name=wanted.name, reason=reason, path=wanted.spec.path, former=former, expect=expect)


def _keep(wanted: Wanted, place: Place, sight: Sight, seen: Seen) -> Wait | tuple[FileAction, ...]:
    """What must be kept before it is replaced: nothing, if it is ours or has been kept. Or why it can't be replaced."""
    path, former = wanted.spec.path, describe(seen)
    if place.former is not None and place.former == former:
        if _is_kept(place, sight):
            return ()
    elif place.may_be_ours(seen):
        return ()
    elif not wanted.spec.adopt:
        message = f"cannot replace {path}: it appeared meanwhile and isn't ours; move it away, or say adopt"
        return Wait("OwnershipConflict", message, "Blocked", _LATER)
    if former is None:
        return _wait(
            Trouble("FormerUnsupported", f"cannot keep what is at {path}: no file, directory or link; move it")
        )
    if former.type == "file" and seen.size > MAX_READ:
        return _wait(
            Trouble("FormerTooLarge", f"cannot keep what is at {path}: it is larger than 64 MiB; move it away")
        )
    reason = f"{_STANDS[seen.type]} that isn't ours is there"
    return (Keep(name=wanted.name, reason=reason, path=path, former=former, expect=seen.mark),)


def plan_removal(name: str, owned: Owned, state: FileState) -> Plan[FileAction]:
    """What to do so that nothing of ours is left and what stood there before is back."""
    return _release_all(name, owned.places, state)


def _release_all(name: str, places: Sequence[Place], state: FileState) -> Plan[FileAction]:
    sights = {sight.path: sight for sight in (state.at, *state.old)}
    steps: list[FileAction] = []
    for place in places:
        step = _release(name, place, sights.get(place.path, Sight(place.path)))
        if isinstance(step, Wait):
            return step
        steps += [] if step is None else [step]
    return Act(tuple(steps)) if steps else Converged()


def _release(name: str, place: Place, sight: Sight) -> Release | Wait | None:
    """How to give one place up; None where nothing of it is left."""
    trouble, seen, former = sight.trouble, sight.seen, place.former
    if trouble is not None and (place.proven or (place.kept and sight.kept)) and trouble.reason != "NotADirectory":
        return _wait(trouble)
    ours = seen is not None and place.may_be_ours(seen)
    restore = _restore(name, place, sight, ours=ours)
    if isinstance(restore, Wait):
        return restore
    remove = ours and former is None
    stays = former is not None and former.type == "directory"
    if seen is not None and seen.type == "directory" and not seen.empty and (remove or (restore and not stays)):
        return _wait(_not_empty(place.path, _SOON))
    if not (remove or former is not None or sight.leftover or place.made):
        return None
    reason = "what was there before is put back" if restore else "it is wanted no more"
    return Release(name=name, reason=reason, place=place, sight=sight, remove=remove, restore=restore)


def _restore(name: str, place: Place, sight: Sight, *, ours: bool) -> bool | Wait:
    """Whether what stood there before must be put back; a Wait when that can't be."""
    former, seen = place.former, sight.seen
    if former is None or former.matches(seen) or place.untouched:
        return False
    kept = _is_kept(place, sight)
    if seen is not None and not ours:
        if not kept or not (place.proven or former.type == "file"):
            return False  # somebody else's, from before anything was done
        message = f"cannot put back what was at {place.path}: something that isn't ours is there now; move it away"
        return Wait("OwnershipConflict", message, "Blocked", _LATER)
    if kept:
        return True
    if seen is None and not place.proven:
        return False
    copy = copy_name(name, place.path)
    message = f"cannot put back what was at {place.path}: its copy former/{copy} is gone; put it there, or orphan this"
    return Wait("FormerLost", message, "Blocked", _LATER)


def _is_kept(place: Place, sight: Sight) -> bool:
    """Whether what stood there before can be put back."""
    return not place.needs_copy or (place.kept and sight.kept)


def _wait(trouble: Trouble) -> Wait:
    return Wait(trouble.reason, trouble.message, trouble.phase, trouble.seconds)


def _not_empty(path: str, seconds: float) -> Trouble:
    message = f"cannot remove {path}: the directory holds something; empty it"
    return Trouble("DirectoryNotEmpty", message, seconds=seconds)
