"""Seal a secret for one device, and sign it as manifests are signed. Pure but for the box's own
randomness.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from harmony_fleet.manifests.signing import Signing
from scores.secrets import DOMAIN, SealedSecret, key_id, pack
from scores.signatures import signed_bytes


def seal(public: bytes, device: str, name: str, version: int, value: bytes) -> SealedSecret:
    """A box that only who has the other half of `public` can open, the sealer included."""
    from nacl.public import PublicKey, SealedBox  # noqa: PLC0415 - only where something is sealed

    box = SealedBox(PublicKey(public)).encrypt(pack(device, name, version, value))
    return SealedSecret(
        device=device,
        name=name,
        version=version,
        key=key_id(public),
        sealed=base64.b64encode(box).decode("ascii"),
    )


def sign(found: SealedSecret, signing: Signing) -> SealedSecret:
    """The same with a signature by each active key."""
    message = signed_bytes(found.wire(), DOMAIN)
    return found.model_copy(update={"signatures": [key.signature(message) for key in signing.keys]})


def is_ours(value: Mapping[str, Any], signing: Signing) -> bool:
    """Return whether a key of the home signed it. Without a key it can't be told from ours."""
    own = {key.id: key for key in (*signing.keys, *signing.old)}
    if not own:
        return True
    message = signed_bytes(value, DOMAIN)
    return any(
        one.get("key") in own and own[one["key"]].signed(message) == one.get("signature")
        for one in value.get("signatures") or ()
    )
