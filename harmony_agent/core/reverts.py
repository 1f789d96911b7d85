"""Going back by itself: how long a generation has to converge, and what it falls back to. Pure.

A trial is a time that is left at a moment. The monotonic clock of a boot counts it; the wall clock never does, for it may
be wrong after a power cut. So the time in which the device is off doesn't count. A boot that ends before anything was noted
costs a share, so that a generation which ends each boot comes to its end too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from harmony_agent.core.admission import RefusedVersion
from harmony_agent.core.changes import Moment
from harmony_agent.core.frozen import frozen
from harmony_agent.core.manifests import StoredManifest
from scores.status import DeploymentPhase

KEEP_SECONDS: Final = 30.0
"""Seconds between two notes of how much is left."""
BOOT_SECONDS: Final = KEEP_SECONDS / 2
"""What a boot costs that ended between two notes."""
GRACE_SECONDS: Final = 60.0
"""What an agent that starts late in a trial gets, once: it has to start what ran."""
_MICRO: Final = 1_000_000


@frozen()
class Trial:
    """A generation that has `left` microseconds of `span` at the moment `at`. `graced`: an agent
    started late in it.
    """

    generation: int
    digest: str
    span: int
    left: int
    at: Moment
    graced: bool = False

    def after(self, now: Moment) -> float:
        """Seconds that are left, in the boot of `at`."""
        return (self.left - max(0, now.monotonic - self.at.monotonic)) / _MICRO

    def noted(self, now: Moment, *, stands: bool = False) -> Trial:
        """The same, counted from now on. `stands`: the time since doesn't count."""
        left = self.left if stands else int(self.after(now) * _MICRO)
        return replace(self, left=left, at=now)

    def started(self, now: Moment) -> Trial:
        """The same when an agent starts."""
        if self.at.boot and self.at.same_boot(now):
            found = self.noted(now)
        else:
            found = replace(self, left=self.left - int(BOOT_SECONDS * _MICRO), at=now)
        grace = min(int(GRACE_SECONDS * _MICRO), self.span)
        if found.left < grace and not found.graced:
            found = replace(found, left=grace, graced=True)
        return found

    def is_of(self, stored: StoredManifest) -> bool:
        """Tell if this manifest is tried."""
        return (self.generation, self.digest) == (stored.generation, stored.digest)


def trial(stored: StoredManifest, seconds: float, now: Moment) -> Trial:
    """A trial that begins now."""
    span = int(seconds * _MICRO)
    return Trial(stored.generation, stored.digest, span, span, now)


@frozen()
class Fallback:
    """What is remembered of a deployment, beside the manifest that is enforced.

    `good` is the last one that was Converged. `trial` counts for the generation that it names, `refused` is one that was
    tried and didn't converge. Each holds only while the enforced manifest is the one that it is about.
    """

    deployment: str
    good: StoredManifest | None = None
    trial: Trial | None = None
    refused: RefusedVersion | None = None

    def tried(self, stored: StoredManifest) -> Trial | None:
        """The trial that `stored` is in."""
        return self.trial if self.trial is not None and self.trial.is_of(stored) else None

    def refuses(self, stored: StoredManifest) -> RefusedVersion | None:
        """What the device went back from, to `stored`."""
        refused, good = self.refused, self.good
        if refused is None or good is None or refused.generation <= stored.generation:
            return None
        return refused if same(good, stored) else None

    def back_from(self, stored: StoredManifest) -> StoredManifest | None:
        """The manifest to go back to, where `stored` was refused and is enforced still."""
        refused = self.refused
        if refused is None or (refused.generation, refused.digest) != version(stored):
            return None
        return self.good

    def accepting(
        self, before: StoredManifest | None, stored: StoredManifest, seconds: float, now: Moment
    ) -> Fallback:
        """Remember this before `stored` is accepted. `before` is the enforced manifest if it is
        good, else None.
        """
        good = before or self.good
        if good is not None and good.lineage != stored.lineage:
            good = None
        tried = trial(stored, seconds, now) if seconds and good is not None else None
        return replace(self, good=good, trial=tried)

    def passed(self, stored: StoredManifest) -> Fallback:
        """`stored` converged in its time."""
        return Fallback(self.deployment, good=stored)

    def failed(self, stored: StoredManifest, good: StoredManifest, why: str) -> Fallback:
        """`stored` didn't, and `good` is enforced again."""
        message = (
            f"generation {stored.generation} wasn't Converged in its time ({why}); generation "
            f"{good.generation} is enforced again: mend it, and write the next generation"
        )
        refused = RefusedVersion(stored.generation, stored.digest, message)
        return Fallback(self.deployment, good=good, refused=refused)


Verdict = Literal["passed", "failed", "later"]


def judge(tried: Trial, phase: DeploymentPhase, now: Moment) -> Verdict:
    """Decide on a trial: at its end the generation is Converged, or it isn't."""
    if tried.after(now) > 0:
        return "later"
    return "passed" if phase == "Converged" else "failed"


def version(stored: StoredManifest) -> tuple[int, str]:
    """Tell one accepted manifest of a deployment from another."""
    return stored.generation, stored.digest


def same(one: StoredManifest, other: StoredManifest) -> bool:
    """Tell if both are the same generation."""
    return (one.lineage, *version(one)) == (other.lineage, *version(other))
