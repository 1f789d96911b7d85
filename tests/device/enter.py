"""Joins control groups and gives the process a mount namespace of its own, then becomes another
program.

    python -I -S enter.py CGROUP_PROCS… -- PROGRAM ARGUMENT…

A program of its own, because a process must join a group before it becomes nspawn or a server, and
doing that between fork and exec of a test process with threads is not safe. It must import nothing
but the standard library: it runs without site-packages, for speed.
"""

import ctypes
import os
import sys

NSPAWN_RUNTIME = "/run/systemd/nspawn"
CLONE_NEWNS = 0x20000
MS_REC, MS_SLAVE = 0x4000, 0x80000


def own_nspawn_runtime() -> None:
    """Put a tmpfs on nspawn's runtime folder that only this process and its children see.

    nspawn wants a mount point there. In a mount namespace of its own nothing is left on the host,
    whatever dies. The namespace follows the host's unmounts, so that it holds no file system busy.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int, what: str) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), f"cannot {what}: {os.strerror(ctypes.get_errno())}")

    must(libc.unshare(CLONE_NEWNS), "make a mount namespace")
    must(
        libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None),
        "let the mount namespace follow the host",
    )
    os.makedirs(NSPAWN_RUNTIME, exist_ok=True)
    must(
        libc.mount(b"tmpfs", NSPAWN_RUNTIME.encode(), b"tmpfs", 0, b"mode=755"),
        f"mount {NSPAWN_RUNTIME}",
    )


def main(arguments: list[str]) -> None:
    """Join every group named before `--`, then become what is named after it."""
    end = arguments.index("--")
    for procs in arguments[:end]:
        with open(procs, "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    program = arguments[end + 1 :]
    if os.path.basename(program[0]) == "systemd-nspawn":
        own_nspawn_runtime()
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
