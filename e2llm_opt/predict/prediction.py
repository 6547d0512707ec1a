"""What is predicted of one device or pipeline: both phases, memory, and what limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from e2llm_opt.cost.bounds import BoundBy, Shares
    from e2llm_opt.provenance import Provenance

PREDICTION_SCHEMA: Final = "e2llm-opt/prediction/v1"
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPhase:
    """Speed of one phase.

    Parameters
    ----------
    tokens_per_s
        Prefill: of one prompt alone. Decode: of all requests of the batch together.
    seconds
        Prefill: until the whole prompt is computed. Decode: per output token of each request
        (TPOT) [s].
    tokens_per_s_interval, seconds_interval
        80 % of machines of these types lie between.
    bound_by, shares
        What takes most of the time, and the share of each cause.
    """

    tokens_per_s: float
    tokens_per_s_interval: Interval
    seconds: float
    seconds_interval: Interval
    bound_by: BoundBy
    shares: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStage:
    """One device with its layers.

    Parameters
    ----------
    device, type
        Its name, and its catalogue entry or an empty string.
    layers
        ``[start, stop)``.
    spilled_layers
        Those whose feed-forward or expert weights lie in host RAM.
    weights_bytes, kv_cache_bytes, overhead_bytes
        In device memory: weights with embedding and head, KV cache of the whole batch at full
        context, the engine's buffers.
    host_bytes
        In host RAM.
    need_bytes, have_bytes
        The sum of what is in device memory, and the memory that may be planned on.
    fits
        Whether that is enough, and host RAM for what is spilled.
    prefill_s, decode_s
        The whole prompt, and one micro-batch of one step, on this device alone [s].
    """

    device: str
    type: str
    layers: tuple[int, int]
    spilled_layers: tuple[int, ...]
    weights_bytes: int
    kv_cache_bytes: int
    overhead_bytes: int
    host_bytes: int
    need_bytes: int
    have_bytes: int
    fits: bool
    prefill_s: float
    decode_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Speed and memory of one model on one device or pipeline.

    Parameters
    ----------
    model, weights, kv_cache, runtime
        What runs, in which formats, on which engine.
    batch
        Requests that are decoded at once.
    micro_batches
        Into so many they are divided, so that stages work at the same time.
    prompt_tokens, context_tokens
        Prompt of the prefill; what each request holds in its KV cache when it decodes.
    prefill, decode
        The two phases.
    stages
        Devices in pipeline order with their layers.
    unused_devices
        Devices that would only slow the pipeline down, and get no layers.
    fits, need_bytes, have_bytes
        Whether every stage fits into memory, and the sums over all stages.
    warnings
        What a reader must know: memory that is missing, devices left out, a context beyond the
        model's.
    provenance
        The worst origin of the devices' numbers.
    """

    schema: Literal["e2llm-opt/prediction/v1"] = PREDICTION_SCHEMA
    model: str
    weights: str
    kv_cache: str
    runtime: str
    batch: int
    micro_batches: int
    prompt_tokens: float
    context_tokens: int
    prefill: PredictedPhase
    decode: PredictedPhase
    stages: tuple[PredictedStage, ...]
    unused_devices: tuple[str, ...]
    fits: bool
    need_bytes: int
    have_bytes: int
    warnings: tuple[str, ...]
    provenance: Provenance

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, nested ones as mappings."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the prediction as JSON text, fields in a fixed order."""
        from e2llm_opt.plan.json_file import dump_json  # noqa: PLC0415 - pydantic is slow to import

        return dump_json(self.to_dict())
