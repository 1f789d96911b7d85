"""Units in memory: a small service manager with a unit directory, as `topology.units` asks for.

It understands of a unit file: Type, RemainAfterExit, ExecStart, ExecReload, ConditionPathExists,
AssertPathExists, Restart, Requires and whether there is an [Install]. ExecStart is `/bin/true`
(ends well), `/bin/false` (fails) or anything else (stays). Like systemd it works from what it
loaded last, and forgets what is inactive and not held. Every change is a line of `calls`, so that a
test sees that a second pass does nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import LogLine
from harmony_agent.topology.units import MASK, OTHER, RUNNING, UNREADABLE, Refusal, Unit

VENDOR = "/usr/lib/units"


@dataclass
class Loaded:
    """A unit in the manager's memory: the files that it was loaded from, and its state."""

    fragment: str = ""
    text: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    file_state: str = ""
    load_state: str = "not-found"
    active: str = "inactive"
    invocation: str = ""
    result: str = "success"
    job: str = ""
    condition: bool | None = None
    assertion: bool | None = None
    rested: bool = False
    ended: bool = False
    exit_status: int = 0
    restarts: int = 0
    since: int = 0
    began: int = 0
    changed: int = 0


class FakeUnits:
    """Implements `Units`. The attributes are for tests: what is on disk, what the vendor brings,
    what happened.
    """

    def __init__(self, directory: str = "/units") -> None:
        self._directory = directory
        self.disk: dict[str, str] = {}
        """Place -> content, `link:…` or `other`."""
        self.vendor: dict[str, str] = {}
        self.kept: dict[str, dict[str, str]] = {}
        self.enabled: set[str] = set()
        self.enabled_runtime: set[str] = set()
        self.masked_runtime: set[str] = set()
        self.masked_for_all: set[str] = set()
        self.enabled_for_all: set[str] = set()
        self.paths: set[str] = set()
        """Paths that exist, for conditions."""
        self.loaded: dict[str, Loaded] = {}
        self.held: set[str] = set()
        self.calls: list[str] = []
        self.reloads = 0
        self.results: dict[str, str] = {}
        """name -> the result that its next job has, instead of being done."""
        self.journal: dict[str, list[str]] = {}
        self.log: dict[str, int] = {}
        """name -> when a one-shot last ended well, as the log tells"""
        self.expected: set[str] = set()
        self.hears: Callable[[str], None] = lambda _name: None
        self.closed = False
        self.closed_target = "/root/closed.service"
        """A file that nobody but root may read."""
        self.boot = "boot"
        self._now = 1_700_000_000_000_000

    # What a test does by hand.

    def crash(self) -> None:
        """The agent's connection ends: nothing is held any more."""
        self.held.clear()
        self._forget()

    def exits(self, name: str, *, code: int = 0) -> None:
        """The main process of an active or activating unit ends by itself."""
        loaded = self.loaded[name]
        loaded.ended = True
        loaded.exit_status = code
        self._enter(loaded, "failed" if code else "inactive", "exit-code" if code else "success")
        if not code:
            self.log[name] = self._now
        if self._value(loaded.text, "Restart") in ("always", "on-failure") and (
            code or self._value(loaded.text, "Restart") == "always"
        ):
            loaded.restarts += 1
            self._enter(loaded, "activating", "exit-code" if code else "success")
        self._forget()

    def comes_up(self, name: str) -> None:
        """A unit that was activating is active."""
        self.loaded[name].job = ""
        self._enter(self.loaded[name], "active")

    # Looking.

    @property
    def directory(self) -> str:
        return self._directory

    async def list_units(self, names: Collection[str]) -> Mapping[str, Unit]:
        self.held &= set(names)
        found = {name: await self.look(name) for name in names}
        return {name: unit for name, unit in found.items() if unit is not None}

    async def look(self, name: str) -> Unit | None:
        self._forget()
        files = {
            place: self._shown(text) for place, text in self.disk.items() if self._of(place, name)
        }
        kept = frozenset(self.kept.get(name, ()))
        linked = name in self.enabled
        enabled_by = (
            f"/etc/{name}" if name in self.enabled_for_all and name not in self.enabled else ""
        )
        refusal = self._refusal(name)
        state = "" if refusal else self._file_state(name)
        loaded = self.loaded.get(name) or self._load(name)
        if not (
            files
            or kept
            or linked
            or state
            or refusal
            or loaded.load_state != "not-found"
            or loaded.active != "inactive"
        ):
            return None
        if "@." in name:
            return Unit(
                name,
                files,
                kept,
                linked,
                self._links(name),
                enabled_by,
                state,
                refusal,
                load_state="",
            )
        text = loaded.text
        service = name.endswith(".service")
        return Unit(
            name=name,
            files=files,
            backups=kept,
            linked=linked,
            links=self._links(name),
            enabled_by=enabled_by,
            unit_file_state=state,
            refusal=refusal,
            load_state=loaded.load_state,
            active_state=loaded.active,
            sub_state=loaded.active,
            fragment=loaded.fragment,
            loaded_dropins=tuple(
                f"{self._directory}/{place}" for place in sorted(loaded.files) if "/" in place
            ),
            loaded_file_state=loaded.file_state,
            stale=loaded.load_state != "not-found" and loaded.files != self._files(name),
            condition=loaded.condition,
            assertion=loaded.assertion,
            rested=loaded.rested,
            invocation=loaded.invocation,
            result=loaded.result,
            job=loaded.job,
            oneshot=service
            and self._value(text, "Type") == "oneshot"
            and self._value(text, "RemainAfterExit") != "yes",
            ended=loaded.ended,
            exit_status=loaded.exit_status,
            timed=any(self._starts(timer, name) for timer in self.loaded),
            can_reload=self._value(text, "ExecReload") != "",
            main_pid=4711 if service and loaded.active in RUNNING else 0,
            restarts=loaded.restarts,
            since=loaded.since,
            began=loaded.began,
            changed=loaded.changed,
        )

    def _starts(self, timer: str, name: str) -> bool:
        """Return whether the timer, which is loaded, starts the unit."""
        named = self._value(self.loaded[timer].text, "Unit")
        return timer.endswith(".timer") and (named or f"{timer[:-6]}.service") == name

    # Files.

    async def write(self, name: str, place: str, content: str, keep: str) -> None:
        self._aside(name, place, keep)
        self.calls.append(f"write {place}")
        self.disk[place] = content

    async def remove(self, name: str, place: str, keep: str) -> None:
        self._aside(name, place, keep)
        self.calls.append(f"remove {place}")
        self.disk.pop(place, None)

    async def keep(self, name: str, place: str, keep: str) -> None:
        self._aside(name, place, keep)

    async def relink(self, name: str, links: Mapping[str, str]) -> None:
        self.calls.append(f"relink {name}")
        for among, path in self._link_places(name):
            (among.add if path in links else among.discard)(name)
        top = links.get(f"{self._directory}/{name}")
        if top is not None:
            self.disk[name] = f"link:{top}"
        elif self.disk.get(name, "").startswith("link:"):
            del self.disk[name]

    def _link_places(self, name: str) -> list[tuple[set[str], str]]:
        wants = f"default.target.wants/{name}"
        return [
            (self.enabled, f"{self._directory}/{wants}"),
            (self.enabled_runtime, f"/run/units/{wants}"),
            (self.masked_runtime, f"/run/units/{name}"),
        ]

    def _links(self, name: str) -> dict[str, str]:
        links = {
            path: f"{VENDOR}/{name}" for among, path in self._link_places(name) if name in among
        }
        stands = self.disk.get(name, "")
        return links | (
            {f"{self._directory}/{name}": stands[5:]} if stands.startswith("link:") else {}
        )

    async def restore(self, name: str, place: str, former: str) -> None:
        self.calls.append(f"restore {place}")
        self.disk[place] = former if former.startswith("link:") else self.kept[name][former]

    async def drop_backups(self, name: str) -> None:
        self.calls.append(f"drop-kept {name}")
        self.kept.pop(name, None)

    def _aside(self, name: str, place: str, keep: str) -> None:
        if keep:
            assert self._shown(self.disk[place]) == keep
            self.calls.append(f"keep {place}")
            self.kept.setdefault(name, {})[keep] = self.disk[place]

    # Links and reloads.

    def batch_begin(self, names: Collection[str]) -> None:
        self.expected |= set(names)

    def batch_end(self, name: str) -> None:
        self.expected.discard(name)

    async def reload(self, name: str) -> None:
        self.batch_end(name)
        self.calls.append("reload")
        self.reloads += 1
        for known, loaded in list(self.loaded.items()):
            fresh = self._load(known)
            loaded.fragment, loaded.text, loaded.files = fresh.fragment, fresh.text, fresh.files
            loaded.file_state, loaded.load_state = fresh.file_state, fresh.load_state

    async def enable(self, name: str) -> None:
        self._refuse(name)
        self.calls.append(f"enable {name}")
        if not self._file_state(name):
            raise Transient("UnitNotFound", f"cannot enable {name}", phase="Blocked")
        if "[Install]" in self._load(name).text:
            self.enabled.add(name)

    async def disable(self, name: str, *, runtime: bool) -> None:
        self._refuse(name)
        self.calls.append(f"disable {name}")
        self.enabled.discard(name)
        if runtime:
            self.enabled_runtime.discard(name)

    async def mask(self, name: str) -> None:
        self.calls.append(f"mask {name}")
        if self.disk.get(name, MASK) != MASK:
            raise Transient("SystemdRefused", f"cannot mask {name}: a file exists")
        self.disk[name] = MASK

    async def unmask(self, name: str, *, runtime: bool) -> bool:
        self.calls.append(f"unmask {name}")
        if runtime:
            masked = name in self.masked_runtime
            self.masked_runtime.discard(name)
            return masked
        return self.disk.pop(name, "") == MASK if self.disk.get(name) == MASK else False

    # Jobs.

    async def start(self, name: str) -> str:
        self.calls.append(f"start {name}")
        self.held.add(name)
        loaded = self.loaded.setdefault(name, self._load(name))
        if loaded.load_state == "not-found":
            loaded = self.loaded[name] = self._load(name)
        if loaded.load_state == "masked":
            raise Transient("UnitMasked", f"{name} is masked", phase="Blocked")
        if loaded.load_state == "not-found":
            raise Transient("UnitNotFound", f"cannot find {name}", phase="Blocked")
        if loaded.load_state == "bad-setting":
            raise Transient("UnitInvalid", f"{name} has a bad setting")
        if loaded.active in RUNNING:
            return "done"
        if name in self.results:
            return self.results.pop(name)
        return self._begin(name, loaded)

    def _begin(self, name: str, loaded: Loaded) -> str:
        condition, assertion = (
            self._value(loaded.text, key) for key in ("ConditionPathExists", "AssertPathExists")
        )
        loaded.rested = False
        loaded.condition = not condition or condition in self.paths
        loaded.assertion = not assertion or assertion in self.paths
        if not loaded.condition:
            return "skipped"
        if not loaded.assertion:
            return "assert"
        self._now += 1
        loaded.invocation = f"{self._now:032x}"
        loaded.began = self._now
        loaded.ended = False
        command = self._value(loaded.text, "ExecStart")
        if command == "/bin/false":
            loaded.ended, loaded.exit_status = True, 1
            self._enter(loaded, "failed", "exit-code")
            return "failed"
        if self._value(loaded.text, "Type") == "oneshot" and command != "/bin/true":
            loaded.job = "start"
            self._enter(loaded, "activating")
            return ""
        stays = command != "/bin/true" or self._value(loaded.text, "RemainAfterExit") == "yes"
        loaded.ended = not stays
        self._enter(loaded, "active" if stays else "inactive")
        if not stays:
            self.log[name] = self._now
        return "done"

    async def stop(self, name: str) -> str:
        self.calls.append(f"stop {name}")
        loaded = self.loaded[name]
        loaded.job = ""
        if name in self.results:
            return self.results.pop(name)
        if self._value(loaded.text, "ExecStop") == "hang":
            self._enter(loaded, "deactivating")
            loaded.job = "stop"
            return ""
        self._enter(loaded, "inactive")
        self._forget()
        return "done"

    async def restart(self, name: str) -> str:
        self.calls.append(f"restart {name}")
        self.held.add(name)
        loaded = self.loaded.setdefault(name, self._load(name))
        loaded.job = ""
        return self.results.pop(name) if name in self.results else self._begin(name, loaded)

    async def reload_unit(self, name: str) -> str:
        self.calls.append(f"reload-unit {name}")
        self._now += 1
        self.loaded[name].changed = self._now
        return self.results.pop(name, "done")

    async def reset_failed(self, name: str) -> None:
        self.calls.append(f"reset-failed {name}")
        loaded = self.loaded.get(name)
        if loaded is not None and loaded.active == "failed":
            self._enter(loaded, "inactive")
            self._forget()

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        return [LogLine("", text) for text in self.journal.get(name, [])[-lines:]]

    def journal_cursor(self) -> str:
        return f"{self.boot}:{self._now}"

    async def finished(self, name: str, moment: str) -> bool:
        return self.log.get(name, 0) > int(moment.partition(":")[2])

    async def watch(self, changed: Callable[[str], None]) -> None:
        self.hears = changed

    async def close(self) -> None:
        self.closed = True

    # The manager's memory.

    def _forget(self) -> None:
        for name, loaded in list(self.loaded.items()):
            if loaded.active == "inactive" and not loaded.job and name not in self.held:
                del self.loaded[name]

    def _enter(self, loaded: Loaded, state: str, result: str = "success") -> None:
        self._now += 1
        loaded.active, loaded.result, loaded.since, loaded.changed = (
            state,
            result,
            self._now,
            self._now,
        )

    def _load(self, name: str) -> Loaded:
        """What the manager would have in mind if it loaded the unit now."""
        files = self._files(name)
        state = self._file_state(name)
        dropins = "".join(text for place, text in sorted(files.items()) if "/" in place)
        if state in ("masked", "masked-runtime"):
            return Loaded(f"{self._directory}/{name}", "", files, state, "masked")
        if name in self.disk:
            text = self.disk[name]
            valid = "loaded"
            if name.endswith(".service") and "ExecStart=" not in text + dropins:
                valid = "bad-setting"
            return Loaded(f"{self._directory}/{name}", text + dropins, files, state, valid)
        if name in self.vendor:
            return Loaded(f"{VENDOR}/{name}", self.vendor[name] + dropins, files, state, "loaded")
        return Loaded(files={})

    def _files(self, name: str) -> dict[str, str]:
        found = {
            place: text
            for place, text in self.disk.items()
            if self._of(place, name) and text != OTHER
        }
        return found if name in self.disk or name in self.vendor else {}

    def _refusal(self, name: str) -> Refusal | None:
        """What the manager says where it can't read a file of the unit, or its link leads nowhere."""
        texts = {text for place, text in self.disk.items() if self._of(place, name)}
        if UNREADABLE in texts or f"link:{self.closed_target}" in texts:
            return Refusal("AccessDenied", f"systemd refuses GetUnitFileState: File {name}")
        return None

    def _refuse(self, name: str) -> None:
        refusal = self._refusal(name)
        if refusal is not None:
            raise Transient(refusal.reason, refusal.message, phase="Blocked")

    def _file_state(self, name: str) -> str:
        text = self.disk.get(name, self.vendor.get(name))
        if self.disk.get(name) in (MASK, ""):
            return "masked"
        if name in self.masked_for_all and name not in self.disk:
            return "masked"
        if name in self.masked_runtime and name not in self.disk:
            return "masked-runtime"
        if text is None:
            return ""
        if name in self.enabled or name in self.enabled_for_all:
            return "enabled"
        if name in self.enabled_runtime:
            return "enabled-runtime"
        whole = text + "".join(
            other for place, other in self.disk.items() if place.startswith(f"{name}.d/")
        )
        return "disabled" if "[Install]" in whole else "static"

    @staticmethod
    def _of(place: str, name: str) -> bool:
        return place == name or place.startswith(f"{name}.d/") or place == f"{name}.d"

    @staticmethod
    def _shown(text: str) -> str:
        if text in (OTHER, UNREADABLE) or text.startswith("link:"):
            return text
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def _value(text: str, key: str) -> str:
        values = [
            line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")
        ]
        return values[-1] if values else ""
