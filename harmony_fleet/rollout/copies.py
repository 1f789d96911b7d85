"""The roster's mark and its sealed copy in the bucket ``fleet-authority``: read, written by CAS,
pulled.

The owner of NATS can't open the copy. Any signing key of the home can, also a retired one, so that
an older copy of the home can catch up. Without signing keys there is no copy, and the mark stands
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harmony_fleet.errors import Conflict, InvalidInput, Refused
from harmony_fleet.manifests import signing_keys
from harmony_fleet.manifests.signing import Key
from harmony_fleet.nats.kv import Store
from harmony_fleet.roster import text
from harmony_fleet.roster.copy import ROOM, Copy, header_of, opened, sealed
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.mark import (
    PULL,
    Behind,
    Mark,
    behind,
    check_keys,
    differences,
    follows,
    mark_of,
)
from harmony_fleet.roster.model import Roster
from harmony_fleet.roster.seal import Version
from scores.canonical import NotCanonical, read
from scores.keys import FLEET
from scores.manifest import MAX_MANIFEST, InvalidManifest, validate

_MARKS: Final = "roster"


@dataclass(frozen=True, slots=True)
class Standing:
    """Mark of one lineage in the bucket. `revision` 0: there never was a mark."""

    mark: Mark | None = None
    revision: int = 0


def _key(kind: str, lineage: str) -> str:
    return f"{kind}.{lineage}"


async def check_claim(store: Store, lineage: str) -> None:
    """Raise where these credentials may not claim the fleet for an apply. Writes nothing."""
    await store.check_write(FLEET, _key(_MARKS, lineage))


async def look(store: Store, lineage: str) -> Standing:
    """Read the mark. Raises Behind if it can't be read: nobody knows then what was applied last."""
    entry = await store.get(FLEET, _key(_MARKS, lineage))
    if entry.value is None:
        return Standing(revision=entry.revision)
    try:
        return Standing(validate(Mark, read(entry.value, MAX_MANIFEST)), entry.revision)
    except (NotCanonical, InvalidManifest):
        raise Behind(
            "MarkUnreadable",
            "cannot apply the roster: what was applied last can't be read in the bucket fleet-authority",
            "a newer harmony may have written it: use one of that version",
        ) from None


async def admit(
    store: Store, file: RosterFile, roster: Roster, *, any_keys: bool = False
) -> Standing:
    """Return the mark if `roster`, which stands in `file`, may be applied after it. Raises Behind
    with the difference.

    With `any_keys` this home may sign with other keys than the last one did.
    """
    standing = await look(store, roster.lineage)
    mark, history = standing.mark, file.history()
    if mark is None:
        return standing
    if not follows(mark, history):
        raise behind(mark, history, _differs(roster, await _copy(store, file, mark)))
    if not any_keys:
        check_keys(mark, [key.id for key in signing_keys.all_keys(file.folder.parent)])
    return standing


def _differs(own: Roster, copy: Copy | None) -> list[str]:
    if copy is None:
        return ["no copy of it can be opened here, so what differs can't be told"]
    return differences(own, text.parse(copy.roster, "the copy"))


async def claim(store: Store, file: RosterFile, roster: Roster, standing: Standing) -> int:
    """Have the mark say that `roster` is applied from now on; its revision. Raises Behind where
    somebody was faster.
    """
    keys = signing_keys.all_keys(file.folder.parent)
    active = [key.id for key in keys if key.state == "active"]
    mark = mark_of(roster.lineage, file.history(), active)
    if standing.mark is not None and (standing.mark.version, standing.mark.keys) == (
        mark.version,
        mark.keys,
    ):
        revision = standing.revision
        await confirm(store, roster.lineage, revision)
    else:
        try:
            revision = await store.put(
                FLEET, _key(_MARKS, roster.lineage), mark.canonical(), standing.revision
            )
        except Conflict:
            raise _overtaken() from None
    await _keep_copy(store, file, roster, mark, keys)
    return revision


async def confirm(store: Store, lineage: str, revision: int) -> None:
    """Raise Behind where another copy was applied since the mark had this revision."""
    if (await store.get(FLEET, _key(_MARKS, lineage))).revision != revision:
        raise _overtaken()


def _overtaken() -> Behind:
    return Behind(
        "RosterOvertaken",
        "another copy of this home was applied meanwhile: what was written here may stand beside what it wrote",
        f"see what it says with {PULL}, then there or here: harmony fleet apply",
    )


async def _keep_copy(
    store: Store, file: RosterFile, roster: Roster, mark: Mark, keys: Sequence[Key]
) -> None:
    """Write the sealed copy unless it stands. Whoever comes later mends what a kill or a race left
    here.
    """
    if not keys:
        return
    key = _key("copy", roster.lineage)
    entry = await store.get(FLEET, key)
    wanted = {
        "generation": mark.generation,
        "content": mark.content,
        "keys": sorted(one.id for one in keys),
    }
    if header_of(entry.value) == wanted:
        return
    data = sealed(file, roster, wanted, keys)
    if len(data) > ROOM:
        return
    try:
        await store.put(FLEET, key, data, entry.revision)
    except Conflict:
        return  # another copy of this home is at it: the mark says which one is right


async def _copy(store: Store, file: RosterFile, mark: Mark) -> Copy | None:
    """Open the copy that the mark names. None if this home can't open one."""
    entry = await store.get(FLEET, _key("copy", mark.lineage))
    return opened(signing_keys.all_keys(file.folder.parent), entry.value, mark)


async def lineage_of(store: Store, file: RosterFile) -> str:
    """Return the lineage of this home's roster.

    Without a usable roster, that of the only one in the bucket.
    """
    try:
        return file.read().lineage
    except (InvalidInput, Conflict):
        marks = [key.partition(".")[2] for key in await store.entries(FLEET, [f"{_MARKS}.*"])]
        if len(marks) != 1:
            raise
        return marks[0]


async def pull(store: Store, file: RosterFile) -> tuple[Roster, list[str], bool]:
    """Take the roster that was applied last.

    Returns the roster, the files that a person has to bring, and whether anything changed. Raises
    InvalidInput if nothing was applied yet, Refused if no key here opens the copy.
    """
    mark = (await look(store, await lineage_of(store, file))).mark
    if mark is None:
        raise InvalidInput(
            "NothingApplied", "cannot pull: no roster was applied yet", "harmony fleet apply"
        )
    if _present(file) == mark.version:
        return file.read(), [], False
    copy = await _copy(store, file, mark)
    if copy is None:
        raise Refused(
            "CopyUnavailable",
            f"cannot pull generation {mark.generation}: there is no copy of it that a key of this home opens",
            "bring $HARMONY_HOME/fleet from where it was applied",
        )
    for name, data in copy.files.items():
        file.put(name, data)
    roster = file.replace(copy.roster, mark.past())
    elsewhere = [
        one.file
        for one in roster.deployments
        if one.file is not None and one.file not in copy.files
    ]
    return roster, sorted(set(elsewhere)), True


def _present(file: RosterFile) -> Version | None:
    try:
        return file.history()[-1]
    except (InvalidInput, Conflict):
        return None


async def take_over(store: Store, file: RosterFile, say: Callable[[str], None]) -> None:
    """Let this home's roster follow the last applied one, which it never saw.

    `say` is told of it.
    """
    roster = file.read()
    mark = (await look(store, roster.lineage)).mark
    if mark is None or mark.version in file.history():
        return
    after = file.overrule(mark.version)
    say(
        f"taking over from generation {mark.generation}: this roster is generation {after.generation} now"
    )
