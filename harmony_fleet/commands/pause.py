"""`harmony pause` and `resume`: a device keeps what runs and changes nothing, for a while."""

from __future__ import annotations

from harmony_fleet.client.client import Client
from harmony_fleet.commands.common import Common, note, run_client, write
from harmony_fleet.errors import ExitCode
from harmony_fleet.observe.state import check_name
from harmony_fleet.output import tables
from harmony_fleet.output.render import Output


def pause(common: Common, place: str, seconds: float) -> ExitCode:
    """`harmony pause`."""
    device, deployment = _parts(place)

    async def work(client: Client) -> ExitCode:
        held = await client.pause(device, seconds, deployment)
        if common.output is not Output.TABLE:
            told = {"device": device, "deployment": deployment}
            write({**told, "until": held.until, "busy": list(held.busy)}, common.output)
            return ExitCode.DONE
        what = place if deployment else f"all of {device}"
        note(f"{what} stays as it is until {tables.local(held.until)}, by the clock of {device}")
        if held.busy:
            note(f"one step is still under way at {', '.join(held.busy)}: it is the last")
        return ExitCode.DONE

    return run_client(common, work)


def resume(common: Common, place: str) -> ExitCode:
    """`harmony resume`: 1 where the device as a whole stays paused."""
    device, deployment = _parts(place)

    async def work(client: Client) -> ExitCode:
        found = await client.resume(device, deployment)
        if common.output is not Output.TABLE:
            told = {"device": device, "deployment": deployment}
            write({**told, "ended": list(found.ended), "until": found.until}, common.output)
        elif found.until:
            end = tables.local(found.until)
            note(f"all of {device} stays paused until {end}: harmony resume {device}")
        else:
            note(f"{place} goes on" if found.ended else f"{place} wasn't paused")
        return ExitCode.NOT_CONVERGED if found.until else ExitCode.DONE

    return run_client(common, work)


def _parts(place: str) -> tuple[str, str | None]:
    device, slash, deployment = place.partition("/")
    check_name("device", device)
    if slash:
        check_name("deployment", deployment)
    return device, deployment if slash else None
