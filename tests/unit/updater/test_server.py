"""The socket under fire: whatever comes is answered with a code or closed; the updater lives, its
memory is flat.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harmony_updater.protocol import LINE_LIMIT, Ask, encode
from harmony_updater.server import listen
from tests.unit.updater.world import ATTEMPT, World, alive, request

GROUP = 4_000_000_001 % 2**31  # a group that nobody is in
CAPABILITIES = b'{"v":1,"op":"capabilities"}\n'


class Served:
    """A server in a process of its own, and peers of it."""

    def __init__(self, root: Path, group: int, patience: float) -> None:
        self.world = World(root).make()
        self.name = f"harmony-updater-test-{uuid.uuid4()}"
        arguments = [
            sys.executable,
            "-m",
            "tests.unit.updater.serving",
            str(root),
            self.name,
            str(group),
            str(patience),
        ]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def connect(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(30)
        try:
            peer.connect(f"\0{self.name}")
        except OSError:
            peer.close()
            raise
        return peer

    def say(self, line: bytes) -> bytes:
        """All that is answered to it by the time that the connection is closed."""
        with self.connect() as peer:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(line)
                peer.shutdown(socket.SHUT_WR)
            return everything(peer)

    def ask(self, line: bytes) -> dict[str, Any]:
        return dict(json.loads(self.say(line)))

    def rss(self) -> int:
        """KiB of memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def serves(self) -> bool:
        """Whether it answers, as soon as a place is free."""
        for _ in range(100):
            with contextlib.suppress(BlockingIOError):  # as many wait as may
                if self.say(CAPABILITIES).startswith(b'{"v":1,"ok":true'):
                    return True
            time.sleep(0.05)
        return False

    def close(self) -> bytes:
        """Its last words."""
        self.process.kill()
        return self.process.communicate()[1]


def everything(peer: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := peer.recv(65_536):
            said += piece
    return said


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, os.getgid(), 0.5)
    yield made
    assert alive(made.process.pid)
    assert b"Traceback" not in made.close()


def test_the_contract_s_three_requests_are_answered(served: Served) -> None:
    assert served.ask(CAPABILITIES)["status"] == {"protocol": 1, "operations": ["AptFullUpgradeV1"]}
    asked = encode(Ask(v=1, op="AptFullUpgradeV1", request=request()))
    assert served.ask(asked)["status"]["phase"] == "preflight"
    status = served.ask(encode(Ask(v=1, op="status", attemptId=ATTEMPT)))
    assert status == served.ask(asked)
    assert status["status"]["attemptId"] == ATTEMPT
    unknown = served.ask(encode(Ask(v=1, op="status", attemptId="unknown")))
    assert unknown["error"]["code"] == "unknown-attempt"
    other = encode(Ask(v=1, op="AptFullUpgradeV1", request=request(device="pi-02")))
    assert served.ask(other)["error"]["code"] == "wrong-device"


def test_a_connection_carries_many_lines_one_answer_each(served: Served) -> None:
    lines = served.say(CAPABILITIES * 50 + b"nonsense\n" + CAPABILITIES).splitlines()
    assert len(lines) == 52
    assert [json.loads(line)["ok"] for line in lines] == [True] * 50 + [False, True]


@pytest.mark.parametrize(
    "line",
    [
        b"\n", b"\r\n", b"\0\n", bytes(range(256)) + b"\n", b"\xff" * 70_000, b"[" * 65_000 + b"\n",
        b'{"v":1,"op":"status","attemptId":"' + b"a" * 65_000 + b'"}\n', b"x" * 1_000_000 + b"\n", b"x" * 1_000_000,
        b'{"v":1,"op":"capabilities","more":1}\n', b'{"v":1,"op":7}\n', b'{"v":[],"op":"capabilities"}\n',
    ],
    ids=range(12),
)  # fmt: skip
def test_what_is_no_request_is_answered_with_a_code_or_closed(served: Served, line: bytes) -> None:
    said = served.say(line)
    assert all(
        json.loads(answer)["error"]["code"] in {"bad-request", "unsupported"}
        for answer in said.splitlines()
    )
    assert len(line) > LINE_LIMIT or said
    assert served.serves()


def test_the_longest_line_is_read_and_a_longer_one_ends_the_connection(served: Served) -> None:
    longest = CAPABILITIES[:-1].ljust(LINE_LIMIT - 1) + b"\n"
    assert [json.loads(line)["ok"] for line in served.say(longest + CAPABILITIES).splitlines()] == [
        True,
        True,
    ]
    assert (
        len(served.say(CAPABILITIES[:-1].ljust(LINE_LIMIT) + b"\n" + CAPABILITIES).splitlines())
        <= 1
    )


def test_half_a_line_and_silence_are_closed_in_time(served: Served) -> None:
    for half in (b"", b'{"v":1,"op":"capab'):
        with served.connect() as peer:
            peer.sendall(half)
            since = time.monotonic()
            assert everything(peer) == b""
            assert time.monotonic() - since < 20


def test_a_peer_that_does_not_read_is_closed(served: Served) -> None:
    with served.connect() as peer:
        peer.settimeout(0.2)
        with contextlib.suppress(OSError):
            while True:
                peer.sendall(CAPABILITIES * 1000)
        assert served.serves()


def answers(peers: list[socket.socket]) -> list[str]:
    """The code that each is answered, `ok`, or nothing."""
    said = [everything(peer) for peer in peers]
    return [
        ("ok" if b'"ok":true' in one else json.loads(one)["error"]["code"]) if one else ""
        for one in said
    ]


def test_places_are_bounded_and_the_newest_get_them(served: Served) -> None:
    peers = [served.connect() for _ in range(40)]
    try:
        for peer in peers:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(CAPABILITIES)
                peer.shutdown(socket.SHUT_WR)
        told = answers(peers)
        assert told[-16:] == ["ok"] * 16
        assert set(told[:-16]) <= {"busy", "ok"}
    finally:
        for peer in peers:
            peer.close()
    assert served.serves()


def test_peers_that_drip_keep_nobody_out_and_are_told_so(tmp_path: Path) -> None:
    served = Served(tmp_path, os.getgid(), 30)
    peers = [served.connect() for _ in range(16)]
    try:
        for _ in range(20):
            for peer in peers:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    peer.send(b" ")
            assert served.ask(CAPABILITIES)["ok"]
        with contextlib.ExitStack() as stack:
            more = [stack.enter_context(served.connect()) for _ in range(16)]
            assert answers(peers) == ["busy"] * 16
            assert [one.send(CAPABILITIES) for one in more] == [len(CAPABILITIES)] * 16
            assert [one.recv(1000)[:20] for one in more] == [b'{"v":1,"ok":true,"st'] * 16
    finally:
        for peer in peers:
            peer.close()
        served.close()


def test_a_line_has_its_time_as_a_whole_and_not_for_each_byte(served: Served) -> None:
    with served.connect() as peer:
        since = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - since < 10:
                peer.sendall(b" ")
                time.sleep(0.1)
        assert time.monotonic() - since < 5  # of a patience of half a second


def test_a_peer_that_reads_no_answer_keeps_nobody_out(tmp_path: Path) -> None:
    served = Served(tmp_path, os.getgid(), 30)
    peers = [served.connect() for _ in range(16)]
    try:
        for peer in peers:
            peer.settimeout(0.1)
            with contextlib.suppress(OSError):
                while True:
                    peer.sendall(CAPABILITIES * 1000)
        assert served.serves()
    finally:
        for peer in peers:
            peer.close()
        served.close()


def test_a_thousand_connections_leave_it_alive_and_its_memory_flat(served: Served) -> None:
    def fire() -> None:
        for batch in range(10):
            peers = []
            for number in range(100):
                with contextlib.suppress(BlockingIOError, TimeoutError):
                    peers.append(served.connect())
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        peers[-1].sendall(
                            [b"", b"x" * 70_000, b'{"v":1', bytes(range(256)), CAPABILITIES][
                                number % 5
                            ]
                        )
            for peer in peers:
                peer.close()
            assert batch >= 0

    fire()
    assert served.serves()
    warm = served.rss()
    fire()
    assert served.serves()
    assert served.rss() < warm + 4_096
    threads = len(os.listdir(f"/proc/{served.process.pid}/task"))
    assert threads <= 2 + 16


def test_a_corrupt_journal_closes_the_connection_and_changes_nothing(served: Served) -> None:
    path = served.world.state / "system-upgrades" / f"{ATTEMPT}.json"
    path.write_text("{")
    assert served.say(encode(Ask(v=1, op="status", attemptId=ATTEMPT))) == b""
    assert served.say(encode(Ask(v=1, op="AptFullUpgradeV1", request=request()))) == b""
    assert path.read_text() == "{"
    assert served.serves()


def _as(user: int, group: int, groups: list[int], served: Served) -> dict[str, Any]:
    """What a peer of another user is answered; only root can be another user."""
    code = (
        "import os,socket,sys\n"
        "name,user,group,*groups=sys.argv[1:]\n"
        "os.setgroups([int(g) for g in groups]); os.setgid(int(group)); os.setuid(int(user))\n"
        "s=socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(chr(0)+name)\n"
        'try: s.sendall(b\'{"v":1,"op":"capabilities"}\\n\')\n'
        "except BrokenPipeError: pass\n"  # it may be refused before it speaks
        "print(s.recv(1000).decode())\n"
    )
    arguments = [sys.executable, "-c", code, served.name, str(user), str(group), *map(str, groups)]
    return dict(
        json.loads(subprocess.run(arguments, check=True, capture_output=True, timeout=20).stdout)
    )


def test_only_root_and_the_group_are_admitted(tmp_path: Path) -> None:
    served = Served(tmp_path, GROUP, 0.5)
    try:
        if os.getuid() == 0:
            assert served.ask(CAPABILITIES)["ok"]
            assert _as(65_534, 65_534, [], served)["error"]["code"] == "forbidden"
            assert _as(65_534, 65_534, [1, 2, 3], served)["error"]["code"] == "forbidden"
            assert _as(65_534, GROUP, [], served)["ok"]
            assert _as(65_534, 65_534, [1, GROUP, 3], served)["ok"]
        else:
            assert served.ask(CAPABILITIES)["error"]["code"] == "forbidden"
    finally:
        served.close()


def test_the_socket_of_systemd_is_used_when_it_hands_one_over() -> None:
    code = (
        "import os,socket\nfrom harmony_updater.server import listen\n"
        "s=socket.socket(socket.AF_UNIX); s.bind(chr(0)+'x'+os.urandom(8).hex()); s.listen()\n"
        "name=s.getsockname(); file=s.detach(); file==3 or os.dup2(file, 3)\n"
        "os.environ['LISTEN_PID']=str(os.getpid()); os.environ['LISTEN_FDS']='1'\n"
        "with listen('/nowhere', 0) as listener: print(listener.fileno(), listener.getsockname() == name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "3 True\n"


def test_alone_it_makes_its_own_socket_of_mode_0660(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "chown", lambda _, user, group: owners.append((user, group)))
    monkeypatch.setenv("LISTEN_PID", "1")
    path = tmp_path / "updater.sock"
    before = os.umask(0o022)
    try:
        for _ in range(2):  # the second time over the first's leavings
            with listen(str(path), GROUP) as listener:
                assert listener.getsockname() == str(path)
                assert path.stat().st_mode & 0o777 == 0o660
    finally:
        os.umask(before)
    assert owners == [(0, GROUP)] * 2
