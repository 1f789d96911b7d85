"""Whose word counts on the key that secrets are sealed for."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from harmony_fleet.authority import enroll, setup
from harmony_fleet.authority.authority_store import Authority
from harmony_fleet.authority.claims import USER, Identity
from harmony_fleet.authority.device_keys import DeviceKeys
from harmony_fleet.authority.enrolled import EnrollOptions
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.errors import HarmonyError
from harmony_fleet.manifests import signing_keys
from scores.secrets import proof, spell_key
from scores.status import SealingInfo

FIRST, SECOND = bytes(range(32)), bytes(range(1, 33))


class Home:
    """An operator's home with one enrolled device."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self.path.mkdir()
        wanted = ServerRequest("fleet", folder / "nats", ("localhost",))
        setup.init(self.path, setup.checked(wanted))
        signing_keys.new(self.path)
        self.user = self.issue(enroll.enroll)

    def issue(self, by: object) -> Identity:
        authority, asked = Authority.load(self.path), EnrollOptions(labels={"site": "home"})
        with authority.locked():
            if by is enroll.enroll:
                bundle = enroll.enroll(authority, self.path, "pi-01", asked)
            else:
                bundle = enroll.rotate(authority, self.path, "pi-01", asked, at_once=False)
        seed = bundle.credentials.partition("USER NKEY SEED-----\n")[2].partition("\n")[0]
        return Identity(seed.encode())

    def verdict(
        self, told: SealingInfo | None, device: str = "pi-01", *, by_hand: bool = False
    ) -> str:
        try:
            DeviceKeys(self.path).accept(device, told, by_hand=by_hand)
        except HarmonyError as error:
            return error.code
        return "accepted"


def told(user: Identity, key: bytes = FIRST, device: str = "pi-01") -> SealingInfo:
    signature = user.signed(proof(device, key))
    return SealingInfo(key=spell_key(key), user=user.public, signature=signature)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_key_counts_by_who_vouches_for_it(home: Home) -> None:
    stranger = Identity.make(USER)
    assert home.verdict(None) == "DeviceKeyMissing"
    assert home.verdict(SealingInfo(key="x")) == "DeviceKeyInvalid"
    assert home.verdict(SealingInfo(key=spell_key(FIRST))) == "DeviceKeyUnproven"
    assert home.verdict(told(stranger)) == "DeviceKeyUnproven"
    forged = told(stranger).model_copy(update={"user": home.user.public})
    assert home.verdict(forged) == "DeviceKeyUnproven"
    assert home.verdict(told(home.user, device="pi-02")) == "DeviceKeyUnproven"
    assert home.verdict(told(home.user), "pi-03") == "DeviceKeyUnproven"
    assert home.verdict(told(home.user)) == "accepted"
    assert home.verdict(SealingInfo(key=spell_key(FIRST))) == "accepted", "it is known by now"


def test_another_key_needs_newer_credentials_or_a_person(home: Home) -> None:
    assert home.verdict(told(home.user)) == "accepted"
    assert home.verdict(told(home.user, SECOND)) == "DeviceKeyChanged"
    newer = home.issue(enroll.rotate)
    assert home.verdict(told(newer, SECOND)) == "accepted"
    assert home.verdict(told(home.user)) == "DeviceKeyChanged", "the old ones vouch for nothing new"
    assert home.verdict(told(home.user), by_hand=True) == "accepted"


def test_no_text_that_a_server_has_signed_vouches_for_a_key(home: Home) -> None:
    """A client signs the UTF-8 form of the text that a server greets it with."""
    with pytest.raises(UnicodeDecodeError):
        proof("pi-01", FIRST).decode("utf-8")
    greeting = proof("pi-01", FIRST).decode("latin-1")
    signature = home.user.signed(greeting.encode())
    stolen = SealingInfo(key=spell_key(FIRST), user=home.user.public, signature=signature)
    assert home.verdict(stolen) == "DeviceKeyUnproven"


def test_labels_count_as_they_were_enrolled(home: Home) -> None:
    keys = DeviceKeys(home.path)
    keys.check_labels("pi-01", {"site": "home"})
    for device, labels in (("pi-01", {"role": "vault"}), ("pi-02", {"site": "home"})):
        with pytest.raises(HarmonyError) as caught:
            keys.check_labels(device, labels)
        assert caught.value.code == "LabelsUnproven"


def test_pins_that_cannot_be_read_are_no_pins(home: Home) -> None:
    home.verdict(told(home.user))
    (home.path / "fleet" / "device-keys.json").write_text("{")
    assert home.verdict(told(home.user)) == "DeviceKeysUnreadable"


def test_a_signature_that_is_none_vouches_for_nothing(home: Home) -> None:
    for signature in ("", "!", base64.b64encode(b"x").decode()):
        odd = SealingInfo(key=spell_key(FIRST), user=home.user.public, signature=signature)
        assert home.verdict(odd) == "DeviceKeyUnproven"
