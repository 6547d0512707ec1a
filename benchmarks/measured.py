"""Reads tables of measured speeds (the columns of docs/accuracy.md) for fitting and judging."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.inventory.device import device_of_type
from e2llm_opt.model.build import build_model
from e2llm_opt.model.named import model_facts
from e2llm_opt.speed import Phase, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.model.model import Model

_FORMATS = {"q4_0?": "q4_0", "fp16": "f16", "q4 (4-bit)": "q4_0", "fp4": "nvfp4"}
_MODELS = {"deepseek-r1-671b": "deepseek-r1", "phi-3.5-mini": "phi-3-mini-4k"}
_MIX_PROMPT, _MIX_CONTEXT = 1300.0, 900.0
"""LocalScore's mean prompt, and the mean context at which it decodes [tokens]."""
_DEFAULT_PROMPT, _DEFAULT_OUTPUT = 512.0, 128.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured run.

    Parameters
    ----------
    key
        The device: no fit may see it while it is judged.
    setting
        What ran.
    prefill_per_s, decode_per_s
        Tokens a second; None where not measured [1/s].
    prompt, context
        Length of the prompt, and the mean context while decoding [tokens].
    source
        Addresses where it stands.
    """

    key: str
    model: str
    setting: Setting
    prefill_per_s: float | None
    decode_per_s: float | None
    prompt: float
    context: float
    source: tuple[str, ...] = ()

    def per_s(self, phase: Phase) -> float | None:
        """Return the measured speed of *phase* [tokens/s]; None where there is none."""
        return self.decode_per_s if phase is Phase.DECODE else self.prefill_per_s

    def tokens(self, phase: Phase) -> float:
        """Return the tokens that the time of *phase* is for: one, or the prompt."""
        return 1.0 if phase is Phase.DECODE else self.prompt


def read(path: str) -> list[Measurement]:
    """Return the runs of a CSV, one request at a time; rows without a known device are left out."""
    with open(path, encoding="utf-8", newline="") as file:  # noqa: PTH123 - a name from a command
        return list(_runs(csv.DictReader(file)))


def _runs(rows: Iterable[dict[str, str]]) -> Iterator[Measurement]:
    for row in rows:
        device = _device(row.get("device_key") or row["device"], is_cpu="CPU" in row["engine"])
        if device is None or (row.get("batch") or "1") not in {"1", "1.0"}:
            continue
        engine = engine_of(row["engine"], row.get("notes") or "")
        is_mix = engine == "llamafile"
        output = _length(row.get("decode_len"), _DEFAULT_OUTPUT)
        at_depth = "@" in (row.get("decode_len") or "")
        yield Measurement(
            key=row.get("device_key") or row["device"],
            model=row["model"],
            setting=Setting(
                device=device,
                model=model_of(row["model"], row["quant"], row["params_b"], row["active_params_b"]),
                engine=engine,
                has_flash=engine in {"llama.cpp", "ollama"} and "nofa" not in row["engine"],
            ),
            prefill_per_s=_number(row.get("prefill_tok_s")),
            decode_per_s=_number(row.get("decode_tok_s")),
            prompt=_MIX_PROMPT if is_mix else _length(row.get("prefill_len"), _DEFAULT_PROMPT),
            context=_MIX_CONTEXT if is_mix else output if at_depth else output / 2.0,
            source=tuple(re.findall(r"https?://[^\s;,]+", row.get("source") or "")),
        )


def engine_of(label: str, notes: str = "") -> str:
    """Return the engine of a table's *label*; builds that differ much are engines of their own."""
    names = {"LocalScore": "llamafile", "ollama": "ollama", "MLC": "mlc", "vLLM": "vllm"}
    for part, name in names.items():
        if part in label:
            return name
    if "Vulkan/CUDA" in label:
        return "llama.cpp-slow-host"
    if "Vulkan" in label:
        return "llama.cpp-vulkan"
    return "llama.cpp-2024" if "May 2024" in notes else "llama.cpp"


@cache
def _device(key: str, *, is_cpu: bool) -> Device | None:
    """Return the catalogue's device, or None; a PC's CPU is not the card that the row names."""
    try:
        found = device_of_type(key, name=key)
    except UnknownNameError:
        return None
    return None if is_cpu and found.memory_kind == "discrete" else found


@cache
def model_of(name: str, quant: str, params_b: str = "", active_b: str = "") -> Model:
    """Return the catalogue's model, else one of the nearest shape with the stated parameters."""
    form = quant.lower()
    weights = _FORMATS.get(form, form)
    try:
        facts = model_facts(_MODELS.get(name, name))
    except UnknownNameError:
        if not params_b:
            raise
        facts = _like(name, float(params_b), float(active_b or params_b))
    return build_model(facts, weights="mxfp4" if facts.name.startswith("gpt-oss") else weights)


def _like(name: str, params_b: float, active_b: float) -> ModelFacts:
    """Return a model of an unknown shape: that of the nearest Llama, its width scaled."""
    sizes = {"llama-3.2-1b": 1.24, "llama-3.2-3b": 3.21, "llama-3.1-8b": 8.03, "phi-4": 14.7}
    sizes["llama-3.1-70b"] = 70.6
    near = min(sizes, key=lambda key: abs(sizes[key] - params_b))
    known = model_facts(near)
    return replace(
        known,
        name=name,
        intermediate_size=round(known.intermediate_size * active_b / sizes[near]),
    )


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _length(text: str | None, otherwise: float) -> float:
    found = re.search(r"\d+", text or "")
    return float(found.group()) if found else otherwise
