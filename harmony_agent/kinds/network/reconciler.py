"""Network: the reconciler that the engine drives; it hands each question to `observe`, `plan` or
`apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.kinds.network.actions import NetworkAction
from harmony_agent.kinds.network.apply import Applier
from harmony_agent.kinds.network.facts import NetworkFacts, read, write
from harmony_agent.kinds.network.observe import Observer
from harmony_agent.kinds.network.plan import NetworkPlan, plan
from harmony_agent.kinds.network.policy import NetworkPolicy
from harmony_agent.topology.networks import Networks, NetworkState
from scores.manifest import FieldError
from scores.network import Network
from scores.status import NetworkDetail


class NetworkReconciler:
    """Networks of one device's container engine."""

    kind = "Network"
    spec_type = Network

    def __init__(
        self, networks: Networks, store: KindView[Network], *, device: str, rootless: bool = True
    ) -> None:
        self._networks, self._device = networks, device
        self._policy = NetworkPolicy(rootless=rootless)
        self._observer = Observer(networks, store)
        self._applier = Applier(networks, store, device)

    def admit(self, spec: Network) -> Iterable[FieldError]:
        """Drivers that podman has no rights for."""
        return self._policy.violations(spec)

    def claims(self, spec: Network) -> frozenset[str]:
        """Its name."""
        return frozenset({f"network:{spec.name}"})

    async def relist(self) -> Mapping[str, NetworkState]:
        """All that is wanted or owned and exists."""
        return await self._observer.relist()

    async def observe(self, name: str) -> NetworkState | None:
        """One, fresh."""
        return await self._observer.one(name)

    def plan(
        self,
        name: str,
        desired: Desired[Network] | None,
        record: OwnershipRecord | None,
        observed: NetworkState | None,
    ) -> NetworkPlan:
        """Plan the next actions."""
        return plan(name, desired, record, observed, self._device)

    async def apply(self, action: NetworkAction) -> None:
        """Take one step."""
        await self._applier.apply(action)

    def facts(
        self,
        desired: Desired[Network],
        record: OwnershipRecord | None,
        observed: NetworkState | None,
    ) -> Facts:
        """Collect the facts to record at a claim. What is made anew after a loss is ours as well."""
        del desired
        return write(NetworkFacts(made=observed is None or read(record).made))

    def detail(
        self, record: OwnershipRecord | None, observed: NetworkState | None
    ) -> NetworkDetail:
        """The typed status."""
        del record
        if observed is None:
            return NetworkDetail(state="Absent")
        subnets = [subnet for subnet, _ in observed.subnets][:8]
        return NetworkDetail(state="Present", driver=observed.driver, subnets=subnets)

    async def close(self) -> None:
        """Let go of podman; networks stay."""
        await self._networks.close()
