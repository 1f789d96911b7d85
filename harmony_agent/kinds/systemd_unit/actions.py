"""The steps that a plan for a unit is made of. Data only; `reconciler.apply` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from harmony_agent.core.actions import Action
from harmony_agent.core.frozen import frozen
from harmony_agent.kinds.systemd_unit.facts import UnitFacts


@frozen(kw_only=True)
class Write(Action):
    """Write a unit file or drop-in. `keep` is the former file that has to be kept aside first."""

    place: str
    content: str = field(repr=False)
    keep: str = ""


@frozen(kw_only=True)
class Remove(Action):
    """Take a unit file or drop-in away. `keep` is the former file that has to be kept aside
    first.
    """

    place: str
    keep: str = ""


@frozen(kw_only=True)
class Restore(Action):
    """Put a former file or link back."""

    place: str
    former: str


@frozen(kw_only=True)
class Enable(Action):
    """Make the links that its [Install] section asks for."""


@frozen(kw_only=True)
class Disable(Action):
    """Take those links away; with `runtime` also the ones that last until the next boot."""

    runtime: bool = False


@frozen(kw_only=True)
class Relink(Action):
    """Make its links as they were before: path -> target."""

    links: Mapping[str, str]


@frozen(kw_only=True)
class Keep(Action):
    """Keep aside what stands at `place`, which is as wanted and stays."""

    place: str
    keep: str


@frozen(kw_only=True)
class Mask(Action):
    """Mask the unit."""


@frozen(kw_only=True)
class Unmask(Action):
    """Take the mask away; with `runtime` the one that lasts until the next boot."""

    runtime: bool = False


@frozen(kw_only=True)
class Reload(Action):
    """Let the manager load what changed on disk."""


@frozen(kw_only=True)
class Note(Action):
    """Record something before, or instead of, doing it."""

    note: UnitFacts


@frozen(kw_only=True)
class Start(Action):
    """Start; `note` is recorded first."""

    note: UnitFacts | None = None


@frozen(kw_only=True)
class Stop(Action):
    """Stop."""


@frozen(kw_only=True)
class Restart(Action):
    """Restart; `note` is recorded first."""

    note: UnitFacts


@frozen(kw_only=True)
class ReloadUnit(Action):
    """Let the unit read its configuration again; `note` is recorded first."""

    note: UnitFacts


@frozen(kw_only=True)
class ResetFailed(Action):
    """Forget that the unit failed."""


@frozen(kw_only=True)
class Release(Action):
    """All is put back: record that, then let go of the files kept aside."""

    note: UnitFacts


UnitAction = (
    Write
    | Remove
    | Restore
    | Enable
    | Disable
    | Relink
    | Keep
    | Mask
    | Unmask
    | Reload
    | Note
    | Start
    | Stop
    | Restart
    | ReloadUnit
    | ResetFailed
    | Release
)
