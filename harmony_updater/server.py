"""Serve the socket: who may speak, for how long and how much, and what answer a line gets.

Nothing about upgrades is decided here.
"""

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

from harmony_updater.journal import JournalError
from harmony_updater.protocol import LINE_LIMIT, Answer, Capabilities, Refused, decode, encode
from harmony_updater.upgrade import Updater

# SO_PEERGROUPS: the groups as they were at connect, so that a pid that is used again can't mislead.
_PEER_GROUPS = 59


def listen(path: str, group: int) -> socket.socket:
    """Take systemd's socket when it hands one over, else make one of root and the group."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        return socket.socket(fileno=3)
    if os.path.lexists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o117)
    listener.bind(path)
    os.chown(path, 0, group)
    listener.listen(64)
    return listener


class Places:
    """The connections that are served, `most` at once.

    Where all are taken, a new one gets the place of the one that has idled longest.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._busy: dict[socket.socket, bool] = {}  # who idles longest comes first

    def take(self, connection: socket.socket) -> bool:
        """Give it a place; False when all are taken and nobody idles."""
        with self._lock:
            if len(self._busy) >= self._most:
                idle = next((one for one, busy in self._busy.items() if not busy), None)
                if idle is None:
                    return False
                del self._busy[idle]
                _turn_away(idle)
            self._busy[connection] = False
            return True

    def begin(self, connection: socket.socket) -> bool:
        """Keep its place for it while its line is answered; False when another has it already."""
        with self._lock:
            if connection in self._busy:
                self._busy[connection] = True
            return connection in self._busy

    def end(self, connection: socket.socket) -> None:
        """Call it idle from now on, also while it reads its answer."""
        with self._lock:
            del self._busy[connection]
            self._busy[connection] = False

    def leave(self, connection: socket.socket) -> None:
        """Free its place, unless another has it already."""
        with self._lock:
            self._busy.pop(connection, None)


def _turn_away(connection: socket.socket) -> None:
    """Tell it, without waiting for it, that there is no place, and end what it says."""
    try:
        connection.settimeout(0)
        connection.send(encode(Refused("busy", "cannot serve you now: ask again").answer))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # it doesn't read, or is gone
        return


def serve(
    listener: socket.socket, updater: Updater, group: int, most: int = 16, patience: float = 30
) -> None:
    """Accept for ever. A line may take `patience` seconds, and so may its answer."""
    places = Places(most)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # no file descriptor is left
            time.sleep(0.1)
            continue
        if places.take(connection):
            talk = (connection, updater, group, places, patience)
            threading.Thread(target=_talk, args=talk, daemon=True).start()
        else:
            _turn_away(connection)
            connection.close()


def _talk(
    connection: socket.socket, updater: Updater, group: int, places: Places, patience: float
) -> None:
    try:
        connection.settimeout(patience)
        if not _admitted(connection, group):
            refused = Refused("forbidden", "cannot serve you: not in the socket's group")
            connection.sendall(encode(refused.answer))
            return
        for line in _lines(connection, patience):
            if not places.begin(connection):
                return
            try:
                answer = encode(_answer(line, updater))
            finally:
                places.end(connection)
            connection.settimeout(patience)
            connection.sendall(answer)
    except (OSError, JournalError) as error:
        logging.warning("cannot answer: %s", error)
    finally:
        places.leave(connection)
        connection.close()


def _lines(connection: socket.socket, patience: float) -> Iterator[bytes]:
    """Yield each line that is said within `patience` seconds; what has no end is the last one."""
    said, searched = bytearray(), 0
    until = time.monotonic() + patience
    while True:
        end = said.find(b"\n", searched, LINE_LIMIT)
        if end >= 0:
            yield bytes(said[: end + 1])
            del said[: end + 1]
            searched, until = 0, time.monotonic() + patience
        elif len(said) >= LINE_LIMIT or not (piece := _piece(connection, until)):
            break
        else:
            searched = len(said)
            said += piece
    if said:
        yield bytes(said[:LINE_LIMIT])


def _piece(connection: socket.socket, until: float) -> bytes:
    """Read what has come; TimeoutError when nothing has by then."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the line took too long")
    connection.settimeout(left)
    return connection.recv(LINE_LIMIT)


def _admitted(connection: socket.socket, group: int) -> bool:
    """Admit root, and a peer with the group as its own or a supplementary one."""
    _, user, own = struct.unpack(
        "iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    others = connection.getsockopt(socket.SOL_SOCKET, _PEER_GROUPS, 1024)
    return user == 0 or group in {own, *struct.unpack(f"{len(others) // 4}I", others)}


def _answer(line: bytes, updater: Updater) -> Answer:
    try:
        ask = decode(line)
        if ask.request:
            return Answer(ok=True, status=updater.request(ask.request))
        status = updater.journal.load(ask.attemptId) if ask.attemptId else Capabilities()
    except Refused as refused:
        return refused.answer
    if status is None:
        return Refused("unknown-attempt", "cannot find the attempt").answer
    return Answer(ok=True, status=status)
