"""Decides which connections to NATS must be TLS, from an address and from the configuration.
Connects nowhere.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def needs_tls(server: str, *, tls_ca: bool, credentials: bool, insecure: bool) -> bool:
    """Tell if nothing but TLS may be spoken to `server`, a URL as ``nats://host:4222``.

    The scheme or a CA asks for TLS. Credentials that would leave this machine need it too, unless
    `insecure` says that they may go in the clear. `insecure` overrides neither the scheme nor the
    CA.
    """
    url = urlsplit(server)
    if tls_ca or url.scheme == "tls":
        return True
    return credentials and not insecure and not is_loopback(url.hostname or "")


def is_loopback(host: str) -> bool:
    """Tell if `host` is this machine: an address of loopback, or the name localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
