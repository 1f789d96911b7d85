"""Accounts of this machine: names, memberships, and ranges of subordinate ids."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from harmony_agent.topology.containers import Subordinates


def user_name(uid: int) -> str:
    """The user's name; the number in decimal where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def missing_users(names: Sequence[str]) -> list[str]:
    """List those of `names` that no user has."""
    return [name for name in names if not _is_there(pwd.getpwnam, name)]


def missing_groups(names: Sequence[str]) -> list[str]:
    """List those of `names` that no group has."""
    return [name for name in names if not _is_there(grp.getgrnam, name)]


def not_joined(names: Sequence[str], uid: int) -> list[str]:
    """Those of the groups `names` that the user isn't a member of, by the device's files."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return list(names)
    held = set(os.getgrouplist(user.pw_name, user.pw_gid))
    return [name for name in names if grp.getgrnam(name).gr_gid not in held]


def subordinates(user: str, folder: Path = Path("/etc")) -> Subordinates:
    """Count the subordinate ids of `user`: the smaller of users' and groups'."""
    return Subordinates(user, min(_count(folder / name, user) for name in ("subuid", "subgid")))


def _count(path: Path, user: str) -> int:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return 0
    names, found = {user}, 0
    with suppress(KeyError):
        names.add(str(pwd.getpwnam(user).pw_uid))
    for line in lines:
        owner, _, numbers = line.partition(":")
        count = numbers.rpartition(":")[2]
        if owner in names and count.isdecimal():
            found += int(count)
    return found


def _is_there(look: Callable[[str], object], name: str) -> bool:
    try:
        look(name)
    except KeyError:
        return False
    return True
