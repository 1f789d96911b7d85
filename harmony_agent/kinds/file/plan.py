"""Plan of a File: chooses actions from the observation and the record.

An object that the ledger doesn't show as ours is never replaced or removed, unless the Score says
`adopt`; then it is backed up first. A directory with content is never removed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from harmony_agent.core.paths import below
from harmony_agent.core.reconcile import Act, Converged, Plan, Wait
from harmony_agent.kinds.file.actions import Amend, Drop, FileAction, Keep, MakeParents, Prune, Put, Sweep
from harmony_agent.kinds.file.places import Owned, Place, describe
from harmony_agent.kinds.file.release import LATER, is_kept, not_empty, release_all, wait
from harmony_agent.kinds.file.state import FileState, Wanted
from harmony_agent.topology.files import MAX_READ, Attributes, NodeType, Seen, Sight, Trouble
from scores.file import File

_SOON: Final = 1.0
_ATTRIBUTES: Final = frozenset({"mode", "owner", "group"})
_NODES: Final[Mapping[str, NodeType]] = {"file": "file", "directory": "directory", "symlink": "symlink"}
_STANDS: Final = {
    "directory": "a directory",
    "symlink": "a symbolic link",
    "file": "a file",
    "other": "no regular file",
}


def plan_wanted(wanted: Wanted, owned: Owned, state: FileState) -> Plan[FileAction]:
    """Plan to bring the path to its spec, then to give up older paths."""
    others = [place for place in owned.places if place.path != wanted.spec.path]
    ahead = release_all(wanted.name, [place for place in others if place.path in state.ties.early], state)
    if isinstance(ahead, Act):
        return replace(ahead, drift=False, ahead=True)
    return _reach(wanted, owned, others, state) or _tidy(wanted, owned, others, state)


def _reach(wanted: Wanted, owned: Owned, others: Sequence[Place], state: FileState) -> Plan[FileAction] | None:
    """Plan to bring the path to its spec. None if nothing differs."""
    spec, sight = wanted.spec, state.at
    entangled = [place for place in others if below(place.path, spec.path) or below(spec.path, place.path)]
    trouble = sight.trouble
    if trouble is not None and spec.type == "absent" and trouble.reason == "NotADirectory":
        trouble = None  # nothing can be there
    fields = differences(wanted, sight) if trouble is None else ()
    if entangled and (trouble is not None or fields):
        first = release_all(wanted.name, entangled, state)
        if not isinstance(first, Converged):
            return first
    if trouble is not None:
        return wait(trouble)
    if sight.unknown:
        return wait(Trouble("UnknownOwner", f"cannot give {spec.path} to {sight.unknown}: make the account first"))
    return _change(wanted, owned, sight, fields) if fields else None


def _tidy(wanted: Wanted, owned: Owned, others: Sequence[Place], state: FileState) -> Plan[FileAction]:
    """Plan the rest, once the path is as the spec says."""
    tidy = _copy_former(wanted, owned, state.at) or _sweep(wanted, state.at) or _prune(wanted, state)
    if tidy is not None:
        return Act((tidy,), drift=False)
    rest = release_all(wanted.name, others, state)
    if not isinstance(rest, Converged):
        return replace(rest, drift=False) if isinstance(rest, Act) else rest
    return Converged(holds=frozenset(f"path:{path}" for path, _ in state.ties.held))


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
    """Plan a change of the object at the path."""
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
        return wait(
            not_empty(f"put a {spec.type} at {spec.path}" if spec.type != "absent" else f"remove {spec.path}", LATER)
        )
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
        reason = f"{_STANDS[seen.type]} is there"
        return Drop(name=name, reason=reason, path=spec.path, expect=seen.mark, disturbs=_disturbs(wanted, seen))
    if seen.type != spec.type:
        return _put(wanted, sight, f"{_STANDS[seen.type]} is there")
    reason = f"{' and '.join(fields)} {'differs' if len(fields) == 1 else 'differ'}"
    if spec.type == "symlink" or not _ATTRIBUTES.issuperset(fields):
        return _put(wanted, sight, reason)
    attributes = Attributes(None if spec.mode is None else int(spec.mode, 8), sight.uid, sight.gid)
    return Amend(
        name=name,
        reason=reason,
        path=spec.path,
        attributes=attributes,
        expect=seen.mark,
        disturbs=_disturbs(wanted, seen),
        otherwise=_put(wanted, sight, reason) if seen.type == "file" or seen.empty else None,
    )


def _put(wanted: Wanted, sight: Sight, reason: str) -> Put:
    return Put(
        name=wanted.name,
        reason=reason,
        disturbs=_disturbs(wanted, sight.seen),
        spec=wanted.spec,
        type=_NODES[wanted.spec.type],
        digest=wanted.digest,
        uid=sight.uid,
        gid=sight.gid,
        expect=None if sight.seen is None else sight.seen.mark,
    )


def _disturbs(wanted: Wanted, seen: Seen | None) -> bool:
    """Return whether it changes what somebody else may have put there: not nothing, nor a directory
    made for Files.
    """
    return seen is not None and not (wanted.made and seen.type == "directory")


def _sweep(wanted: Wanted, sight: Sight) -> Sweep | None:
    reason = "something unfinished stands beside it"
    return Sweep(name=wanted.name, reason=reason, path=sight.path) if sight.leftover else None


def _prune(wanted: Wanted, state: FileState) -> Prune | None:
    reason = "nothing needs the directories that were made for it"
    return Prune(name=wanted.name, reason=reason, path=wanted.spec.path) if state.ties.spare else None


def _copy_former(wanted: Wanted, owned: Owned, sight: Sight) -> Keep | None:
    """A copy of what is adopted although it is as wanted already: a later spec will replace it, and removal may not."""
    seen, former = sight.seen, None
    place = next((place for place in owned.places if place.path == wanted.spec.path), None)
    if place is None or place.former is None or is_kept(place, sight):
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
    """Plan the backup of the object before it is replaced.

    Empty if it is ours or backed up; a Wait if it can't be replaced.
    """
    path, former = wanted.spec.path, describe(seen)
    if place.former is not None and place.former == former:
        stays = former.type == wanted.spec.type == "directory"
        if is_kept(place, sight) and (place.needs_copy or stays):
            return ()
    elif place.may_be_ours(seen):
        return ()
    elif not wanted.spec.adopt:
        message = f"cannot replace {path}: it appeared meanwhile and isn't ours; move it away, or say adopt"
        return Wait("OwnershipConflict", message, "Blocked", LATER)
    if former is None:
        return wait(Trouble("FormerUnsupported", f"cannot keep what is at {path}: no file, directory or link; move it"))
    if former.type == "file" and seen.size > MAX_READ:
        return wait(Trouble("FormerTooLarge", f"cannot keep what is at {path}: it is larger than 64 MiB; move it away"))
    reason = f"{_STANDS[seen.type]} that isn't ours is there"
    return (Keep(name=wanted.name, reason=reason, path=path, former=former, expect=seen.mark),)
