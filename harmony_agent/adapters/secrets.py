"""`topology.secrets` on this device: the device's own key, and the sealed secrets below the state
directory.

The key never leaves this process, and no value is kept: a box is opened each time. PyNaCl is
imported where a box is opened or the key is told.
"""

# ruff: noqa: PLC0415 - PyNaCl is imported where it is used

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harmony_agent.adapters.posix.atomic import AtomicWrite, in_directory, make_directory
from harmony_agent.core.errors import Transient
from harmony_agent.topology.secrets import CannotOpen
from scores.canonical import canonical, read
from scores.manifest import validate
from scores.secrets import (
    KEY_BYTES,
    MAX_SEALED,
    SealedSecret,
    key_id,
    proof,
    spell_key,
    unpack,
)
from scores.status import SealingInfo

if TYPE_CHECKING:
    from nacl.public import PrivateKey

log = logging.getLogger(__name__)

KEY: Final = "device.key"
_FOLDER: Final = "secrets"
_CONTENT: Final = b"harmony/content"
"""Purpose of the key that content is digested with: at most 16 bytes."""


class LocalSecrets:
    """The secrets of `device`. `key` is the path of the device's key, made where it is missing."""

    def __init__(self, device: str, state_dir: str, key: str = "") -> None:
        self._device = device
        self._folder = Path(state_dir) / _FOLDER
        self._path = key or f"{state_dir}/{KEY}"
        self._private: bytes | None = None
        self._content_key = b""
        self._told: SealingInfo | None = None
        self._known: dict[str, SealedSecret] = {}

    # -- the device's key

    def _key(self) -> bytes:
        """The private half. Raises CannotOpen."""
        if self._private is None:
            try:
                self._private = read_key_file(self._path)
            except FileNotFoundError:
                self._private = self._make()
            except OSError as error:
                raise CannotOpen(f"cannot read {self._path}: {error.strerror}") from None
        return self._private

    def _make(self) -> bytes:
        try:
            return make_key_file(self._path)
        except OSError as error:
            raise CannotOpen(f"cannot make {self._path}: {error.strerror}") from None

    def _opener(self) -> PrivateKey:
        from nacl.public import PrivateKey

        return PrivateKey(self._key())

    def told(self, credentials: str) -> SealingInfo | None:
        """The public half as DeviceInfo has it, signed by the identity in the .creds file; None
        without a key.
        """
        if self._told is not None:
            return self._told  # new credentials come with a new process
        try:
            public = bytes(self._opener().public_key)
        except CannotOpen as error:
            log.warning(
                "%s: this device takes no secrets", error, extra={"reason": "DeviceKeyUnusable"}
            )
            return None
        user, signature = _vouched(credentials, proof(self._device, public))
        self._told = SealingInfo(key=spell_key(public), user=user, signature=signature)
        return self._told

    # -- values

    def value(self, name: str) -> bytes:
        """Open it. Raises Transient ``SecretMissing``."""
        try:
            return self._open(self._known.get(name))
        except CannotOpen as error:
            said = f"cannot use the secret {name}: {error}"
            raise Transient("SecretMissing", said, phase="Blocked", delay=30.0) from None

    def digest(self, content: bytes) -> str:
        """HMAC with SHA-256."""
        hasher = self.hasher()
        hasher.update(content)
        return f"sha256:{hasher.hexdigest()}"

    def hasher(self) -> Any:
        """A hash for content that is read in pieces. Raises Transient ``SecretMissing``."""
        if not self._content_key:
            try:
                key = self._key()
            except CannotOpen as error:
                raise Transient("SecretMissing", str(error), phase="Blocked", delay=30.0) from None
            self._content_key = hashlib.blake2b(key=key, person=_CONTENT, digest_size=32).digest()
        return hmac.new(self._content_key, digestmod=hashlib.sha256)

    def _open(self, found: SealedSecret | None) -> bytes:
        if found is None or found.removed:
            raise CannotOpen("there is none")
        from nacl.exceptions import CryptoError
        from nacl.public import SealedBox

        opener = self._opener()
        if found.key != key_id(bytes(opener.public_key)):
            raise CannotOpen("it is sealed for a key that this device doesn't have: set it again")
        try:
            packed = SealedBox(opener).decrypt(found.box())
            return unpack(packed, self._device, found.name, found.version)
        except (CryptoError, ValueError, TypeError):
            raise CannotOpen("its seal is broken, or it is for something else") from None

    # -- what is kept

    def load(self) -> Mapping[str, SealedSecret]:
        """Read what was kept. One that can't be read is asked for again."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                found = validate(SealedSecret, read(path.read_bytes(), 2 * MAX_SEALED))
            except (OSError, ValueError):
                log.warning("cannot read %s", path, extra={"reason": "SecretMissing"})
                continue
            self._known[found.name] = found
        return dict(self._known)

    def keep(self, found: SealedSecret) -> None:
        """Try it, and write it."""
        if not found.removed:
            self._open(found)
        if not self._folder.is_dir():
            make_directory(str(self._folder), 0o700)
        with (
            in_directory(str(self._folder)) as folder,
            AtomicWrite(folder, f"{found.name}.json") as file,
        ):
            file.write(canonical(found.wire()))
            file.replace()

    def use(self, found: SealedSecret) -> None:
        """Remember the sealed bytes."""
        self._known[found.name] = found


def read_key_file(path: str) -> bytes:
    """The key in a file that is not open to all. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if os.fstat(fd).st_mode & 0o007:
            raise OSError(0, "others may read it: chmod o= it, and have each secret set again")
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise OSError(0, "it is no key")
    return key


def make_key_file(path: str) -> bytes:
    """Make a key, 0600, durably; never in place of another one. Raises OSError."""
    key = os.urandom(KEY_BYTES)
    above, name = os.path.split(path)
    with in_directory(above) as folder, AtomicWrite(folder, name) as file:
        file.write(key)
        os.fchmod(file.fd, 0o600)
        file.sync()
        file.appear()
        file.settle()
    return key


def _vouched(credentials: str, message: bytes) -> tuple[str, str]:
    """The identity in a .creds file, and its signature; both empty without one."""
    if not credentials:
        return "", ""
    import nkeys

    try:
        text = Path(credentials).read_text(encoding="ascii")
        seed = text.partition("USER NKEY SEED-----\n")[2].partition("\n")[0].strip()
        pair = nkeys.from_seed(seed.encode("ascii"))  # type: ignore[no-untyped-call]
        signature = base64.b64encode(pair.sign(message)).decode("ascii")
        return pair.public_key.decode("ascii"), signature
    except Exception as error:  # the library's many errors: none of them may repeat the seed
        log.warning(
            "cannot sign with %s (%s)", credentials, type(error).__name__,
            extra={"reason": "DeviceKeyUnusable"},
        )  # fmt: skip
        return "", ""
