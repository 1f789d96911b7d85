"""Package: looks for the packages that a manifest needs, through a `Packages` capability.

Must not install anything: which packages a device has is for whoever administers it.
"""

from harmony_agent.kinds.package.reconciler import PackageReconciler

__all__ = ["PackageReconciler"]
