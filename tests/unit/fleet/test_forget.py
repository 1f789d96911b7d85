"""Records of devices that were withdrawn or forgotten: both only grow, whichever copy tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_fleet.authority.authority_store import Issued
from harmony_fleet.authority.claims import OPERATOR, Identity
from harmony_fleet.authority.shared import Record, _decode, _encode, merged
from harmony_fleet.commands.common import Common, forget_names, remember_names
from harmony_fleet.commands.forget import Known, _check, _left
from harmony_fleet.errors import Refused
from harmony_fleet.nats.consumer import Entry
from scores.keys import FLEET

KEY = Identity.make(OPERATOR)
USERS = st.sampled_from(["U1", "U2", "U3", "U4"])
LISTS = st.lists(USERS, unique=True, max_size=3)
ISSUED = st.none() | st.builds(Issued, user=USERS, before=LISTS.map(tuple))
RECORDS = st.none() | st.builds(
    Record,
    device=st.just("pi-01"),
    user=st.none() | USERS,
    before=LISTS,
    revoked=LISTS,
    forgotten=st.booleans(),
)


@given(ISSUED, RECORDS, st.sets(USERS))
def test_nothing_that_was_withdrawn_comes_back(
    local: Issued | None, there: Record | None, revoked: set[str]
) -> None:
    revoked = revoked | set(there.revoked if there is not None else ())
    made = merged("pi-01", local, there, revoked)
    assert made.user not in revoked
    assert not set(made.before) & revoked
    assert set(there.revoked if there is not None else ()) <= set(made.revoked)
    assert merged("pi-01", made.issued, made, revoked) == made, "it settles"


@given(ISSUED, RECORDS, st.sets(USERS))
def test_forgotten_is_who_was_and_has_nothing_since(
    local: Issued | None, there: Record | None, revoked: set[str]
) -> None:
    made = merged("pi-01", local, there, revoked)
    was = there is not None and there.forgotten
    assert made.forgotten == (was and made.user is None)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_record_of_a_forgotten_device_is_read_as_it_was_told(forgotten: bool) -> None:
    record = Record(device="pi-01", before=[], revoked=["U1"], forgotten=forgotten)
    data = _encode(KEY, record)
    assert (b"forgotten" in data) == forgotten
    assert _decode(KEY, Entry(FLEET, "device.pi-01", data, 1, None)) == record


@pytest.mark.parametrize(
    ("known", "code"),
    [
        (Known(None, [], []), ""),
        (Known(None, ["web"], []), ""),
        (Known(3.0, [], []), "DeviceHeard"),
        (Known(3.0, ["web"], ["3f2a"]), "DeviceHeard"),
        (Known(None, [], ["3f2a"]), "RunActive"),
    ],
)
def test_what_holds_it_up_and_what_force_leaves_undone(known: Known, code: str) -> None:
    if not code:
        _check("pi-01", known, force=False)
        assert all("left on" in words for words in _left("pi-01", known, ruled=True))
        return
    with pytest.raises(Refused) as caught:
        _check("pi-01", known, force=False)
    assert (caught.value.code, caught.value.exit_code) == (code, 5)
    _check("pi-01", known, force=True)
    left = list(_left("pi-01", known, ruled=False))
    assert any("there still" in words for words in left) == (known.heard is not None)
    assert any("writes its keys again" in words for words in left) == (known.heard is not None)
    assert any("upgrade cancel 3f2a" in words for words in left) == bool(known.runs)


def test_a_forgotten_name_is_completed_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    forget_names(Common(), ["pi-01"])
    remember_names(Common(), ["pi-01", "pi-02"], ["web"])
    forget_names(Common(), ["pi-01"])
    assert (tmp_path / "names.json").read_text() == '{"devices": ["pi-02"], "deployments": ["web"]}'
