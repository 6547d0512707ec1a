"""What no set of devices can exceed: their time pooled, as if layers could be cut like cloth.

With u_g, v_g the requests a second whose layers of kind g a class of devices prefills, and decodes,

    Σ_classes u_g = Σ_classes v_g = R L_g,    Σ_g (p_g u_g + d_g v_g) <= devices of the class,

where a layer takes p_g for a mean prompt and d_g for a whole answer, in the batch in which a token
is cheapest. The head is one more kind. Hops, KV transfers, whole replicas and, but for the weights
and one KV cache in all, memory are left out: every plan of these devices fits in, whatever its
groups, roles, cuts and slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.roofline import decode_penalty, decode_time, head_time, prefill_time
from e2llm_opt.search.packing import silence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]

_CLOSE = 1e-7
"""Bounds give way by so much, for the rounding of the solver."""


class Pool:
    """The pooled time of some classes of devices.

    Parameters
    ----------
    problem
        Whose devices are one of each class [K].

    Attributes
    ----------
    room
        Memory of a device for layers and KV caches [K] [bytes].
    need
        What one replica holds at least: all layers, and the KV cache of one request [bytes].
    quickest_s
        Least time of a prompt's prefill, and of a decode step of one request, on any devices [s].
    fastest
        Class that is the fastest at a whole prompt, and at such a step.
    """

    def __init__(self, problem: Problem) -> None:
        costs = costs_of(problem)
        self.room = costs.room().max(axis=1) + costs.spill_rule.host.max(axis=1)
        self.need = float(costs.memory_prefix(1)[-1])
        prompt, answer, first = _times(costs)
        self.quickest_s = (_quickest_prompt(costs), float(first.min(axis=0).sum()))
        self.fastest = (int(prompt.sum(axis=1).argmin()), int(first.sum(axis=1).argmin()))
        both = np.concatenate([prompt, answer])
        alike, self._count = np.unique(both, axis=1, return_counts=True)
        self._prompt, self._answer = np.split(alike, 2)

    def most(self, counts: Sequence[float]) -> float:
        """Return a rate that no plan of so many devices of each class [K] exceeds [1/s]."""
        from scipy.optimize import linprog  # noqa: PLC0415 - slow to import
        from scipy.sparse import csr_array, vstack  # noqa: PLC0415 - slow to import

        if float(np.dot(self.room, counts)) < self.need:
            return 0.0
        k, g = self._prompt.shape
        rows, busy = self._rows()
        unit = 1.0 / float((self._prompt + self._answer).min(axis=0).sum())
        cost = np.zeros(1 + 2 * k * g)
        cost[0] = -1.0
        work = np.zeros(rows.shape)
        work[:, 0] = np.concatenate([self._count, self._count])
        found = linprog(
            cost,
            A_ub=vstack([busy], format="csr"),
            b_ub=np.asarray(counts, dtype=np.float64) / unit,
            A_eq=vstack([rows - csr_array(work)], format="csr"),
            b_eq=np.zeros(2 * g),
            method="highs",
        )
        return float(found.x[0]) * unit * (1 + _CLOSE) if found.x is not None else 0.0

    def cheapest(
        self, costs: Sequence[float], rate_per_s: float, most_devices: int
    ) -> float | None:
        """Return what no set of devices that serves *rate_per_s* costs less than.

        Parameters
        ----------
        costs
            Of a device of each class [K].
        rate_per_s
            Requests a second.
        most_devices
            In all.

        Returns
        -------
        float or None
            None where not even *most_devices* of the best would do.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import
        from scipy.sparse import csr_array, hstack, vstack  # noqa: PLC0415 - slow to import

        k, g = self._prompt.shape
        rows, busy = self._rows()
        work = np.concatenate([self._count, self._count])
        # Variables: devices of each class n [K], then as in most(), in units of the rate.
        used = hstack([csr_array(-np.eye(k)), busy[:, 1:] * rate_per_s], format="csr")
        done = hstack([csr_array((2 * g, k)), rows[:, 1:]], format="csr")
        memory = np.zeros((2, k + 2 * k * g))
        memory[0, :k], memory[1, :k] = self.room / self.need, 1.0
        with silence():
            found = milp(
                np.concatenate([np.asarray(costs, dtype=np.float64), np.zeros(2 * k * g)]),
                constraints=LinearConstraint(
                    vstack([used, done, csr_array(memory)], format="csr"),
                    np.concatenate([np.full(k, -np.inf), work, [1.0, 0.0]]),
                    np.concatenate([np.zeros(k), work, [np.inf, float(most_devices)]]),
                ),
                integrality=np.arange(k + 2 * k * g) < k,
                bounds=Bounds(0.0, np.inf),
                options={"mip_rel_gap": _CLOSE, "node_limit": 20_000},
            )
        dual = found.get("mip_dual_bound")
        if dual is None or not np.isfinite(dual):
            return None
        return max(0.0, float(dual) * (1 - _CLOSE))

    def _rows(self) -> tuple[csr_array, csr_array]:
        """Return the rows of what is done [2G] and of who is busy [K]; column 0 is the rate."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

        k, g = self._prompt.shape
        done, busy = np.zeros((2 * g, 1 + 2 * k * g)), np.zeros((k, 1 + 2 * k * g))
        for i in range(k):
            prompts = slice(1 + 2 * g * i, 1 + 2 * g * i + g)
            answers = slice(prompts.stop, prompts.stop + g)
            done[:g, prompts] = done[g:, answers] = np.eye(g)
            busy[i, prompts], busy[i, answers] = self._prompt[i], self._answer[i]
        return csr_array(done), csr_array(busy)


def _times(costs: Costs) -> tuple[Floats, Floats, Floats]:
    """Return least times of a prompt, an answer and a lone step in each layer [K, L + 1] [s].

    The head is the last column. Batches in which no set of devices keeps the speed limit are out.
    """
    tables, problem = costs.tables, costs.problem
    model, workload = problem.model, problem.workload
    prompt = prefill_time(tables, costs.prompt_tokens, problem.runtime.prefill_chunk_tokens)
    prompt = np.concatenate([prompt, costs.head(1)[:, None]], axis=1)
    answer = np.full_like(prompt, np.inf)
    first, can_spill = answer, tables.host_memory[:, None] > 0
    for batch in range(1, min(problem.runtime.max_slots, workload.slots or 1_000_000) + 1):
        layers = decode_time(tables, batch, costs.mean_context)
        if can_spill.any():  # host RAM may be the faster one
            layers += can_spill * np.minimum(decode_penalty(tables, batch, costs.mean_context), 0.0)
        head = head_time(tables, batch, model.head_bytes, model.head_flops_per_token)
        step = np.concatenate([layers, head[:, None]], axis=1)
        first = step if batch == 1 else first
        if batch > 1 and float(step.min(axis=0).sum()) > workload.slowest_tpot_s:
            break
        answer = np.minimum(answer, costs.output_tokens / batch * step)
    return prompt, answer, first


def _quickest_prompt(costs: Costs) -> float:
    """Return a latency that no prefill of a mean prompt beats, on whichever devices [s].

    Engines that overlap chunks wait C - 1 times for the slowest stage, which holds a layer.
    """
    tables, runtime = costs.tables, costs.problem.runtime
    layers = prefill_time(tables, costs.prompt_tokens, runtime.prefill_chunk_tokens).min(axis=0)
    total = float(layers.sum() + costs.head(1).min())
    if not runtime.is_pipelined or costs.num_chunks == 1:
        return total
    return (total + (costs.num_chunks - 1) * float(layers.max())) / costs.num_chunks
