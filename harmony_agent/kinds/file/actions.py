"""File: the steps that a plan is made of. Data only; `apply` takes them."""

from __future__ import annotations

from dataclasses import field

from harmony_agent.core.actions import Action
from harmony_agent.core.frozen import frozen
from harmony_agent.kinds.file.facts import OwnedPath, PreviousNode
from harmony_agent.topology.files import Attributes, NodeType, PathState, StatFingerprint
from scores.file import File


@frozen(kw_only=True)
class BackUp(Action):
    """Keep what stands there, which isn't ours, so that it can be put back; None: nothing stands
    there any more.
    """

    path: str
    former: PreviousNode | None
    expect: StatFingerprint | None
    is_disruptive: bool = False


@frozen(kw_only=True)
class MakeParents(Action):
    """Make these directories, having recorded that."""

    path: str
    parents: tuple[str, ...]
    is_disruptive: bool = False


@frozen(kw_only=True)
class Put(Action):
    """Put what the Score says at its path, in place of what was expected there."""

    spec: File = field(repr=False)
    type: NodeType
    digest: str
    uid: int | None
    gid: int | None
    expect: StatFingerprint | None


@frozen(kw_only=True)
class SetAttributes(Action):
    """Change mode and owner of what stands there."""

    path: str
    attributes: Attributes
    expect: StatFingerprint
    otherwise: Put | None = None
    """where that isn't allowed: make it anew"""


@frozen(kw_only=True)
class Drop(Action):
    """Remove what the Score wants absent."""

    path: str
    expect: StatFingerprint


@frozen(kw_only=True)
class Sweep(Action):
    """Remove what an agent that was killed left unfinished beside the path."""

    path: str
    is_disruptive: bool = False


@frozen(kw_only=True)
class Prune(Action):
    """Drop the directories that were made for what is absent by now."""

    path: str
    is_disruptive: bool = False


@frozen(kw_only=True)
class Release(Action):
    """Give a place up: remove what is ours there or put back what was before, and drop directories
    made for it.

    `stays`: a directory of ours that holds something. Files that have places in it get it, else it
    is let go of.
    """

    place: OwnedPath
    path_state: PathState
    remove: bool
    restore: bool
    stays: bool = False
    is_disruptive: bool = False  # of ours alone


FileAction = BackUp | MakeParents | Put | SetAttributes | Drop | Sweep | Prune | Release
