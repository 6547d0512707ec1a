"""What a front is about: the objectives, what they are in numbers, and what is too little to count.

Every objective is minimised; capacity as the time a request takes away from it, 1/capacity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.validate import nearest
from e2llm_opt.problem import Role
from e2llm_opt.search.evaluate import ROLE_CODES
from e2llm_opt.search.losses import lost_capacity, lost_shares
from e2llm_opt.search.phrases import named
from e2llm_opt.search.ranking import COARSE, rounded
from e2llm_opt.search.tradeoff.aim import PRICED, WAITS, Aim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.variant import Variant

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


_COLUMN = {
    Aim.WAITING_TIME: kernel.WAITING,
    Aim.TTFT: kernel.TTFT,
    Aim.TPOT: kernel.TPOT,
    Aim.LATENCY: kernel.LATENCY,
}
_LOSS_STEPS = 100
"""Lost capacity counts in whole per cent."""
_LEAST_AIMS = 2


def asked_aims(problem: Problem, names: Sequence[str] | None) -> tuple[Aim, ...]:
    """Return the objectives that *names* are; None: those that *problem* has data for.

    These are the waiting time (the latency where no requests arrive), cost, power, devices, and
    the capacity lost on a failure.

    Raises
    ------
    InputError
        When there is no such objective, one is named twice, there are less than two, or devices
        lack what one needs; all of it at once.
    """
    lacking = {aim: _lacking(problem, aim) for aim in PRICED}
    if names is None:
        first = Aim.WAITING_TIME if problem.workload.rate_per_s > 0 else Aim.LATENCY
        prices = [aim for aim in PRICED if not lacking[aim]]
        return (first, *prices, Aim.DEVICES, Aim.LOST_CAPACITY)
    known, faults = [str(aim) for aim in Aim], []
    for name in dict.fromkeys(names):
        if name not in known:
            right = nearest(name, known) or f"known: {', '.join(known)}"
            faults.append(Fault(path="objectives", wrong=f"unknown '{name}'", right=right))
        elif lacking.get(Aim(name)):
            wrong = f"{name} is not known of {named(lacking[Aim(name)])}"
            right = f"give each device its {name}, or leave the objective out"
            faults.append(Fault(path="objectives", wrong=wrong, right=right))
    if len(set(names)) < len(names):
        faults.append(Fault(path="objectives", wrong="one is named twice"))
    if len(set(names)) < _LEAST_AIMS:
        wrong = "a front needs at least two"
        faults.append(Fault(path="objectives", wrong=wrong, right="for one, there is plan"))
    if faults:
        raise InputError(faults)
    return tuple(Aim(name) for name in names)


def _lacking(problem: Problem, aim: Aim) -> list[str]:
    excluded = problem.constraints.exclude
    devices = [device for device in problem.devices if device.name not in excluded]
    return [device.name for device in devices if getattr(device, aim.value) is None]


class Aims:
    """The objectives of one front, and how plans are judged by them.

    Parameters
    ----------
    evaluator
        Of the problem.
    asked
        Objectives.
    is_stable
        Whether plans have a steady state; else capacity stands for what then has no value.

    Attributes
    ----------
    names
        The objectives [M].
    """

    def __init__(self, evaluator: Evaluator, asked: Sequence[Aim], *, is_stable: bool) -> None:
        names = [aim if is_stable or aim not in WAITS else Aim.CAPACITY for aim in asked]
        self.names = tuple(dict.fromkeys(names))
        self.is_stable = is_stable
        self._evaluator, self._output = evaluator, evaluator.costs.output_tokens
        problem, rows = evaluator.costs.problem, evaluator.candidates.rows
        self._prices = {
            aim: {k: _price(problem, own[0], aim) for k, own in rows.items()}
            for aim in (*PRICED, Aim.DEVICES)
        }
        self._rates: dict[tuple[Evaluator, Group, Variant], Floats] = {}

    def of(self, outcome: Outcome) -> Floats:
        """Return the objectives of *outcome*, links included [M]."""
        groups = [replica.group for replica in outcome.replicas]
        values = {
            Aim.WAITING_TIME: outcome.waiting_time_s,
            Aim.TTFT: outcome.ttft_s,
            Aim.TPOT: outcome.tpot_s,
            Aim.LATENCY: outcome.latency_s,
            Aim.CAPACITY: 1.0 / max(outcome.traffic.capacity_per_s, 1e-300),
            **{aim: self._price(groups, aim) for aim in (*PRICED, Aim.DEVICES)},
        }
        if Aim.LOST_CAPACITY in self.names:
            values[Aim.LOST_CAPACITY] = lost_capacity(self._evaluator, outcome)
        return np.array([values[aim] for aim in self.names])

    def of_figures(
        self,
        judge: Evaluator,
        packing: tuple[Sequence[Group], Ints],
        variant: Variant,
        figures: Floats,
    ) -> Floats:
        """Return the objectives of groups in many roles, links left out [A, M].

        Parameters
        ----------
        judge
            Whose replicas they are.
        packing
            Groups, and role codes for them [A, R].
        variant
            Which cuts.
        figures
            What the queueing kernel says of each row [A, 6].
        """
        groups, codes = packing
        found = np.empty((len(codes), len(self.names)))
        for column, aim in enumerate(self.names):
            if aim in _COLUMN:
                found[:, column] = figures[:, _COLUMN[aim]]
            elif aim is Aim.CAPACITY:
                found[:, column] = 1.0 / np.maximum(figures[:, kernel.CAPACITY], 1e-300)
            elif aim is Aim.LOST_CAPACITY:
                rates = np.array([self._rates_of(judge, group, variant) for group in groups])
                found[:, column] = lost_shares(rates[np.arange(len(groups)), codes], codes)
            else:
                found[:, column] = self._price(groups, aim)
        return found

    def points(self, values: Floats) -> Floats:
        """Return objectives [..., M] on the scales on which plans are compared.

        Without what is too little to count: waits are in the unit in which plans are ranked, other
        times and capacity have ten binary digits, lost capacity is in hundredths. Waits, TTFT and
        latency v as log(1 + v / unit): close to capacity they grow without bound, and one such
        plan would make all others look alike.
        """
        found = np.array(values, dtype=float)
        unit = self._evaluator.ranking.wait_unit_s
        for column, aim in enumerate(self.names):
            own = found[..., column]
            if aim is Aim.WAITING_TIME:
                found[..., column] = np.log1p(np.rint(own / unit))
            elif aim is Aim.LOST_CAPACITY:
                found[..., column] = np.rint(own * _LOSS_STEPS) / _LOSS_STEPS
            elif aim in WAITS:
                found[..., column] = np.log1p(rounded(own, COARSE) / unit)
            elif aim in {Aim.TPOT, Aim.CAPACITY}:
                found[..., column] = rounded(own, COARSE)
            else:
                found[..., column] = rounded(own)
        return found

    def figures(self, values: Floats) -> dict[str, float]:
        """Return objectives [M] by name as people read them: capacity in requests a second."""
        found = dict(zip(map(str, self.names), map(float, values), strict=True))
        if Aim.CAPACITY in found:
            found[Aim.CAPACITY.value] = 1.0 / found[Aim.CAPACITY]
        return found

    def _price(self, groups: Sequence[Group], aim: Aim) -> float:
        of_class = self._prices[aim]
        return float(sum(of_class[k] for group in groups for k in group))

    def _rates_of(self, judge: Evaluator, group: Group, variant: Variant) -> Floats:
        """Return requests a second of *group* by role code [4] [1/s]."""
        key = (judge, group, variant)
        if key not in self._rates:
            rates = np.zeros(1 + max(ROLE_CODES.values()))
            for role in Role:
                found = judge.candidates.find(group, role, variant)
                if found is not None:
                    rates[ROLE_CODES[role]] = found.service_rate(self._output)
            self._rates[key] = rates
        return self._rates[key]


def _price(problem: Problem, d: int, aim: Aim) -> float:
    return 1.0 if aim is Aim.DEVICES else float(getattr(problem.devices[d], aim.value) or 0.0)
