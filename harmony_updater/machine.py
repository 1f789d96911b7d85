"""Define the states of an upgrade: what can happen in each, and where that leads.

It is one table. What isn't in it can't happen.
"""

from typing import Literal

from harmony_updater.protocol import Phase

Event = Literal[
    "hindered",  # something outside must pass first: another mutation, a package lock, the clock
    "unhindered",  # it has passed
    "refused",  # expired, or a check says no; no package was touched
    "started",  # every check passed; apt may be spawned once this is on disk, and never again
    "upgraded",  # apt ended well, and what the plan named is installed
    "unchanged",  # apt ended well, nothing was changed, and no reboot is required
    "incomplete",  # apt ended well, and something isn't as the plan named it
    "apt-failed",  # apt failed and left the packages healthy
    "broken",  # apt was interrupted, or the packages aren't healthy
    "reboot-asked",  # one more reboot request is about to be made
    "no-reboot",  # as many requests as are allowed, and still the old boot id
    "rebooted",  # a boot id was read, and it is another one
    "verified",  # the packages are healthy after the reboot
    "cleared",  # an operator's clear-repair found the packages healthy
]
TRANSITIONS: dict[Phase, dict[Event, Phase]] = {
    "preflight": {"hindered": "blocked", "refused": "failed", "started": "applying"},
    "blocked": {"hindered": "blocked", "refused": "failed", "unhindered": "preflight"},
    "applying": {
        "upgraded": "rebooting",
        "unchanged": "complete",
        "incomplete": "failed",
        "apt-failed": "failed",
        "broken": "repair-required",
    },
    "rebooting": {"reboot-asked": "rebooting", "no-reboot": "failed", "rebooted": "verifying"},
    "verifying": {"verified": "complete", "broken": "repair-required"},
    "complete": {},
    "failed": {},
    "repair-required": {"cleared": "repair-required"},
}
TERMINAL = frozenset({"complete", "failed", "repair-required"})
