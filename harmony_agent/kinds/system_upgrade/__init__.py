"""SystemUpgrade: asks the device's root updater once, and relays its word until the attempt has
ended.

There is nothing to undo: a Score that leaves the manifest lets the attempt end, and is reported
until then. Only the updater says that an upgrade is complete. An attempt that it once knew is never
asked for again. The configuration can forbid nothing of it but the kind itself, so it has no
`policy`.
"""

from harmony_agent.kinds.system_upgrade.reconciler import SystemUpgradeReconciler

__all__ = ["SystemUpgradeReconciler"]
