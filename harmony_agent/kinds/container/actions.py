"""Container: the steps that a plan is made of. Each is idempotent; ids and reasons only, never a
value.
"""

from __future__ import annotations

from harmony_agent.core.actions import Action
from harmony_agent.core.frozen import frozen
from harmony_agent.kinds.container.facts import LastRun


@frozen(kw_only=True)
class EnsureImage(Action):
    """Have the image on the device, as `pull` says. Comes before the container that runs is
    touched.
    """

    image: str


@frozen(kw_only=True)
class Create(Action):
    """Create the container; record that before, and its id after."""


@frozen(kw_only=True)
class Rehearse(Action):
    """Make a trial of the container that is wanted, up to its start, while `id` runs on. Nothing
    of it stays.
    """

    id: str


@frozen(kw_only=True)
class Retire(Action):
    """Stop it and give it another name, until its successor has started."""

    id: str
    paused: bool = False


@frozen(kw_only=True)
class Remember(Action):
    """Record the id of a container that is ours by its labels: the agent died before it could."""

    id: str


@frozen(kw_only=True)
class Conclude(Action):
    """Record that this run has ended, and nothing runs it again but its schedule."""

    run: str
    exit_code: int
    last: LastRun


@frozen(kw_only=True)
class Skip(Action):
    """Record that `missed` times of its schedule, the latest at `until`, begin no run."""

    until: str
    missed: int


@frozen(kw_only=True)
class Start(Action):
    """Start it. `ended` is the run that ended by itself and is to be counted, "" where none did;
    `calm`: that run was long enough to begin a new row of tries. `due` is the time of its schedule
    that it is started for, "" where it has none.
    """

    id: str
    run: str
    ended: str = ""
    calm: bool = False
    exit_code: int | None = None
    due: str = ""


@frozen(kw_only=True)
class Restart(Action):
    """Stop and start it once for a restart token; `run` is what runs now."""

    id: str
    run: str


@frozen(kw_only=True)
class Stop(Action):
    """Stop it gracefully."""

    id: str
    paused: bool = False


@frozen(kw_only=True)
class Unpause(Action):
    """Let it go on."""

    id: str


@frozen(kw_only=True)
class Rename(Action):
    """Give it its name back."""

    id: str


@frozen(kw_only=True)
class Remove(Action):
    """Stop it gracefully and remove it."""

    id: str
    paused: bool = False


@frozen(kw_only=True)
class RunInit(Action):
    """Create an init container, unless it is there, and start it."""

    init: str
    id: str = ""


@frozen(kw_only=True)
class EndInit(Action):
    """Take away an init container that ended, or ran for too long: `failure` says how; "" and it is
    done with.
    """

    init: str
    id: str
    main: str
    done: int
    failure: str = ""


@frozen(kw_only=True)
class Park(Action):
    """Adopt: record the container that has our name, stop it and give it another one."""

    id: str


@frozen(kw_only=True)
class Restore(Action):
    """Give an adopted container its name back, and have it run if it ran."""


ContainerAction = (
    EnsureImage
    | Create
    | Rehearse
    | Retire
    | Remember
    | Conclude
    | Skip
    | Start
    | Restart
    | Stop
    | Unpause
    | Rename
    | Remove
    | RunInit
    | EndInit
    | Park
    | Restore
)
