"""What is shown while waiting: on a terminal a view that is redrawn, elsewhere a line a change."""

from __future__ import annotations

import io

from rich.console import Console

from harmony_fleet.observe.wait import Target, judge
from harmony_fleet.output.progress import MAX_RESOURCES, MAX_SHOWN, Progress
from scores.keys import DeploymentKey
from scores.status import DeploymentStatus
from tests.unit.fleet.build import KEY, OURS, resource, status


def drawn(progress: Progress) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(progress._view())
    return out.getvalue()


def target(device: str = "pi-01") -> Target:
    return Target(DeploymentKey(device, "web"), OURS, 3)


def tell(progress: Progress, told: DeploymentStatus, at: Target | None = None) -> None:
    progress.observe(at or target(), told, judge(at or target(), told, 1))


def behind(count: int = 1) -> DeploymentStatus:
    resources = {f"File/{n:02}": resource("Degraded", "NoSpace") for n in range(count)}
    return status("Degraded", resources={**resources, "File/ready": resource()})


def test_lines_where_there_is_no_terminal_one_a_change() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=200)) as progress:
        progress.expect([target()])
        for told in (behind(), behind(), status(resources={"File/00": resource()})):
            tell(progress, told)
    assert out.getvalue().splitlines() == [
        "pi-01/web  File/00  Degraded  NoSpace",
        "pi-01/web  Degraded  1/2 ready",
        "pi-01/web  File/00  Degraded → Ready",
        "pi-01/web  File/ready  Ready → gone",
        "pi-01/web  Converged  1/1 ready",
    ]


def test_a_view_on_a_terminal_that_is_gone_at_the_end() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=100, force_terminal=True)) as progress:
        progress.expect([target(), target("pi-02")])
        tell(progress, behind())
        assert "the device hasn't answered yet" in drawn(progress)
        assert "File/00 Degraded NoSpace" in drawn(progress)
        assert "0 of 2 settled" in drawn(progress)
        tell(progress, status())
        tell(progress, status("Rejected", generation=2, rejected=(3, "Invalid")), target("pi-02"))
    text = drawn(progress)
    assert "✓ pi-01/web  Converged" in text
    assert "✗ pi-02/web  Rejected  Invalid" in text
    assert "2 of 2 settled" in text


def test_for_programs_there_is_no_view() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=100, force_terminal=True), live=False) as progress:
        progress.expect([target()])
        tell(progress, status())
    assert "Converged" in out.getvalue()
    assert "\x1b[?25l" not in out.getvalue()  # no cursor is hidden


def test_the_view_stays_small() -> None:
    progress = Progress(Console(file=io.StringIO(), force_terminal=True))
    for n in range(100):
        tell(progress, behind(50), Target(DeploymentKey(f"pi-{n:03}", "web"), OURS, 3))
    lines = drawn(progress).splitlines()
    assert len(lines) == MAX_SHOWN * (1 + MAX_RESOURCES + 1) + 1
    assert sum("and 44 more" in line for line in lines) == MAX_SHOWN


def test_what_a_device_says_is_no_markup() -> None:
    progress = Progress(Console(file=io.StringIO(), force_terminal=True))
    tell(progress, status("Degraded", resources={"File/a": resource("Degraded", "[red]\x1b[2J")}))
    assert "[red]?[2J" in drawn(progress)
    assert KEY.device in drawn(progress)
