"""How a failure is told: by systemd's names, and by nothing that a file or a log says."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.adapters.systemd import diagnosis
from harmony_agent.adapters.systemd.properties import unit_of
from harmony_agent.adapters.systemd.unit_files import OnDisk
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.systemd_unit.failure import NAMED, STATUSES, how, invalid, is_refused
from harmony_agent.topology.units import Complaint, Unit
from scores.systemd_unit import SystemdUnit
from tests.unit.systemd_unit.bench import NAME, Bench, web

UNITS = "/units"
TIME = "1795971600000001"
SECRET = "hunter2secret"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"result": "exit-code", "exit_status": 1}, "exit status 1/FAILURE"),
        ({"result": "exit-code", "exit_status": 42}, "exit status 42"),
        ({"result": "exit-code", "exit_status": 78}, "exit status 78/CONFIG"),
        ({"result": "exit-code", "exit_status": 203}, "exit status 203/EXEC"),
        (
            {"result": "exit-code", "exit_status": 203, "spawn": "sleeep: no such file"},
            "exit status 203/EXEC: sleeep: no such file",
        ),
        (
            {"result": "exit-code", "exit_status": 1, "step": "ExecStartPre"},
            "ExecStartPre=: exit status 1/FAILURE",
        ),
        ({"result": "exit-code"}, "exit-code"),
        ({"result": "signal", "exit_status": 137}, "ended by SIGKILL"),
        ({"result": "signal", "exit_status": 128 + 40}, "ended by signal 40"),
        (
            {"result": "core-dump", "exit_status": 128 + signal.SIGSEGV},
            "ended by SIGSEGV, with a core dump",
        ),
        ({"result": "timeout", "exit_status": 143}, "timeout: it took longer than its unit allows"),
        (
            {"result": "oom-kill", "exit_status": 137},
            "oom-kill: the kernel ran out of memory and ended it",
        ),
        (
            {"result": "watchdog", "exit_status": 134},
            "watchdog: it gave no sign of life within WatchdogSec=",
        ),
        ({"result": "start-limit-hit"}, "start-limit-hit: it was started too often"),
        ({"result": "of-tomorrow"}, "of-tomorrow"),
    ],
)
def test_how_it_failed(seen: dict[str, Any], words: str) -> None:
    assert how(Unit(NAME, **seen)) == words


def test_the_names_are_systemds() -> None:
    """A few of each block of the table, as `systemd-analyze exit-status` prints them."""
    known = {2: "INVALIDARGUMENT", 7: "NOTRUNNING", 64: "USAGE", 73: "CANTCREAT", 74: "IOERR"}
    known |= {200: "CHDIR", 210: "CHROOT", 211: "IOPRIO", 217: "USER", 218: "CAPABILITIES"}
    known |= {222: "STDERR", 224: "PAM", 226: "NAMESPACE", 230: "PERSONALITY", 231: "APPARMOR"}
    known |= {233: "RUNTIME_DIRECTORY", 235: "CHOWN", 239: "CACHE_DIRECTORY", 244: "BPF"}
    assert {number: STATUSES[number] for number in known} == known
    assert not {0, 8, 63, 79, 199, 223, 234, 245, 254} & set(STATUSES)


def command(status: int, at: int, *, ignored: bool = False) -> tuple[Any, ...]:
    return ("/bin/x", ["/bin/x", SECRET], ignored, 0, 0, 0, at, 7, 1, status)


@pytest.mark.parametrize(
    ("seen", "ended"),
    [
        ({"ExecMainCode": 1, "ExecMainStatus": 3}, (3, "")),
        ({"ExecMainCode": 2, "ExecMainStatus": 9}, (137, "")),
        ({"ExecStartPre": [command(4, 10)]}, (4, "ExecStartPre")),
        ({"ExecStartPre": [command(0, 5), command(4, 10)]}, (4, "ExecStartPre")),
        ({"ExecStartPre": [command(4, 10, ignored=True)]}, (0, "")),
        ({"ExecMount": [command(32, 10)]}, (32, "ExecMount")),
        (
            {
                "ExecMainCode": 1,
                "ExecMainStatus": 3,
                "ExecMainExitTimestampMonotonic": 20,
                "ExecStopPost": [command(4, 30)],
            },
            (3, ""),
        ),
    ],
)
def test_which_command_failed_first(seen: dict[str, Any], ended: tuple[int, str]) -> None:
    row = ("loaded", "failed", "failed", "/unit", "0", "")
    unit = unit_of(NAME, row, OnDisk({NAME: "sha256:1"}), "static", seen)
    assert unit is not None
    assert (unit.exit_status, unit.step) == ended
    assert SECRET not in repr(unit)


def refused(*complaints: Complaint) -> Unit:
    return Unit(NAME, load_state="bad-setting", complaints=complaints)


def message(spec: SystemdUnit, *complaints: Complaint) -> str:
    wait = invalid(spec, refused(*complaints), UNITS)
    assert wait.reason == "UnitInvalid"
    return wait.message


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (1, "line 1 of content: F"),
        (2, "line 2 of content (ExceStart=): F"),
        (3, "line 3 of content (Environment=): F"),
        (4, "line 4 of content (Environment=): F"),
        (5, "line 5 of content: F"),
        (6, "line 6 of content: F"),
        (9, "line 9 of content: F"),
    ],
)
def test_a_line_is_told_with_its_setting(line: int, place: str) -> None:
    text = f"[Service]\nExceStart=/bin/x {SECRET}\nEnvironment=A=1 \\\n{SECRET}=1\n{SECRET}=\nc2VjcmV0PQ==\n"
    told = message(web(content=text), Complaint("F", f"{UNITS}/{NAME}", line))
    assert told == f"systemd refuses the files of {NAME} (bad-setting): {place}"


def test_where_a_fault_is() -> None:
    spec = web(content="[Service]\n", dropins={"10-a.conf": "[Service]\nNice=bla\n"})
    assert message(spec).endswith(f"see `systemctl status {NAME}`")
    ours = Complaint("F", f"{UNITS}/{NAME}.d/10-a.conf", 2)
    assert message(spec, ours).endswith(": line 2 of dropins 10-a.conf (Nice=): F")
    other = Complaint("F", f"/etc/systemd/{NAME}.d/9.conf", 2)
    assert message(spec, other).endswith(f": /etc/systemd/{NAME}.d/9.conf:2: F")
    many = [Complaint(f"F{number}") for number in range(NAMED + 2)]
    assert message(spec, *many).endswith(": F0; F1; F2; and 2 more")
    assert invalid(SystemdUnit(name=NAME), refused(), UNITS).phase == "Blocked"


@pytest.mark.parametrize(
    ("load", "active", "told"),
    [
        ("bad-setting", "inactive", True),
        ("error", "failed", True),
        ("bad-setting", "active", False),
        ("bad-setting", "activating", False),
        ("loaded", "inactive", False),
    ],
)
def test_what_runs_is_left_though_its_files_are_refused(load: str, active: str, told: bool) -> None:
    assert is_refused(Unit(NAME, load_state=load, active_state=active)) is told


async def test_a_manager_that_always_asks_for_a_reload_is_not_asked_for_ever() -> None:
    """As systemd 252 does for refused files with drop-ins."""
    bench = Bench()
    spec = web(dropins={"10-a.conf": "[Service]\nNice=5\n"})
    await bench.want(spec)
    unit = await bench.kind.observe(NAME)
    assert unit is not None
    unit = replace(unit, load_state="bad-setting", active_state="inactive", stale=True)
    plan = bench.kind.plan(NAME, bench.store.desired(NAME), bench.record(), unit)
    assert getattr(plan, "reason", "") == "UnitInvalid"


# What the journal says.


def invalid_entry(sentence: Any, line: int = 3, path: str = f"{UNITS}/{NAME}") -> dict[str, Any]:
    return {
        "MESSAGE_ID": "c772d24e9a884cbeb9ea12625c306c01",
        "CONFIG_FILE": path,
        "CONFIG_LINE": str(line),
        "MESSAGE": f"{path}:{line}: {sentence}" if isinstance(sentence, str) else sentence,
        "__REALTIME_TIMESTAMP": TIME,
    }


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("Unknown key 'Foo' in section [Service], ignoring.", "there is no such setting"),
        ("Unknown key name 'Foo' in section 'Service', ignoring.", "there is no such setting"),
        ("Unknown section 'Foo'. Ignoring.", "there is no such section"),
        ("Assignment outside of section. Ignoring.", "before the first section"),
        ("Missing '=', ignoring line.", "there is no ="),
        (f"Executable path is not absolute, ignoring: {SECRET}", "nor an absolute path"),
        (f"Neither a valid executable name nor an absolute path: {SECRET}", "nor an absolute"),
        (f"Failed to resolve unit specifiers in {SECRET}%!, ignoring: x", "a % in it"),
        (f"Failed to resolve specifiers in {SECRET}%!, ignoring: x", "a % in it"),
        (f"Invalid environment assignment, ignoring: {SECRET}", "it isn't NAME=value"),
        ("Unbalanced quoting, ignoring: " + SECRET, "a quote in it"),
        (f"Failed to parse sec value, ignoring: {SECRET}", "its value can't be read"),
        (f"{SECRET} is new, ignoring", diagnosis.OTHER_FAULT),
        (None, diagnosis.OTHER_FAULT),
        ([1, 2], diagnosis.OTHER_FAULT),
    ],
)
def test_a_sentence_of_the_manager_becomes_one_of_ours(sentence: Any, fault: str) -> None:
    found = diagnosis._complaint(invalid_entry(sentence))
    assert found is not None
    assert fault in found.fault
    assert (found.path, found.line) == (f"{UNITS}/{NAME}", 3)
    assert SECRET not in repr(found)


@given(st.text(max_size=60))
def test_no_text_of_the_manager_leaves(text: str) -> None:
    found = diagnosis._complaint(invalid_entry(f"{text} {SECRET}"))
    words = {fault for _, fault in diagnosis.FAULTS} | {diagnosis.OTHER_FAULT}
    assert found is not None
    assert found.fault in words


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "web.service: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing.",
            "Service has no ExecStart=, ExecStop=, or SuccessAction=",
        ),
        ('web.service: Unit has odd "value". Refusing.', None),
        ("web.service: Failed to load: hunter2secret", None),
    ],
)
def test_a_refusal_of_the_whole_unit(text: str, told: str | None) -> None:
    found = diagnosis._complaint({"MESSAGE": text, "__REALTIME_TIMESTAMP": TIME})
    assert found == (Complaint(told) if told else None)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"EXECUTABLE": "sleeep", "ERRNO": "2"}, "sleeep: no such file or directory"),
        ({"EXECUTABLE": "/bin/x", "ERRNO": "13"}, "/bin/x: permission denied"),
        ({"EXECUTABLE": "/bin/x\n\x1b[1m", "ERRNO": "2"}, "/bin/x??[1m: no such file or directory"),
        ({"EXECUTABLE": "/" + "x" * 999, "ERRNO": "0"}, "/" + "x" * 199),
        ({"EXECUTABLE": ["a", "b"], "ERRNO": None}, ""),
    ],
)
def test_what_could_not_be_started(entry: dict[str, Any], told: str) -> None:
    assert diagnosis._spawn(entry) == told


class Journal:
    """Answers of journalctl, one a question; what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers, self.asked = list(answers), 0
        monkeypatch.setattr(diagnosis, "read", self.read)
        monkeypatch.setattr(diagnosis, "_PAUSES", (0.0, 0.0))

    async def read(self, *_about: str) -> str:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else ""
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else "\n".join(map(json.dumps, answer))


NOT_STARTED = Unit(NAME, result="exit-code", exit_status=203, invocation="ab")
SPAWN = {"EXECUTABLE": "sleeep", "ERRNO": "2"}


async def test_the_journal_is_asked_once_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(monkeypatch, "", [SPAWN])  # the line comes a moment later
    asks = diagnosis.Diagnosis("user")
    for _ in range(3):
        assert (await asks.complete(NOT_STARTED)).spawn == "sleeep: no such file or directory"
    assert journal.asked == 2
    assert (await asks.complete(replace(NOT_STARTED, invocation="cd"))).spawn == ""
    assert journal.asked == 4
    running = Unit(NAME, active_state="active")
    assert await asks.complete(running) == running
    assert journal.asked == 4


@pytest.mark.parametrize("answer", [Transient("JournalTimeout", "x"), "no json", "[1]", ""])
async def test_a_journal_that_does_not_answer_leaves_the_words_out(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    Journal(monkeypatch, answer, answer)
    assert (await diagnosis.Diagnosis("system").complete(NOT_STARTED)).spawn == ""
    assert (await diagnosis.Diagnosis("system").complete(refused())).complaints == ()


REFUSING = {
    "MESSAGE": "web.service: Service has no ExecStart=. Refusing.",
    "__REALTIME_TIMESTAMP": TIME,
}


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        ([(9, "1"), (3, TIME), (3, TIME)], [3]),  # a while ago, and the same one twice
        ([(9, TIME), REFUSING, (3, TIME), (4, TIME), REFUSING], [3, 4, 0]),
        ([(9, TIME), REFUSING, REFUSING], [0]),
        ([REFUSING, (3, TIME)], [3]),
        ([], []),
    ],
)
async def test_only_the_last_load_counts(
    said: list[Any], lines: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        one
        if isinstance(one, dict)
        else {
            **invalid_entry("Missing '=', ignoring line.", one[0]),
            "__REALTIME_TIMESTAMP": one[1],
        }
        for one in said
    ]
    Journal(monkeypatch, entries)
    unit = await diagnosis.Diagnosis("user").complete(refused())
    assert [one.line for one in unit.complaints] == lines


async def test_what_was_said_of_files_before_is_not_told_of_these(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / NAME
    file.write_text("[Service]\n")
    os.utime(file, ns=(0, int(TIME) * 1000 + 5000))
    late = {**invalid_entry("Missing '='."), "__REALTIME_TIMESTAMP": str(int(TIME) + 9)}
    unit = replace(refused(), fragment=str(file), loaded_dropins=("/nope.conf",))
    journal = Journal(monkeypatch, [REFUSING], [REFUSING, late])
    found = await diagnosis.Diagnosis("user").complete(unit)
    assert [one.line for one in found.complaints] == [3]
    assert journal.asked == 2
    Journal(monkeypatch, [REFUSING], [REFUSING])
    assert (await diagnosis.Diagnosis("user").complete(unit)).complaints == ()
