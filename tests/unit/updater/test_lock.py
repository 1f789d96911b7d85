"""The mutation lock: one holder, named; its kernel half goes with the process, its name stays until
it has ended.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harmony_updater.lock import MutationLock

_HOLD = """
import sys, time
from harmony_updater.lock import MutationLock
lock = MutationLock(sys.argv[1], sys.argv[2])
print(lock.acquire(sys.argv[3]), flush=True)
time.sleep(60)
"""


def _holding(folder: Path, kind: str, name: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", _HOLD, str(folder), kind, name]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "None\n"
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_it_is_taken_again_by_whoever_holds_it_and_written_once(tmp_path: Path) -> None:
    lock = MutationLock(str(tmp_path), "system-upgrade")
    assert lock.acquire("a") is None
    written = os.stat(tmp_path / "mutation.holder").st_ino
    assert lock.acquire("a") is None
    assert os.stat(tmp_path / "mutation.holder").st_ino == written
    lock.release()
    assert lock.acquire("b") is None
    lock.release()


def test_another_process_is_named_and_its_death_does_not_free_its_transaction(
    tmp_path: Path,
) -> None:
    holder = _holding(tmp_path, "agent-upgrade", "7")
    lock = MutationLock(str(tmp_path), "system-upgrade")
    try:
        assert lock.acquire("a") == "agent-upgrade 7"
    finally:
        _end(holder)
    assert lock.acquire("a") == "agent-upgrade 7, which has not ended"
    lock.release()  # it isn't ours: this must not free it
    assert lock.acquire("a") == "agent-upgrade 7, which has not ended"
    theirs = MutationLock(str(tmp_path), "agent-upgrade")  # it comes back, and can go on
    assert theirs.acquire("7") is None
    theirs.release()
    assert lock.acquire("a") is None
    lock.release()


def test_our_own_is_taken_up_again_after_a_crash(tmp_path: Path) -> None:
    _end(_holding(tmp_path, "system-upgrade", "a"))
    lock = MutationLock(str(tmp_path), "system-upgrade")
    assert lock.acquire("b") == "system-upgrade a, which has not ended"
    assert lock.acquire("a") is None
    lock.release()
    assert (tmp_path / "mutation.holder").read_text() == ""


def test_the_kernel_lock_goes_with_a_holder_that_never_named_itself(tmp_path: Path) -> None:
    hold = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,2); print(flush=True); time.sleep(60)"
    arguments = [sys.executable, "-c", hold, str(tmp_path / "mutation.lock")]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    lock = MutationLock(str(tmp_path), "system-upgrade")
    try:
        assert lock.acquire("a") == "a process that gave no name"
    finally:
        _end(process)
    assert lock.acquire("a") is None
    lock.release()


def test_a_name_that_cannot_be_written_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    lock = MutationLock(str(tmp_path), "system-upgrade")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            lock.acquire("a")
    assert lock.acquire("a") is None
    lock.release()


def test_what_it_starts_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = MutationLock(str(tmp_path), "system-upgrade")
    lock.acquire("a")
    assert not os.get_inheritable(lock._file)
    lock.release()
