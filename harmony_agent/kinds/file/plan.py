"""Plan of a File: chooses actions from the observation and the record.

An object that the ledger doesn't show as ours is never replaced or removed, unless the Score says
`adopt`; then it is backed up first. A directory with content is never removed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.frozen import frozen
from harmony_agent.core.paths import below
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.core.secrets import missing
from harmony_agent.kinds.file.actions import (
    BackUp,
    Drop,
    FileAction,
    MakeParents,
    Prune,
    Put,
    SetAttributes,
    Sweep,
)
from harmony_agent.kinds.file.facts import Owned, OwnedPath, describe
from harmony_agent.kinds.file.facts import owned as owned_by
from harmony_agent.kinds.file.observed import FileState
from harmony_agent.kinds.file.removal import LATER, is_kept, not_empty, release_all, removal, wait
from harmony_agent.topology.files import (
    MAX_READ,
    Attributes,
    NodeType,
    ObjectStat,
    PathError,
    PathState,
)
from scores.canonical import digest
from scores.file import File

_SOON: Final = 1.0
_ATTRIBUTES: Final = frozenset({"mode", "owner", "group"})
_NODES: Final[Mapping[str, NodeType]] = {
    "file": "file",
    "directory": "directory",
    "symlink": "symlink",
}
_STANDS: Final = {
    "directory": "a directory",
    "symlink": "a symbolic link",
    "file": "a file",
    "other": "no regular file",
}


@frozen()
class FileTarget:
    """A spec with the digest of its content ("" where it has none).

    `made`: it is a directory that was made as a parent of Files.
    """

    name: str
    spec: File
    digest: str
    made: bool = False


def plan(
    name: str,
    desired: Desired[File] | None,
    record: OwnershipRecord | None,
    observed: FileState | None,
) -> Plan[FileAction]:
    """Plan the next actions."""
    places = owned_by(record)
    if desired is None:
        return Converged() if observed is None else removal(name, places, observed)
    if (lacking := missing(desired)) is not None:
        return lacking
    state = observed if observed is not None else FileState(PathState(desired.spec.path))
    wanted = state.wanted or content_digest(desired.spec)
    target = FileTarget(name, desired.spec, wanted, state.ties.made)
    return _wanted(target, places, state)


def content_digest(spec: File) -> str:
    """Digest of the content that is wanted; "" where the type has none, or it is a template."""
    if spec.object is not None:
        return spec.object.digest
    data = spec.data()
    return "" if data is None else digest(data)


def _wanted(target: FileTarget, owned: Owned, state: FileState) -> Plan[FileAction]:
    """Plan to bring the path to its spec, then to give up older paths."""
    others = [place for place in owned.places if place.path != target.spec.path]
    ahead = release_all(
        target.name, [place for place in others if place.path in state.ties.early], state
    )
    if isinstance(ahead, Act):
        return replace(ahead, drift=False, ahead=True)
    return _reach(target, owned, others, state) or _tidy(target, owned, others, state)


def _reach(
    target: FileTarget, owned: Owned, others: Sequence[OwnedPath], state: FileState
) -> Plan[FileAction] | None:
    """Plan to bring the path to its spec. None if nothing differs."""
    spec, path_state = target.spec, state.at
    entangled = [
        place for place in others if below(place.path, spec.path) or below(spec.path, place.path)
    ]
    trouble = path_state.error
    if trouble is not None and spec.type == "absent" and trouble.reason == "NotADirectory":
        trouble = None  # nothing can be there
    fields = differences(target, path_state) if trouble is None else ()
    if entangled and (trouble is not None or fields):
        first = release_all(target.name, entangled, state)
        if not isinstance(first, Converged):
            return first
    if trouble is not None:
        return wait(trouble)
    if path_state.unknown:
        return wait(
            PathError(
                "UnknownOwner",
                f"cannot give {spec.path} to {path_state.unknown}: make the account first",
            )
        )
    return _change(target, owned, path_state, fields) if fields else None


def _tidy(
    target: FileTarget, owned: Owned, others: Sequence[OwnedPath], state: FileState
) -> Plan[FileAction]:
    """Plan the rest, once the path is as the spec says."""
    tidy = (
        _copy_former(target, owned, state.at) or _sweep(target, state.at) or _prune(target, state)
    )
    if tidy is not None:
        return Act((tidy,), drift=False)
    rest = release_all(target.name, others, state)
    if not isinstance(rest, Converged):
        return replace(rest, drift=False) if isinstance(rest, Act) else rest
    return Converged(holds=frozenset(f"path:{path}" for path, _ in state.ties.held))


def differences(target: FileTarget, path_state: PathState) -> tuple[str, ...]:
    """The names of the Score's fields that differ from what was seen; those that it doesn't set
    aren't looked at.
    """
    spec, seen = target.spec, path_state.stat
    if seen is None or seen.type != spec.type:
        return () if seen is None and spec.type == "absent" else ("type",)
    differ = {
        content_field(spec): spec.type == "file" and seen.digest != target.digest,
        "target": spec.type == "symlink" and seen.target != spec.target,
        "mode": spec.kept_mode is not None and seen.mode != int(spec.kept_mode, 8),
        "owner": path_state.uid is not None and seen.uid != path_state.uid,
        "group": path_state.gid is not None and seen.gid != path_state.gid,
    }
    return tuple(name for name, differs in differ.items() if differs)


def content_field(spec: File) -> str:
    """The field that holds the content."""
    return next(
        (
            name
            for name in ("content", "content_base64", "template")
            if getattr(spec, name) is not None
        ),
        "object",
    )


def _change(
    target: FileTarget, owned: Owned, path_state: PathState, fields: tuple[str, ...]
) -> Plan[FileAction]:
    """Plan a change of the object at the path."""
    spec, seen = target.spec, path_state.stat
    if seen is None:
        return _create(target, path_state, fields)
    before: tuple[FileAction, ...] = ()
    place = next((place for place in owned.places if place.path == spec.path), None)
    if place is not None and not owned.settled:
        kept = _keep(target, place, path_state, seen)
        if isinstance(kept, Wait):
            return kept
        before = kept
    if seen.type == "directory" and spec.type != "directory" and not seen.empty:
        return wait(
            not_empty(
                f"put a {spec.type} at {spec.path}"
                if spec.type != "absent"
                else f"remove {spec.path}",
                LATER,
            )
        )
    return Act((*before, _replace(target, path_state, seen, fields)), fields)


def _create(target: FileTarget, path_state: PathState, fields: tuple[str, ...]) -> Plan[FileAction]:
    spec = target.spec
    put = _put(target, path_state, "nothing is there")
    if not path_state.missing:
        return Act((put,), fields)
    if not spec.parents:
        message = (
            f"cannot make {spec.path}: {path_state.missing[0]} isn't there; make it, or say parents"
        )
        return Wait("ParentMissing", message, "Degraded", _SOON)
    parents = MakeParents(
        name=target.name, reason="parents aren't there", path=spec.path, parents=path_state.missing
    )
    return Act((parents, put), fields)


def _replace(
    target: FileTarget, path_state: PathState, seen: ObjectStat, fields: tuple[str, ...]
) -> FileAction:
    """The one action that makes what stands there right."""
    name, spec = target.name, target.spec
    if spec.type == "absent":
        reason = f"{_STANDS[seen.type]} is there"
        return Drop(
            name=name,
            reason=reason,
            path=spec.path,
            expect=seen.fingerprint,
            is_disruptive=_disturbs(target, seen),
        )
    if seen.type != spec.type:
        return _put(target, path_state, f"{_STANDS[seen.type]} is there")
    reason = f"{' and '.join(fields)} {'differs' if len(fields) == 1 else 'differ'}"
    if spec.type == "symlink" or not _ATTRIBUTES.issuperset(fields):
        return _put(target, path_state, reason)
    attributes = Attributes(
        None if spec.kept_mode is None else int(spec.kept_mode, 8), path_state.uid, path_state.gid
    )
    return SetAttributes(
        name=name,
        reason=reason,
        path=spec.path,
        attributes=attributes,
        expect=seen.fingerprint,
        is_disruptive=_disturbs(target, seen),
        otherwise=_put(target, path_state, reason) if seen.type == "file" or seen.empty else None,
    )


def _put(target: FileTarget, path_state: PathState, reason: str) -> Put:
    return Put(
        name=target.name,
        reason=reason,
        is_disruptive=_disturbs(target, path_state.stat),
        spec=target.spec,
        type=_NODES[target.spec.type],
        digest=target.digest,
        uid=path_state.uid,
        gid=path_state.gid,
        expect=None if path_state.stat is None else path_state.stat.fingerprint,
    )


def _disturbs(target: FileTarget, seen: ObjectStat | None) -> bool:
    """Return whether it changes what somebody else may have put there: not nothing, nor a directory
    made for Files.
    """
    return seen is not None and not (target.made and seen.type == "directory")


def _sweep(target: FileTarget, path_state: PathState) -> Sweep | None:
    reason = "something unfinished stands beside it"
    return (
        Sweep(name=target.name, reason=reason, path=path_state.path)
        if path_state.leftover
        else None
    )


def _prune(target: FileTarget, state: FileState) -> Prune | None:
    reason = "nothing needs the directories that were made for it"
    return (
        Prune(name=target.name, reason=reason, path=target.spec.path) if state.ties.spare else None
    )


def _copy_former(target: FileTarget, owned: Owned, path_state: PathState) -> BackUp | None:
    """A copy of what is adopted although it is as wanted already: a later spec will replace it, and
    removal may not.
    """
    seen, former = path_state.stat, None
    place = next((place for place in owned.places if place.path == target.spec.path), None)
    if place is None or place.former is None or is_kept(place, path_state):
        return None
    if place.former.matches(seen):
        former = place.former
    elif place.kept:
        return None  # its copy is gone, and what could be copied, too
    elif seen is not None:
        former = describe(seen)  # it became otherwise before anything was done
    reason = "what was there isn't kept yet"
    expect = None if seen is None else seen.fingerprint
    return BackUp(
        name=target.name, reason=reason, path=target.spec.path, former=former, expect=expect
    )


def _keep(
    target: FileTarget, place: OwnedPath, path_state: PathState, seen: ObjectStat
) -> Wait | tuple[FileAction, ...]:
    """Plan the backup of the object before it is replaced.

    Empty if it is ours or backed up; a Wait if it can't be replaced.
    """
    path, former = target.spec.path, describe(seen)
    if place.former is not None and place.former == former:
        stays = former.type == target.spec.type == "directory"
        if is_kept(place, path_state) and (place.needs_copy or stays):
            return ()
    elif place.may_be_ours(seen):
        return ()
    elif not target.spec.adopt:
        message = f"cannot replace {path}: it appeared meanwhile and isn't ours; move it away, or say adopt"
        return Wait("OwnershipConflict", message, "Blocked", LATER)
    if former is None:
        return wait(
            PathError(
                "FormerUnsupported",
                f"cannot keep what is at {path}: no file, directory or link; move it",
            )
        )
    if former.type == "file" and seen.size > MAX_READ:
        return wait(
            PathError(
                "FormerTooLarge",
                f"cannot keep what is at {path}: it is larger than 64 MiB; move it away",
            )
        )
    reason = f"{_STANDS[seen.type]} that isn't ours is there"
    return (
        BackUp(name=target.name, reason=reason, path=path, former=former, expect=seen.fingerprint),
    )
