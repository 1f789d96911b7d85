"""`harmony object …`: options and help. The work is in `commands.objects`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli.options import listing, reaching

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Bucket = Annotated[
    str, typer.Option("--bucket", "-b", metavar="NAME", help="The object store in NATS.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Also what a desired deployment names by this name.")
]


@app.callback()
def _group() -> None:
    """Keep content that is too large for a manifest (File.object).

    Up to 64 MiB each.

    \b
    harmony object put site.tar
    harmony object list
    harmony object rm site.tar
    """


@app.command()
@reaching
def put(
    common: Common,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A regular file.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Else the file's own name.")
    ] = None,
    bucket: Bucket = "files",
    force: Force = False,
) -> int:
    """Put a file into an object store.

    The lines that name it in a Score are printed. It is read back and compared. The same content
    isn't put again. Another content doesn't replace one that a desired deployment names: give it
    another --name.

    \b
    harmony object put site.tar
    harmony object put build/site.tar --name site-2.tar
    """
    from harmony_fleet.commands import objects

    return objects.put(common, file, bucket, name, force=force)


@app.command("list")
@listing
def list_(
    common: Common,
    *,
    bucket: Bucket = "files",
    verify: Annotated[
        bool, typer.Option("--verify", help="Read each, and compare: exit code 1 if one differs.")
    ] = False,
) -> int:
    """Show the objects, and the deployments that name them.

    \b
    harmony object list
    harmony object list --verify
    """
    from harmony_fleet.commands import objects

    return objects.list_(common, bucket, verify=verify)


@app.command()
@reaching
def rm(
    common: Common,
    *,
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Objects.")] = None,
    bucket: Bucket = "files",
    force: Force = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="All that no desired deployment names.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --prune: show it; remove nothing.")
    ] = False,
) -> int:
    """Remove objects. Refused with 5 while a desired deployment names one.

    \b
    harmony object rm site.tar
    harmony object rm --prune --dry-run
    """
    from harmony_fleet.commands import objects

    if prune == bool(name) or (dry_run and not prune):
        raise typer.BadParameter("give names, or --prune, which alone has --dry-run")
    if prune:
        return objects.prune(common, bucket, dry_run=dry_run)
    return objects.remove(common, bucket, name or [], force=force)
