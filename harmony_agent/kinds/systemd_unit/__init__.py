"""SystemdUnit on a device: a unit with its file and drop-ins, and whether it runs, is enabled or is
masked.

`plan` decides on files and links, `running` on what is to run, `removal` on the way back; all three
are pure. Reads and changes go through `topology.units`.
"""

from harmony_agent.kinds.systemd_unit.actions import UnitAction
from harmony_agent.kinds.systemd_unit.reconciler import UnitReconciler

__all__ = ["UnitAction", "UnitReconciler"]
