"""`harmony fleet device|deployment rename`: only what is at no device yet can have another name."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Final

from harmony_fleet.commands.common import Common, run
from harmony_fleet.commands.roster import mutate, roster_file
from harmony_fleet.errors import ExitCode, Refused
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import check_name, list_deployments, read_device
from harmony_fleet.rollout.fleet import there
from harmony_fleet.roster.edit import Edit, rename

_SHOWN: Final = 5


def rename_device(common: Common, old: str, new: str, generation: int | None) -> ExitCode:
    """A device's name is its id: only one that has never been there can have another."""
    check_name("device", new)
    edit = rename("devices", old, new, frozenset())
    return _rename(common, edit, generation, functools.partial(_refuse_known, name=old, new=new))


def rename_deployment(common: Common, old: str, new: str, generation: int | None) -> ExitCode:
    """A device owns what it runs by the deployment's name: only one that is nowhere can have
    another.
    """
    check_name("deployment", new)
    overriding = frozenset(
        device.name for device in roster_file(common).read().devices if old in device.overrides
    )
    edit = rename("deployments", old, new, overriding)
    return _rename(common, edit, generation, functools.partial(_refuse_there, name=old, new=new))


def _rename(
    common: Common,
    edit: Edit,
    generation: int | None,
    refuse: Callable[[Store], Awaitable[None]],
) -> ExitCode:
    async def work(store: Store) -> ExitCode:
        await refuse(store)
        return mutate(common, edit, generation)

    return run(common, work)


async def _refuse_known(store: Store, name: str, new: str) -> None:
    found = await read_device(store, name)
    known = found.info is not None or found.heard is not None or found.problem
    if not known and not await list_deployments(store, name, None):
        return
    raise Refused(
        "DeviceKnown",
        f"cannot rename {name}: it is the id in its credentials and in its agent's configuration",
        f"harmony device enroll {new}; on the device: harmony-agent join --replace {new}.bundle; "
        f"harmony fleet device add {new} …; harmony fleet device remove {name}",
    )


async def _refuse_there(store: Store, name: str, new: str) -> None:
    places = [item.key.device for item in await list_deployments(store, None, name) if there(item)]
    if not places:
        return
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    raise Refused(
        "DeploymentThere",
        f"cannot rename {name}: {', '.join(places[:_SHOWN])}{more} has it, and owns by that name what runs",
        f"keep the name; or take it off and make it anew, which stops what runs: harmony fleet deployment add {new} …, "
        f"harmony fleet deployment remove {name}, harmony fleet apply",
    )
