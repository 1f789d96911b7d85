"""Facts of a container in the ledger, as JSON and typed. Ids, digests and numbers; never a value of
its environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, Literal

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Facts, OwnershipRecord

DEFAULT_GRACE: Final = 10


@frozen()
class PreviousContainer:
    """The container that was adopted, and whether it ran. `back`: it was put back."""

    id: str
    running: bool
    back: bool = False

    def json(self) -> dict[str, Any]:
        """As the ledger keeps it."""
        return {"id": self.id, "running": self.running} | ({"back": True} if self.back else {})


@frozen()
class RetiredContainer:
    """The container that gave way to a successor which has not started yet, and how it was."""

    id: str
    running: bool
    concluded: str | None = None
    concluded_with: int | None = None


@frozen()
class InitProgress:
    """Number of init containers that ended well for the container `main`."""

    main: str
    done: int


@frozen()
class Pulled:
    """The images that ``pull: always`` has fetched for the spec of this digest."""

    digest: str
    images: tuple[str, ...] = ()


@frozen()
class LastRun:
    """The last run that ended: `due` is the time of the schedule that it was begun for.

    Times as the wire writes them, "" where they aren't known. `how`: it ended by itself, its end
    wasn't seen, or it never started.
    """

    how: Literal["Exited", "Cut", "NotStarted"] = "Exited"
    due: str = ""
    started: str = ""
    ended: str = ""
    exit_code: int | None = None


@frozen()
class Job:
    """State of a schedule. Times as the wire writes them.

    `calendar` is the schedule with its time zone, `handled` the latest time that was dealt with,
    `began` the time of a run whose end isn't recorded, and `from_run` the container's run before
    it. `missed` counts since the schedule is as it is, `missed_at` is the latest of these.
    """

    calendar: str = ""
    handled: str = ""
    began: str = ""
    from_run: str = ""
    missed: int = 0
    missed_at: str = ""


@frozen()
class ContainerFacts:
    """The ledger's facts. None is a fact that isn't known.

    `id` is "" while the container is being created: what then has our labels is ours. `label` is
    what it was made from, `made` its changeable fields right after that. `boot` is the one in which
    it was last started. `restarts` counts, and `exit_code` and `ended` name the run that was
    counted last; `concluded` is the run that was its last, `concluded_with` its exit code. `token`
    is the restart token that was acted on, and `restart_from_run` the run that was there then:
    while it still is, the restart did not happen. `binds` are the sources of its binds at its last
    start, with what each of them led to; `plugs` the same of its devices. `tries` counts how often
    in a row it was run again. `last` is the last run that ended for good, `job` of one with a
    schedule. `grace` is in seconds, for removal.
    """

    id: str | None = None
    label: str | None = None
    made: Mapping[str, str] | None = None
    boot: str | None = None
    restarts: int | None = None
    exit_code: int | None = None
    ended: str | None = None
    concluded: str | None = None
    concluded_with: int | None = None
    token: str = ""
    restart_from_run: str = ""
    inits: InitProgress | None = None
    grace: int | None = None
    former: PreviousContainer | None = None
    pulled: Pulled | None = None
    retired: RetiredContainer | None = None
    binds: Mapping[str, str] | None = None
    plugs: Mapping[str, str] | None = None
    tries: int | None = None
    last: LastRun | None = None
    job: Job | None = None

    @property
    def retired_id(self) -> str | None:
        """The id of the container that gave way and is still kept."""
        return self.retired.id if self.retired is not None else None

    @property
    def owed(self) -> str | None:
        """The id of a container that was adopted and is still to be put back."""
        return self.former.id if self.former is not None and not self.former.back else None

    @property
    def former_id(self) -> str | None:
        """The id of the container that was adopted, put back or not."""
        return self.former.id if self.former is not None else None


_PLAIN: Final = (
    *("id", "label", "boot", "restarts", "exit_code", "ended", "concluded", "concluded_with"),
    *("grace", "tries"),
)


def read(record: OwnershipRecord | None) -> ContainerFacts:
    """The facts in a record; unknown keys of another version are left out."""
    raw = record.facts if record is not None else {}
    made, inits, former, pulled = (raw.get(key) for key in ("made", "inits", "former", "pulled"))
    return ContainerFacts(
        **{key: raw.get(key) for key in _PLAIN},
        token=raw.get("token", ""),
        restart_from_run=raw.get("from", ""),
        made=made,
        binds=raw.get("binds"),
        plugs=raw.get("plugs"),
        inits=InitProgress(inits["main"], inits["done"]) if inits else None,
        former=PreviousContainer(**former) if former else None,
        pulled=Pulled(pulled["digest"], tuple(pulled["images"])) if pulled else None,
        retired=RetiredContainer(**raw["retired"]) if raw.get("retired") else None,
        last=LastRun(**raw["last"]) if raw.get("last") else None,
        job=Job(**raw["job"]) if raw.get("job") else None,
    )


def write(facts: ContainerFacts) -> Facts:
    """The facts that `read` reads, as JSON gives them back."""
    inits, former, pulled = facts.inits, facts.former, facts.pulled
    found: dict[str, Any] = {key: getattr(facts, key) for key in _PLAIN}
    found |= {
        "token": facts.token,
        "from": facts.restart_from_run,
        "binds": None if facts.binds is None else dict(facts.binds),
        "plugs": None if facts.plugs is None else dict(facts.plugs),
        "made": None if facts.made is None else dict(facts.made),
        "inits": None if inits is None else {"main": inits.main, "done": inits.done},
        "former": None if former is None else former.json(),
        "pulled": None
        if pulled is None
        else {"digest": pulled.digest, "images": list(pulled.images)},
        "retired": None if facts.retired is None else asdict(facts.retired),
        "last": None if facts.last is None else asdict(facts.last),
        "job": None if facts.job is None else asdict(facts.job),
    }
    return {key: value for key, value in found.items() if value is not None}
