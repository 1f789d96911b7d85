"""`harmony secret set`, `list` and `rm`."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from pathlib import Path

from harmony_fleet.client.client import Client
from harmony_fleet.client.secrets import SecretRow, check_secret
from harmony_fleet.commands.change import Choice
from harmony_fleet.commands.common import Common, note, run_client, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.observe.state import check_name
from harmony_fleet.output import render, tables
from harmony_fleet.output.render import Output
from harmony_fleet.storage.regular import read_regular
from scores.secrets import MAX_VALUE


def set_(
    common: Common, name: str, choice: Choice, file: str | None, *, accept_key: bool
) -> ExitCode:
    """`harmony secret set`."""
    check_secret(name)
    value = _value(name, file)

    async def work(client: Client) -> ExitCode:
        rows = await client.secrets.set(
            name, value, choice.devices, choice.labels, accept_key=accept_key
        )
        return _tell(common, "sealed", rows)

    return run_client(common, work)


def list_(common: Common, devices: Sequence[str]) -> ExitCode:
    """`harmony secret list`."""
    for device in devices:
        check_name("device", device)

    async def work(client: Client) -> ExitCode:
        rows = await client.secrets.all(devices)
        if common.output is not Output.TABLE:
            write([_as_json(row) for row in rows], common.output)
        elif rows:
            tables.secrets_table(rows, render.out())
        else:
            note("there is no secret; make one with: harmony secret set NAME --device DEVICE")
        return ExitCode.DONE

    return run_client(common, work)


def rm(common: Common, name: str, choice: Choice, *, force: bool) -> ExitCode:
    """`harmony secret rm`."""
    check_secret(name)

    async def work(client: Client) -> ExitCode:
        rows = await client.secrets.remove(name, choice.devices, choice.labels, force=force)
        return _tell(common, "taken back", rows)

    return run_client(common, work)


def _tell(common: Common, what: str, rows: Sequence[SecretRow]) -> ExitCode:
    if common.output is not Output.TABLE:
        write([_as_json(row) for row in rows], common.output)
    else:
        for row in rows:
            note(f"{what}: {row.name} of {row.device}")
    return ExitCode.DONE


def _as_json(row: SecretRow) -> dict[str, object]:
    return {
        "device": row.device,
        "name": row.name,
        "version": row.version,
        "removed": row.removed,
        "used_by": list(row.used_by),
        "trouble": row.trouble,
    }


def _value(name: str, file: str | None) -> bytes:
    """The value, never from an argument: `ps` shows those. Raises InvalidInput."""
    if file is not None:
        try:
            return read_regular(Path(file))
        except OSError as error:
            text = f"cannot read {file}: {error.strerror}"
            raise InvalidInput("FileUnreadable", text, "check the name") from None
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ").encode()
    return sys.stdin.buffer.read(MAX_VALUE + 2).removesuffix(b"\n")
