"""``model``, ``weights``, ``kv_cache`` and ``runtime`` to ModelFacts, format names and Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.catalogue.catalogue import kv_cache_format_row, weight_format_row
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.errors import InputError
from e2llm_opt.loading.fields import Text, shown
from e2llm_opt.loading.schema import RuntimeEntry
from e2llm_opt.loading.validate import checked, unknown_key
from e2llm_opt.model.build import build_model, is_format_of
from e2llm_opt.model.hf_config import FACT_KEYS, facts_from_config
from e2llm_opt.model.named import facts_at
from e2llm_opt.runtime import Runtime, runtime

if TYPE_CHECKING:
    from e2llm_opt.loading.document import Faults
    from e2llm_opt.model.facts import ModelFacts

_CONFIG_MARKS = ("architectures", "model_type", "transformers_version")
_GIVE_A_MODEL = (
    "a catalogue name, a path to config.json or to a .gguf, or a mapping; here or with --model"
)


def read_model(faults: Faults) -> ModelFacts | None:
    """Return the facts of the model that the document names; None, and faults, otherwise."""
    value = faults.document.value.get("model")
    try:
        if value is None:
            faults.add(("model",), "missing", _GIVE_A_MODEL)
        elif isinstance(value, dict):
            return _from_mapping(value, faults)
        elif isinstance(value, str):
            return _from_name(value, faults)
        else:
            faults.add(("model",), f"must be a name or a mapping, got {shown(value)}")
    except UnknownNameError as error:
        faults.absorb(error, ("model",), "e2llm-opt catalog models lists those known")
    except InputError as error:
        faults.absorb(error, ("model",))
    return None


def read_runtime(faults: Faults) -> Runtime | None:
    """Return the serving engine with the document's overrides; None, and faults, otherwise."""
    value = faults.document.value.get("runtime", "generic")
    mapping = {"name": value} if isinstance(value, str) else value
    entry: RuntimeEntry | None = checked(RuntimeEntry, mapping, ("runtime",), faults)
    name = mapping.get("name", "generic") if isinstance(mapping, dict) else None
    try:
        if isinstance(name, str):
            return runtime(name, **({} if entry is None else entry.si()))
    except InputError as error:
        faults.absorb(error, ("runtime",) if isinstance(value, str) else ("runtime", "name"))
    return None


def read_formats(
    model: ModelFacts | None, engine: Runtime | None, faults: Faults
) -> dict[str, str]:
    """Return ``weights`` and ``kv_cache`` where the document gives them, tried on the model."""
    formats: dict[str, str] = {}
    for key, look_up in (("weights", weight_format_row), ("kv_cache", kv_cache_format_row)):
        if key not in faults.document.value:
            continue
        word = checked(Text, faults.document.value[key], (key,), faults)
        if key == "weights" and word is not None and _is_of_a_file(model, word, faults):
            continue
        try:
            formats |= {} if word is None else {key: look_up(word).key}
        except InputError as error:
            faults.absorb(error, (key,))
    if model is not None and engine is not None:
        try:
            build_model(
                model,
                **{"weights": model.weights or "f16", "kv_cache": "f16", **formats},
                kv_layout=engine.kv_layout,
            )
        except InputError as error:
            faults.absorb(error, ("model",))
    return formats


def _is_of_a_file(model: ModelFacts | None, weights: str, faults: Faults) -> bool:
    """Whether a file has its own weights; noting where it is asked for others."""
    if model is None:  # no second fault where the file cannot be read
        name = faults.document.value.get("model")
        return isinstance(name, str) and name.lower().endswith(".gguf")
    if model.weights and not is_format_of(model, weights):
        wrong = f"the .gguf file decides, and it is {model.weights}, not {shown(weights)}"
        faults.add(("weights",), wrong, f"leave weights out, or give {model.weights}")
    return bool(model.weights)


def _from_mapping(value: dict[str, Any], faults: Faults) -> ModelFacts | None:
    """Return the facts given in the file itself; only a whole config.json may say more."""
    facts_given = {key: item for key, item in value.items() if key != "name"}
    name = checked(Text, value.get("name", "model"), ("model", "name"), faults)
    if not any(mark in value for mark in _CONFIG_MARKS):
        for key in facts_given:
            if key not in FACT_KEYS:
                faults.add(("model", key), *unknown_key(key, sorted(FACT_KEYS)))
    if faults.at(("model",)):
        return None
    return facts_from_config(facts_given, name=name)


def _from_name(value: str, faults: Faults) -> ModelFacts | None:
    """Return the facts of a catalogue entry, of a ``config.json`` or of a ``.gguf`` file."""
    name = checked(Text, value, ("model",), faults)
    if name is None:
        return None
    return facts_at(value, faults.document.beside(("model",), value))
