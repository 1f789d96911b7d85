"""One authority a home, on a real server: what was applied by hand and what the roster has stand
side by side, and neither takes the other's for its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.text import HEADER
from scores.keys import ACTUAL, DESIRED
from tests.integration.operator import Operator, Ran, a_file
from tests.integration.simfleet import SimFleet
from tests.natsserver import NatsServer

OTHER = "00000000-0000-4000-8000-000000000009"


class Site:
    """A home, two devices that answer, and the buckets."""

    def __init__(self, operator: Operator, fleet: SimFleet, store: Store) -> None:
        self.operator, self.fleet, self.store = operator, fleet, store

    async def __call__(self, *words: str, code: int = 0) -> Ran:
        ran = await self.operator(*words)
        assert ran.code == code, (words, ran.out, ran.err)
        return ran

    async def by_hand(self, name: str, *devices: str, content: str = "hi\n") -> None:
        score = a_file(name, content)
        chosen = [word for device in devices for word in ("-d", device)]
        await self("apply", self.operator.file(name, score), *chosen, "--wait")

    async def stands(self, key: str) -> tuple[bytes | None, str]:
        """The bytes, and whether a roster noted that they are its own."""
        entry = await self.store.get(DESIRED, key)
        return entry.value, "noted" if entry.note else "by hand"

    async def generation(self, key: str) -> int:
        value, _ = await self.stands(key)
        return int(json.loads(value or b"{}")["generation"])

    async def findings(self) -> dict[str, str]:
        told = (await self("fleet", "doctor", "-o", "json")).json["findings"]
        return {f"{item['device']}/{item['deployment']}": item["code"] for item in told}

    async def members(self) -> None:
        await self("fleet", "init")
        await self("fleet", "device", "add", "pi-01", "pi-02", "--class", "web")


@pytest.fixture(params=["signed", "unsigned"])
async def site(
    nats_server: NatsServer, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    operator = Operator(nats_server, tmp_path / "operator")
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with SimFleet(client, ["pi-01", "pi-02"]) as fleet:
            made = Site(operator, fleet, store)
            if request.param == "signed":
                await made("fleet", "key", "new")
            yield made


async def test_the_order_of_the_readme_collides_with_nothing(site: Site) -> None:
    """Applied by hand, then a roster that names the same: it goes on from the generation."""
    await site.by_hand("web", "pi-01")
    await site.by_hand("web", "pi-01", content="again\n")
    await site.members()
    path = site.operator.file("web", a_file("web", "by the roster\n"))
    await site("fleet", "deployment", "add", "web", "--file", path)
    await site("fleet", "apply", "--wait")
    await site("fleet", "verify")
    assert await site.generation("pi-01.web") == 3
    assert await site.generation("pi-02.web") == 1
    assert (await site("fleet", "apply", "-o", "json")).json["unchanged"] == 2


async def test_no_apply_of_a_roster_takes_off_what_was_applied_by_hand(site: Site) -> None:
    await site.by_hand("base", "pi-01", "pi-02")
    await site.by_hand("web", "pi-01")
    before = {key: await site.stands(key) for key in ("pi-01.base", "pi-02.base", "pi-01.web")}
    await site("fleet", "init")
    plan = (await site("fleet", "plan", "-o", "json")).json
    assert (plan["writes"], plan["purges"]) == ([], [])
    await site("fleet", "device", "add", "pi-01", "pi-02", "--class", "web")
    path = site.operator.file("other", a_file("other"))
    await site("fleet", "deployment", "add", "other", "--file", path)
    for words in (("apply", "--wait"), ("apply", "--take-over"), ("apply", "-d", "pi-01")):
        await site("fleet", *words)
    await site("fleet", "reconcile", code=1)
    assert {key: await site.stands(key) for key in before} == before
    by_hand = dict.fromkeys(["pi-01/base", "pi-02/base", "pi-01/web"], "applied-by-hand")
    assert await site.findings() == by_hand
    told = await site("fleet", "verify", code=1)
    assert "harmony fleet adopt DEVICE/DEPLOYMENT" in told.out
    await site("fleet", "device", "remove", "pi-02")
    await site("fleet", "apply", "--wait")
    assert await site.stands("pi-02.base") == before["pi-02.base"]
    assert await site.stands("pi-02.other") == (None, "by hand")
    await site("delete", "base", "-d", "pi-01", "--wait")
    await site("delete", "web", "-d", "pi-01", "--wait")
    found = await site.findings()
    assert {place for place in found if place.startswith("pi-01")} == set()


async def test_what_the_roster_wrote_goes_when_it_leaves_it(site: Site) -> None:
    await site.members()
    path = site.operator.file("web", a_file("web"))
    await site("fleet", "deployment", "add", "web", "--file", path)
    await site("fleet", "apply", "--wait")
    assert (await site.stands("pi-01.web"))[1] == "noted"
    await site("fleet", "deployment", "set", "web", "--select", "site=none")
    ran = await site("fleet", "apply", "-o", "json", code=5)
    assert ran.error["code"] == "PruneGuard"
    await site("fleet", "apply", "--allow-removals", "2", "--wait")
    assert await site.store.entries(DESIRED) == {}
    await site("fleet", "verify")


async def test_it_is_adopted_as_it_stands(site: Site) -> None:
    await site.by_hand("web", "pi-01", "pi-02")
    await site.by_hand("web", "pi-01", "pi-02", content="s3cret ${x} $${y}: #\n\ttab\n")
    await site.by_hand("base", "pi-01")
    await site.members()
    before = {key: (await site.stands(key))[0] for key in ("pi-01.web", "pi-02.web")}
    ran = await site("fleet", "adopt", "pi-01/web", "pi-02/web", "-o", "json")
    assert [(one["device"], one["generation"]) for one in ran.json["adopted"]] == [
        ("pi-01", 2),
        ("pi-02", 2),
    ]
    path = site.operator.home / "fleet" / "web.yaml"
    assert path.stat().st_mode & 0o077 == 0
    roster = RosterFile(site.operator.home).read()
    assert (roster.deployments[0].file, roster.deployments[0].select.device_class) == (
        "web.yaml",
        "web",
    )
    said = {key: site.fleet[key.partition(".")[0]].enforced["web"] for key in before}
    plan = (await site("fleet", "plan", "-o", "json")).json
    assert [(one["action"], one["generation"]) for one in plan["writes"]] == [("adopt", 2)] * 2
    await site("fleet", "apply", "--wait")
    assert {key: await site.stands(key) for key in before} == {
        key: (value, "noted") for key, value in before.items()
    }
    assert said == {key: site.fleet[key.partition(".")[0]].enforced["web"] for key in before}
    assert await site.findings() == {"pi-01/base": "applied-by-hand"}
    assert "nothing to adopt" in (await site("fleet", "adopt", "pi-01/web")).err
    await site("fleet", "deployment", "remove", "web")
    await site("fleet", "apply", "--allow-removals", "2", "--wait")
    assert set(await site.store.entries(DESIRED)) == {"pi-01.base"}


REFUSED: list[tuple[list[str], int, str, str]] = [
    (["pi-03/web"], 5, "NotInRoster", "harmony fleet device add pi-03 --class"),
    (["pi-01/none"], 2, "NothingDesired", "harmony get"),
    (["pi-01/web", "pi-02/web"], 5, "ContentDiffers", "harmony apply"),
    (["pi-01/web"], 5, "SelectsOthers", "harmony fleet device set pi-01 --label"),
    (["pi-01/web", "--select", "site=x"], 5, "SelectsOthers", "--label"),
    (["pi-01/theirs"], 5, "LineageChanged", "whose"),
    (["pi-01/taken"], 5, "AlreadyThere", "harmony fleet deployment set taken"),
    (["pi-01"], 2, "InvalidName", "DEVICE/DEPLOYMENT"),
]


async def test_an_adoption_that_is_refused_changes_nothing_and_says_what_comes_first(
    site: Site,
) -> None:
    await site.by_hand("web", "pi-01")
    await site.by_hand("web", "pi-02", content="another\n")
    await site.by_hand("taken", "pi-01")
    await site.members()
    path = site.operator.file("other", a_file("other"))
    await site("fleet", "deployment", "add", "taken", "--file", path, "--class", "none")
    wire = json.loads((await site.stands("pi-01.web"))[0] or b"")
    theirs = wire | {"deployment": "theirs", "lineage": OTHER}
    await site.store.put(DESIRED, "pi-01.theirs", json.dumps(theirs).encode(), 0)
    before = (site.operator.home / "fleet" / "roster.yaml").read_bytes()
    for words, code, name, hint in REFUSED:
        ran = await site("fleet", "adopt", *words, "-o", "json", code=code)
        assert (ran.error["code"], hint in ran.error["hint"]) == (name, True), ran.error
    assert (site.operator.home / "fleet" / "roster.yaml").read_bytes() == before
    assert not list((site.operator.home / "fleet").glob("*.json"))
    await site("fleet", "device", "set", "pi-01", "--label", "runs=web")
    path = site.operator.home / "fleet" / "web.yaml"
    path.write_text("something else\n")
    ran = await site("fleet", "adopt", "pi-01/web", "-o", "json", code=5)
    assert ran.error["code"] == "FileExists"
    path.unlink()
    await site("fleet", "adopt", "pi-01/web")
    assert RosterFile(site.operator.home).read().deployments[1].select.labels == {"runs": "web"}


async def test_what_the_roster_would_change_is_not_adopted(site: Site) -> None:
    unit = {
        "kind": "SystemdUnit",
        "name": "a.service",
        "content": "[Service]\nExecStart=/bin/true\n",
    }
    await site("apply", site.operator.file("unit", unit), "-d", "pi-01", "--wait")
    await site.members()
    await site("fleet", "device", "set", "pi-01", "--desired-state", "stopped", "--label", "a=b")
    ran = await site("fleet", "adopt", "pi-01/unit", "-o", "json", code=5)
    assert ran.error["code"] == "ContentDiffers"
    assert "harmony fleet device set pi-01 --enable" in ran.error["hint"]
    await site("fleet", "device", "set", "pi-01", "--enable", "--desired-state", "running")
    await site("fleet", "adopt", "pi-01/unit")
    await site("fleet", "apply", "--wait")
    assert await site.generation("pi-01.unit") == 1


async def test_an_adoption_that_was_cut_after_its_file_is_done_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.by_hand("web", "pi-01", "pi-02")
    await site.members()

    class Cut(BaseException):
        pass

    def cut(*_words: Any) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(RosterFile, "mutate", cut)
        with pytest.raises(Cut):
            await site.operator("fleet", "adopt", "pi-01/web", "pi-02/web")
    assert (site.operator.home / "fleet" / "web.yaml").exists()
    await site("fleet", "adopt", "pi-01/web", "pi-02/web")
    await site("fleet", "apply", "--wait")
    await site("fleet", "verify")


async def test_by_hand_nothing_of_the_roster_is_changed(site: Site) -> None:
    await site.members()
    await site("fleet", "device", "set", "pi-02", "--label", "site=away")
    path = site.operator.file("web", a_file("web"))
    await site("fleet", "deployment", "add", "web", "--file", path, "--select", "site=away")
    await site("fleet", "apply", "--wait")
    before = await site.stands("pi-02.web")
    changed = site.operator.file("web", a_file("web", "by hand\n"))
    for words in (
        ("apply", changed, "-d", "pi-02"),
        ("apply", changed, "-d", "pi-01", "-d", "pi-02"),
        ("apply", changed, "-d", "pi-02", "--dry-run"),
        ("apply", changed, "-d", "pi-02", "--take-over"),
        ("diff", changed, "-d", "pi-02"),
    ):
        ran = await site(*words, "-o", "json", code=5)
        assert ran.error["code"] == "ManagedByRoster", words
        assert "harmony fleet deployment set web --file FILE" in ran.error["hint"]
    ran = await site("delete", "web", "-d", "pi-02", "-o", "json", code=5)
    assert "harmony fleet deployment remove web" in ran.error["hint"]
    assert await site.stands("pi-02.web") == before
    assert (await site.stands("pi-01.web"))[0] is None
    await site.by_hand("web", "pi-01")  # the roster's web isn't for pi-01
    await site("fleet", "apply", "--wait")
    assert await site.findings() == {"pi-01/web": "applied-by-hand"}


async def test_what_left_the_roster_and_was_then_applied_by_hand_stays(site: Site) -> None:
    await site.members()
    path = site.operator.file("web", a_file("web"))
    await site("fleet", "deployment", "add", "web", "--file", path)
    await site("fleet", "apply", "--wait")
    await site("fleet", "deployment", "remove", "web")
    await site.by_hand("web", "pi-01", content="mine now\n")
    await site("fleet", "apply", "--allow-removals", "2", "--wait")
    assert set(await site.store.entries(DESIRED)) == {"pi-01.web"}
    assert await site.findings() == {"pi-01/web": "applied-by-hand"}


async def test_without_a_note_nothing_goes_also_where_desired_state_was_lost(site: Site) -> None:
    await site.by_hand("base", "pi-01")
    await site.members()
    path = site.operator.file("web", a_file("web"))
    await site("fleet", "deployment", "add", "web", "--file", path)
    await site("fleet", "apply", "--wait")
    await site.fleet.client.jetstream().purge_stream(f"KV_{DESIRED}")
    await site("fleet", "apply", "--wait")
    assert set(await site.store.entries(DESIRED)) == {"pi-01.web", "pi-02.web"}
    assert (
        json.loads((await site.store.get(ACTUAL, "pi-01.base")).value or b"")["phase"] != "Removed"
    )
    assert await site.findings() == {"pi-01/base": "applied-by-hand"}
    await site("delete", "base", "-d", "pi-01", "--wait")
    await site("fleet", "verify")


async def test_who_can_write_to_nats_gives_nothing_away(site: Site) -> None:
    await site.by_hand("base", "pi-01")
    await site.members()
    path = site.operator.file("web", a_file("web"))
    await site("fleet", "deployment", "add", "web", "--file", path)
    await site("fleet", "apply", "--wait")
    if not (site.operator.home / "fleet" / "keys").exists():
        return  # without keys whoever writes to NATS is believed in all
    stolen = (await site.store.get(DESIRED, "pi-01.web")).note
    for note in ("unsigned", stolen, "x y", " "):
        entry = await site.store.get(DESIRED, "pi-01.base")
        await site.store.put(DESIRED, "pi-01.base", entry.value or b"", entry.revision, note)
        plan = (await site("fleet", "plan", "-o", "json")).json
        assert plan["writes"] == [], note
    assert await site.findings() == {"pi-01/base": "applied-by-hand"}


async def test_a_home_that_only_pulled_the_roster_writes_by_its_lineage(
    site: Site, tmp_path: Path
) -> None:
    await site.by_hand("base", "pi-01")
    await site.members()
    await site("fleet", "apply")
    other = Operator(site.operator.server, tmp_path / "other")
    shutil.copytree(site.operator.home / "fleet", other.home / "fleet")
    path = other.file("base", a_file("base", "from the other\n"))
    ran = await other("apply", path, "-d", "pi-01", "--wait")
    assert ran.code == 0, ran.err
    lineage = (other.home / "lineage").read_text()
    assert lineage == (site.operator.home / "lineage").read_text()
    assert await site.generation("pi-01.base") == 2


async def test_a_home_of_before_goes_on_with_its_two_lineages(site: Site) -> None:
    """A roster of version 1 has a lineage of its own, and all of that lineage is the roster's."""
    folder = site.operator.home / "fleet"
    folder.mkdir(exist_ok=True)
    text = HEADER.format(lineage=OTHER).replace("version: 2", "version: 1")
    (folder / "roster.yaml").write_text(text)
    await site("fleet", "device", "add", "pi-01", "pi-02", "--class", "web")
    await site.by_hand("web", "pi-01")
    path = site.operator.file("web", a_file("web", "by the roster\n"))
    await site("fleet", "deployment", "add", "web", "--file", path)
    ran = await site("fleet", "apply", "-o", "json", code=3)
    assert ran.error["code"] == "LineageChanged"
    await site("fleet", "apply", "--take-over", "--wait")
    assert (await site.stands("pi-02.web"))[1] == "by hand", "it notes nothing"
    await site("fleet", "verify")
    ran = await site("apply", path, "-d", "pi-01", "-o", "json", code=3)
    assert ran.error["code"] == "LineageChanged"
    await site("fleet", "deployment", "remove", "web")
    await site("fleet", "apply", "--allow-removals", "2", "--wait")
    assert await site.store.entries(DESIRED) == {}
    await site.by_hand("base", "pi-01", "pi-02")
    assert "--take-over" in (await site("fleet", "adopt", "pi-01/base", "pi-02/base")).err
    await site("fleet", "apply", "--take-over", "--wait")
    await site("fleet", "verify")
    assert await site.generation("pi-01.base") == 2
