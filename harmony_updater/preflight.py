"""Check before an upgrade that apt may be let loose: a list of named steps.

None of them changes a package. A step returns its objection, or None. The order counts: what isn't
trusted is refused before anything is fetched by it, and what was fetched is judged before a plan is
made of it.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from harmony_updater import apt_output, apt_policy
from harmony_updater.apt_output import Plan, lines
from harmony_updater.host import Host
from harmony_updater.machine import Event


class Objection(NamedTuple):
    """A reason not to start: the attempt waits when it is `hindered`, and ends when `refused`."""

    event: Event
    reason: str
    message: str


Step = Callable[[], Objection | None]


def first(steps: Iterable[Step]) -> Objection | None:
    """Take the steps in order, up to the first objection; None when there is none."""
    return next(filter(None, (step() for step in steps)), None)


class Preflight:
    """One run of the checks, and the plan that they end with."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.plan = Plan({}, ())
        self.boot_id = host.boot_id()

    def objection(self) -> Objection | None:
        """Run the steps; None when the plan may be carried out."""
        return first(
            [
                self.boot_is_known,
                self.switches_are_on,
                self.options_are_safe,
                self.sources_are_signed,
                self.packages_are_healthy,
                self.indexes_are_fetched,
                self.indexes_are_verified,
                self.plan_is_made,
                self.archives_are_verified_and_fit,
            ]
        )

    def boot_is_known(self) -> Objection | None:
        """Read the boot id, by which a reboot can be told."""
        if self.boot_id is None:
            return _no(
                "BootIdUnreadable", "cannot read the boot id: without it a reboot can't be detected"
            )
        return None

    def switches_are_on(self) -> Objection | None:
        """Let apt say whether its configuration switches authentication off."""
        failed, said = self.host.run("switches")
        if failed:
            return _no(
                "UnsafeConfiguration", f"apt's configuration isn't readable: {apt_output.why(said)}"
            )
        if found := apt_policy.switched_off(lines(said)):
            return _no("UnauthenticatedSource", f"authentication is off: {'; '.join(found)}")
        return None

    def options_are_safe(self) -> Objection | None:
        """Compare apt's configuration with that of a device which has none."""
        failed, defaults = self.host.run("defaults")
        failed_too, actual = self.host.run("options")
        if failed or failed_too:
            return _no(
                "UnsafeConfiguration",
                f"apt's configuration isn't readable: {apt_output.why(actual)}",
            )
        if found := apt_policy.unsafe_options(lines(defaults), lines(actual)):
            return _no("UnsafeConfiguration", f"these options aren't allowed: {'; '.join(found)}")
        return None

    def sources_are_signed(self) -> Objection | None:
        """Show apt its indexes without signatures: what it believes then, it believes unsigned."""
        failed, indexes = self.host.run("indexes")
        if failed:
            return _no("SourcesMalformed", apt_output.why(indexes))
        self.host.lay_out_unsigned(lines(indexes))
        failed, said = self.host.run("believed")
        if failed:
            return _no("SourcesMalformed", apt_output.why(said))
        if found := apt_policy.believed(lines(indexes), lines(said)):
            return _no("UnauthenticatedSource", f"authentication is off: {'; '.join(found)}")
        return None

    def packages_are_healthy(self) -> Objection | None:
        """Ask dpkg and apt what is half done."""
        if complaints := self.host.unhealthy():
            return _no("PackagesUnhealthy", " ".join(complaints))
        return None

    def indexes_are_fetched(self) -> Objection | None:
        """Run `apt-get update`."""
        failed, said = self.host.run("update")
        return _no("IndexFailed", apt_output.why(said)) if failed else None

    def indexes_are_verified(self) -> Objection | None:
        """Let apt say of each index that it chooses packages from whether it was verified."""
        failed, said = self.host.run("verified")
        failed_too, policy = self.host.run("policy")
        if failed or failed_too:
            return _no("IndexFailed", f"{apt_output.why(said)} {apt_output.why(policy)}")
        if found := apt_policy.unverified(lines(said), lines(policy)):
            return _no("UnauthenticatedSource", f"not verified: {'; '.join(found)}")
        return None

    def plan_is_made(self) -> Objection | None:
        """Simulate the upgrade; what it names is what must be installed afterwards."""
        failed, said = self.host.run("plan")
        if failed:
            return _no("NoPlan", apt_output.why(said))
        self.plan = apt_output.plan(said)
        return None

    def archives_are_verified_and_fit(self) -> Objection | None:
        """Look at what the plan fetches: all is of verified repositories, and there is room."""
        failed, said = self.host.run("archives")
        failed_too, verified = self.host.run("verified")
        if failed or failed_too:
            return _no("NoPlan", f"{apt_output.why(said)} {apt_output.why(verified)}")
        if found := apt_policy.astray(lines(verified), apt_output.archives(said)):
            return _no("UnauthenticatedSource", f"of no verified repository: {'; '.join(found)}")
        if lacking := self.host.space_lacking(said):
            return _no("NoSpace", lacking)
        return None


def _no(reason: str, message: str) -> Objection:
    return Objection("refused", reason, message)
