"""`harmony object put`, `list` and `rm`: content for `File.object`."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from harmony_fleet.authority.authority_store import Authority
from harmony_fleet.commands.common import Common, hint, note, run, write
from harmony_fleet.errors import ExitCode, HarmonyError, InvalidInput, Refused
from harmony_fleet.nats.kv import Store
from harmony_fleet.nats.objects import Object, Objects
from harmony_fleet.observe.objects import Uses, uses
from harmony_fleet.observe.state import list_deployments
from harmony_fleet.output import render, tables
from harmony_fleet.output.render import Output
from harmony_fleet.storage.regular import NotRegular
from scores.file import MAX_OBJECT, ObjectRef
from scores.manifest import InvalidManifest, validate

_SHOWN: Final = 5


def put(common: Common, file: str, bucket: str, name: str | None, *, force: bool) -> ExitCode:
    """`harmony object put`."""
    path = Path(file)
    name = _checked(bucket, path.name if name is None else name)

    async def work(store: Store) -> ExitCode:
        objects = store.objects(bucket)
        with _opened(path) as content:
            await objects.ensure(common.context().replicas)
            made, changed = await _put(store, objects, name, content, force=force)
        ref = {"bucket": bucket, "name": name, "digest": made.digest}
        if common.output is not Output.TABLE:
            write({"object": ref, "size": made.size, "changed": changed}, common.output)
        else:
            note(f"{'put' if changed else 'unchanged'}: {made.size} bytes; in a File of a Score:")
            render.out().print(render.machine({"object": ref}, Output.YAML), soft_wrap=True)
        _say_closed(common, bucket)
        return ExitCode.DONE

    return run(common, work)


async def _put(
    store: Store, objects: Objects, name: str, content: BinaryIO, *, force: bool
) -> tuple[Object, bool]:
    """The object, and whether it had to be stored. The same content stays, where it is whole."""
    old, revision = await objects.get(name)
    digest, size = objects.measure(content)
    if old is not None and (old.digest, old.size) == (digest, size):
        try:
            await objects.check(old)
        except HarmonyError:
            pass  # damaged: it is stored anew
        else:
            return old, False
    elif old is not None and not force:
        found = uses(await list_deployments(store, None, None), objects.bucket)
        _refuse_used(found, [name], f"replace {name}", "give another --name, or --force")
    content.seek(0)
    return await objects.put(name, content, revision, old), True


def list_(common: Common, bucket: str, *, verify: bool) -> ExitCode:
    """`harmony object list`: 1 where `verify` finds one that isn't what was put."""

    async def work(store: Store) -> ExitCode:
        objects = store.objects(bucket)
        found = await objects.all()
        named = uses(await list_deployments(store, None, None), bucket)
        damaged = [one.name for one in found if verify and not await _is_whole(objects, one)]
        if common.output is not Output.TABLE:
            write([_as_json(one, named, damaged) for one in found], common.output)
        elif found:
            tables.objects_table(found, named, damaged, render.out(), wide=common.wide)
        else:
            note(f"no object in {bucket}; put one there with: harmony object put FILE")
        return ExitCode.NOT_CONVERGED if damaged else ExitCode.DONE

    return run(common, work)


async def _is_whole(objects: Objects, found: Object) -> bool:
    try:
        await objects.check(found)
    except HarmonyError as error:
        if error.code != "DigestMismatch":
            raise
        return False
    return True


def _as_json(found: Object, named: Uses, damaged: Sequence[str]) -> dict[str, object]:
    users = named.of.get(found.name, {})
    return {
        "name": found.name,
        "size": found.size,
        "digest": found.digest,
        "used_by": sorted(users),
        "other_digest_wanted_by": sorted(
            place for place, digest in users.items() if digest != found.digest
        ),
        "damaged": found.name in damaged,
    }


def remove(common: Common, bucket: str, names: Sequence[str], *, force: bool) -> ExitCode:
    """`harmony object rm NAME…`."""

    async def work(store: Store) -> ExitCode:
        objects = store.objects(bucket)
        found = {one.name: one for one in await objects.all()}
        missing = [name for name in names if name not in found]
        if missing:
            raise InvalidInput(
                "NotFound",
                f"cannot find {', '.join(missing[:_SHOWN])} in {bucket}",
                "see what there is: harmony object list",
            )
        if not force:
            named = uses(await list_deployments(store, None, None), bucket)
            _refuse_used(named, names, f"remove from {bucket}", "--force removes it all the same")
        return await _remove(common, objects, [found[name] for name in dict.fromkeys(names)])

    return run(common, work)


def prune(common: Common, bucket: str, *, dry_run: bool) -> ExitCode:
    """`harmony object rm --prune`: what no desired deployment names, and what was put half."""

    async def work(store: Store) -> ExitCode:
        objects = store.objects(bucket)
        named = uses(await list_deployments(store, None, None), bucket)
        _refuse_used(named, (), f"prune {bucket}", "mend or remove those first")
        going = [one for one in await objects.all() if one.name not in named.of]
        halves = await objects.abandoned(await store.now())
        if not dry_run:
            await objects.purge(halves)
        if halves:
            note(f"{len(halves)} that were put half")
        return await _remove(common, objects, going, dry_run=dry_run)

    return run(common, work)


async def _remove(
    common: Common, objects: Objects, going: Sequence[Object], *, dry_run: bool = False
) -> ExitCode:
    for one in going if not dry_run else ():
        await objects.remove(one)
    if common.output is not Output.TABLE:
        told = [{"name": one.name, "size": one.size} for one in going]
        write({"dry_run": dry_run, "removed": told}, common.output)
    else:
        for one in going:
            note(f"{'would remove' if dry_run else 'removed'} {one.name}, {one.size} bytes")
        if not going:
            note("nothing to remove")
    return ExitCode.DONE


def _refuse_used(found: Uses, names: Sequence[str], what: str, way: str) -> None:
    """Raise Refused where a desired deployment names one of them, or can't be read."""
    users = sorted({place for name in names for place in found.of.get(name, ())})
    if users:
        more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
        raise Refused(
            "ObjectInUse", f"cannot {what}: {', '.join(users[:_SHOWN])}{more} names it", way
        )
    if found.unreadable:
        places = ", ".join(sorted(found.unreadable)[:_SHOWN])
        raise Refused(
            "DesiredUnreadable",
            f"cannot {what}: what {places} names can't be told, for its manifest can't be read",
            way,
        )


def _checked(bucket: str, name: str) -> str:
    """The names as a Score takes them. Raises InvalidInput."""
    try:
        validate(ObjectRef, {"bucket": bucket, "name": name, "digest": f"sha256:{'0' * 64}"})
    except InvalidManifest as error:
        raise InvalidInput(
            error.code, f"cannot use this {error.errors[0].field}", "a name is 1 to 512 characters"
        ) from None
    return name


def _opened(path: Path) -> BinaryIO:
    """A regular file of a size that devices take. Raises InvalidInput."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise NotRegular(0, "it is no regular file")
    except OSError as error:
        raise InvalidInput(
            "FileUnreadable", f"cannot read {path}: {error.strerror}", "check the name"
        ) from None
    if found.st_size > MAX_OBJECT:
        os.close(fd)
        raise InvalidInput(
            "ObjectTooLarge",
            f"cannot put {path}: it has {found.st_size} bytes, and a device takes {MAX_OBJECT}",
            "make it smaller, or split it",
        )
    return os.fdopen(fd, "rb")


def _say_closed(common: Common, bucket: str) -> None:
    """Tell where the fleet's devices may not read the bucket."""
    home = common.home()
    try:
        known = Authority.load(home).state.objects
    except (HarmonyError, OSError):
        return  # no authority here: somebody else decides
    if bucket not in known:
        hint(f"devices may not read {bucket} yet: harmony server objects {bucket}")
