"""How fast one device alone, holding the whole model, prefills and decodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.roofline import decode_time, head_time, prefill_time
from e2llm_opt.cost.tables import build_tables

if TYPE_CHECKING:
    from e2llm_opt.cost.tables import Tables
    from e2llm_opt.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneDevice:
    """The tables of one device and one model, and the speeds that follow from them.

    Parameters
    ----------
    tables
        Of a problem with a single device; memory is not asked.
    head_bytes, head_flops
        The output projection [bytes, FLOP a token].
    """

    tables: Tables
    head_bytes: float
    head_flops: float

    @staticmethod
    def of(problem: Problem) -> OneDevice:
        """Return the first device of *problem*, with all layers and the head of its model."""
        if len(problem.devices) != 1:
            msg = f"a problem of one device was expected, not of {len(problem.devices)}"
            raise ValueError(msg)
        return OneDevice(
            tables=build_tables(problem),
            head_bytes=problem.model.head_bytes,
            head_flops=problem.model.head_flops_per_token,
        )

    def scaled(self, *, prefill: float, decode: float, overhead: float) -> OneDevice:
        """Return the device with efficiencies and layer overhead so many times as large."""
        return OneDevice(
            tables=self.tables._replace(
                compute=self.tables.compute * prefill,
                bandwidth=self.tables.bandwidth * decode,
                layer_overhead=self.tables.layer_overhead * overhead,
            ),
            head_bytes=self.head_bytes,
            head_flops=self.head_flops,
        )

    def prefill_tokens_per_s(self, tokens: float, *, chunk: int, depth: float = 0.0) -> float:
        """Return the speed of a prompt of *tokens* tokens behind *depth* tokens [tokens/s]."""
        layers = prefill_time(self.tables, tokens, chunk, depth)
        return tokens / (float(np.sum(layers)) + self._head_s(1))

    def decode_tokens_per_s(self, batch: int, context: float) -> float:
        """Return the speed of *batch* requests in all, each at *context* tokens [tokens/s]."""
        layers = decode_time(self.tables, batch, context)
        return batch / (float(np.sum(layers)) + self._head_s(batch))

    def _head_s(self, batch: int) -> float:
        return float(head_time(self.tables, batch, self.head_bytes, self.head_flops)[0])
