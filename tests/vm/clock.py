"""Serves this machine's time over NTP on the loopback of the namespace that it is run in: python -I
-S clock.py

A virtual machine sets its clock by it, so that it has one that is synchronised and no need of the
world outside. Must import nothing but the standard library.
"""

import socket
import struct
import time

_SINCE_1900 = 2_208_988_800
_SERVER, _VERSION, _STRATUM = 4, 4, 2


def stamp(at: float) -> bytes:
    """A time as NTP writes it: seconds since 1900, and the fraction of one."""
    whole = int(at)
    return struct.pack(">II", whole + _SINCE_1900, int((at - whole) * 2**32))


def answer(asked: bytes, received: float) -> bytes:
    """The server's packet for a client's: what the client sent comes back as the origin."""
    now = time.time()
    head = struct.pack(
        ">BBbbII4s", _VERSION << 3 | _SERVER, _STRATUM, 6, -20, 0, 0, bytes([127, 0, 0, 1])
    )
    return head + stamp(received) + asked[40:48] + stamp(received) + stamp(now)


def main() -> None:
    """Answer for ever."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 123))
        while True:
            asked, client = server.recvfrom(512)
            if len(asked) >= 48:
                server.sendto(answer(asked, time.time()), client)


if __name__ == "__main__":
    main()
