"""Facts of a File in the ledger: the paths that it owns, and the previous object at each. Pure.

Facts are names, numbers and digests. The previous content is kept elsewhere, under `copy_name`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Facts, OwnershipRecord
from harmony_agent.topology.files import FileSpec, NodeType, ObjectStat
from scores.file import File

_MAX_INTENTS: Final = 32
"""Specs in a row that never converged of which the ledger remembers what they may have left."""


@frozen()
class PreviousNode:
    """Previous object at a path, before a Score with `adopt` took it over."""

    type: NodeType
    mode: int
    uid: int
    gid: int
    digest: str = ""
    target: str = ""

    def matches(self, seen: ObjectStat | None) -> bool:
        """Return whether it stands there (still, or again)."""
        return seen is not None and describe(seen) == self

    def node(self, copy: str) -> FileSpec:
        """Spec that restores it. `copy` names the backup of its content."""
        return FileSpec(
            type=self.type,
            mode=None if self.type == "symlink" else self.mode,
            uid=self.uid,
            gid=self.gid,
            backup=copy if self.type == "file" else "",
            digest=self.digest,
            target=self.target,
        )


@frozen()
class OwnedPath:
    """A path that is a File's own by the ledger.

    `proven`: it was once as wanted, so whatever stands there since is ours; unless it was left
    `vacant`, being wanted absent. Besides, what is one of the `intents` can be of this agent's
    making. `made`: parents that were made for it. `kept`: the copy of a `former` file was complete.
    Without this a copy isn't used, for it may be of something older; so this is written before
    anything is replaced, and taken back before the copy is deleted. `copy`: its name, where another
    File made it. `keyed`: what was put there holds a secret, or did: its digests are made with the
    device's own key, and no status shows one.
    """

    path: str
    type: str = "file"
    proven: bool = False
    vacant: bool = False
    intents: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    former: PreviousNode | None = None
    kept: bool = False
    copy: str = ""
    keyed: bool = False

    @property
    def needs_copy(self) -> bool:
        """Return whether what stood there before can only come back from a copy."""
        return self.former is not None and self.former.type == "file"

    @property
    def untouched(self) -> bool:
        """Return whether it is still its owner's, or again: what stood there isn't kept, so nothing
        was done to it.
        """
        return self.needs_copy and not self.kept

    def copy_of(self, name: str) -> str:
        """The name of the copy of what stood there, for the File `name` that has the place."""
        return self.copy or copy_name(name, self.path)

    def passed_on(self, name: str) -> OwnedPath:
        """The same place once another File than `name` has it."""
        return replace(self, copy=self.copy_of(name) if self.former is not None else "")

    def may_pass(self, seen: ObjectStat | None, *, adopt: bool) -> bool:
        """Return whether it is this agent's to pass on, or the one who gets it adopts what isn't.

        Where nothing is and nothing was, nothing can be lost.
        """
        if adopt or self.proven:
            return True
        if seen is not None:
            return self.may_be_ours(seen)
        return self.former is None or (self.needs_copy and self.kept)

    def giving_back(self) -> OwnedPath:
        """The same place once what stood there before is there again, or stays away."""
        return (
            replace(self, proven=False, vacant=False, intents=(), kept=False)
            if self.needs_copy
            else self
        )

    def intending(self, spec: File, digest: str, seen: ObjectStat | None) -> OwnedPath:
        """The same place for this spec, which is about to be worked on; `seen` is what stands
        there.
        """
        keyed = self.keyed or bool(spec.secret_names())
        if self.proven and not self.vacant:
            return replace(self, type=spec.type, keyed=keyed)
        # What stands there is the last to be forgotten, however many specs were claimed since and
        # never put.
        standing = () if seen is None else (_token(seen),)
        others = [token for token in self.intents if token not in standing]
        stands = [token for token in self.intents if token in standing]
        intents = dict.fromkeys((*others, *stands, intent(spec, digest)))
        kept = tuple(intents)[-_MAX_INTENTS:]
        return replace(self, type=spec.type, intents=kept, keyed=keyed)

    def may_be_ours(self, seen: ObjectStat) -> bool:
        """Return whether the agent may have put there what stands there."""
        return (self.proven and not self.vacant) or _token(seen) in self.intents


@frozen()
class Owned:
    """Paths of a File in the ledger.

    `settled`: the recorded spec has converged once.
    """

    places: tuple[OwnedPath, ...] = ()
    settled: bool = False


def describe(seen: ObjectStat) -> PreviousNode | None:
    """Describe the object for a later restore.

    None if it can't be restored (a FIFO, a name that isn't UTF-8).
    """
    if seen.type == "other" or not _is_text(seen.target or ""):
        return None
    mode = 0 if seen.type == "symlink" else seen.mode
    return PreviousNode(seen.type, mode, seen.uid, seen.gid, seen.digest or "", seen.target or "")


def read(record: OwnershipRecord | None) -> tuple[OwnedPath, ...]:
    """The places in a record, the present one first."""
    if record is None:
        return ()
    places = tuple(_place(value) for value in record.facts.get("places", ()))
    if places and record.converged and not places[0].untouched:
        now = places[0]
        return (replace(now, proven=True, vacant=now.type == "absent", intents=()), *places[1:])
    return places


def owned(record: OwnershipRecord | None) -> Owned:
    """The places that the ledger shows as a File's own.

    One without a claim is nobody's: nothing of ours was left there when the claim was given up, and
    what stands there since is another's.
    """
    if record is None:
        return Owned()
    places = tuple(place for place in read(record) if f"path:{place.path}" in record.claims)
    return Owned(places, record.converged and not any(place.untouched for place in places[:1]))


def write(places: Sequence[OwnedPath]) -> Facts:
    """The facts that `read` reads: what JSON gives back just so, for facts are compared."""
    return {"places": [_value(place) for place in places]}


def _value(place: OwnedPath) -> dict[str, Any]:
    """Spelt out, for `asdict` takes as long as all else that is done to claim a File."""
    return {
        "path": place.path,
        "type": place.type,
        "proven": place.proven,
        "vacant": place.vacant,
        "intents": list(place.intents),
        "made": list(place.made),
        "former": None if place.former is None else asdict(place.former),
        "kept": place.kept,
        **({"copy": place.copy} if place.copy else {}),
        **({"keyed": True} if place.keyed else {}),
    }


def copy_name(name: str, path: str) -> str:
    """Under which the content of what stood at `path` before `name` took it over is kept."""
    return hashlib.sha256(f"{name}\0{path}".encode()).hexdigest()[:32]


def intent(spec: File, digest: str) -> str:
    """Token of the object that `spec` puts at the path."""
    return {"file": f"file:{digest}", "symlink": f"symlink:{spec.target}"}.get(spec.type, spec.type)


def _token(seen: ObjectStat) -> str:
    return {"file": f"file:{seen.digest}", "symlink": f"symlink:{seen.target}"}.get(
        seen.type, seen.type
    )


def _place(value: Mapping[str, Any]) -> OwnedPath:
    former = value["former"]
    return OwnedPath(
        path=value["path"],
        type=value["type"],
        proven=value["proven"],
        vacant=value["vacant"],
        intents=tuple(value["intents"]),
        made=tuple(value["made"]),
        former=None if former is None else PreviousNode(**former),
        kept=value.get("kept", True),  # one of before this was noted
        copy=value.get("copy", ""),
        keyed=value.get("keyed", False),
    )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
