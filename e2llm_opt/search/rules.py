"""Which sets of replicas the problem's constraints allow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.evaluate import Outcome

    Labels = NDArray[np.int64]


class Rules:
    """The constraints in terms of device classes.

    Parameters
    ----------
    costs
        Of the problem. Devices that constraints name have classes of their own.
    devices
        Rows that may be used.

    Attributes
    ----------
    must
        Devices of each class that must hold layers.
    """

    def __init__(self, costs: Costs, devices: Sequence[int]) -> None:
        self._constraints = costs.problem.constraints
        self._devices = list(devices)
        self._fixed_layers, self._degrees = costs.fixed_layers, costs.units.degrees
        class_of = costs.classes.class_of
        names = {device.name: d for d, device in enumerate(costs.problem.devices)}
        self._pins = [
            Counter(class_of[names[name]] for name in pinned)
            for pinned in self._constraints.pins.values()
        ]
        self._pinned_rows = [
            {names[name] for name in pinned} for pinned in self._constraints.pins.values()
        ]
        self.must = Counter(class_of[d] for d in devices if costs.must_hold_layers[d])

    def allows_group(self, group: Group) -> bool:
        """Whether *group* may be a replica: all devices of one pin, or none of any."""
        if not self._pins:
            return True
        have = Counter(group)
        touched = [pin for pin in self._pins if any(have[k] for k in pin)]
        return len(touched) < 2 and all(have[k] >= pin[k] for pin in touched for k in pin)  # noqa: PLR2004

    def allows(self, packing: Sequence[Group]) -> bool:
        """Whether *packing* has as many replicas, and all the devices, that it must have."""
        if self._constraints.replicas not in {None, len(packing)}:
            return False
        have = Counter(k for group in packing for k in group)
        return all(have[k] >= need for k, need in self.must.items()) and all(
            self.allows_group(group) for group in packing
        )

    def distance(self, packing: Sequence[Group]) -> float:
        """Return how far *packing* is from being allowed: a number for the search to lower."""
        idle = len(self._devices) - sum(len(group) for group in packing)
        wanted = self._constraints.replicas
        amiss = 0 if wanted is None else abs(wanted - len(packing))
        return 1e-3 * idle + 1e-2 * amiss

    def is_obeyed(self, outcome: Outcome) -> bool:
        """Whether *outcome* obeys all constraints."""
        wanted = self._constraints.roles
        is_mixed = [replica.role is Role.MIXED for replica in outcome.replicas]
        has_roles = wanted == "auto" or all(one is (wanted == "mixed") for one in is_mixed)
        has_layers = all(
            self._fixed_layers[d] in {-1, stop - start}
            for replica in outcome.replicas
            for d, start, stop in replica.cut
        )
        has_degrees = all(replica.degree in self._degrees for replica in outcome.replicas)
        is_obeyed = has_roles and has_layers and has_degrees
        return is_obeyed and self.allows([c.group for c in outcome.replicas])

    def may_drop(self, replica: Candidate) -> bool:
        """Whether a plan may do without *replica*."""
        return self._constraints.replicas is None and not any(self.must[k] for k in replica.group)

    def repaired(self, labels: Labels) -> Labels:
        """Return group *labels* of the devices with pinned devices put where they belong."""
        if not self._pinned_rows:
            return labels
        fixed, taken = labels.copy(), set()
        for rows in self._pinned_rows:
            places = [i for i, d in enumerate(self._devices) if d in rows]
            label = int(fixed[places[0]])
            if label < 0 or label in taken:
                label = int(fixed.max()) + 1
            taken.add(label)
            fixed[places] = label
        return fixed
