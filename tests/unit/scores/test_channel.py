"""Which connections must be TLS: by scheme, by CA, by where credentials would go."""

from __future__ import annotations

import pytest

from scores.channel import is_loopback, needs_tls

LOOPBACK = ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST", "localhost."]
ELSEWHERE = [
    "nats.lan",
    "10.0.0.1",
    "127.1",
    "0x7f000001",
    "localhost.example.org",
    "0.0.0.0",
    "fe80::1",
    "",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_another_machine_as_far_as_anybody_knows(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("server", "tls_ca", "credentials", "insecure", "needed"),
    [
        ("nats://nats.lan:4222", False, False, False, False),
        ("nats.lan:4222", False, False, False, False),
        ("tls://nats.lan:4222", False, False, False, True),
        ("TLS://nats.lan:4222", False, False, False, True),
        ("tls://127.0.0.1:4222", False, False, True, True),
        ("nats://127.0.0.1:4222", True, False, True, True),
        ("nats://nats.lan:4222", False, True, False, True),
        ("nats.lan:4222", False, True, False, True),
        ("nats.lan", False, True, False, True),
        ("nats://me:pw@nats.lan:4222", False, True, False, True),
        ("nats://localhost@nats.lan:4222", False, True, False, True),
        ("nats://nats.lan:4222", False, True, True, False),
        ("nats://127.0.0.1:4222", False, True, False, False),
        ("nats://[::1]:4222", False, True, False, False),
        ("nats://[fd00::1]:4222", False, True, False, True),
        ("nats://me:pw@localhost:4222", False, True, False, False),
    ],
)
def test_where_tls_is_needed(
    server: str, tls_ca: bool, credentials: bool, insecure: bool, needed: bool
) -> None:
    assert needs_tls(server, tls_ca=tls_ca, credentials=credentials, insecure=insecure) is needed
