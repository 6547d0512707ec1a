"""One value against one type: pydantic's errors become faults with place and remedy."""

from __future__ import annotations

import difflib
import re
import typing
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from e2llm_opt.loading.fields import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

    from e2llm_opt.loading.document import Faults, KeyPath

MAX_LISTED = 20
"""More keys than this are not listed for one that is like none of them."""
_UNITS = {
    "_gib": "GiB",
    "_gb_s": "GB/s (10^9 bytes a second)",
    "_mbit_s": "Mbit/s",
    "_ms": "milliseconds",
    "_us": "microseconds",
    "_tflops": "TFLOPS",
    "_tokens": "tokens",
    "tokens_per_s": "tokens a second",
    "rate_per_s": "requests a second",
    "_per_hour": "a price an hour",
    "_w": "watts",
    "ttft_s": "seconds",
    "tpot_s": "seconds",
}
_MISSING = {
    "latency_ms": "one way, about half of what ping shows",
    "bandwidth_mbit_s": "what iperf3 shows for one stream, 940 on gigabit Ethernet",
    "between": "two ends, such as [tower, lan]; or all",
    "name": "every device needs a unique name",
    "prompt_tokens": "mean length of a prompt; here, or with --prompt-tokens, or a trace",
    "output_tokens": "mean length of an answer; here, or with --output-tokens, or a trace",
    "mean": "the mean in tokens",
}


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type form
    return TypeAdapter(kind)


def checked(kind: Any, value: Any, path: KeyPath, faults: Faults) -> Any:  # noqa: ANN401
    """Return *value* as *kind*, or None after noting every fault at its own key path."""
    value = _without_empty(value, path, faults)
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            below = tuple(part for part in detail["loc"] if not str(part).startswith("<"))
            wrong, right = _sentences(detail, kind, below)
            faults.add((*path, *below), wrong, right)
        return None


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return the hint ``did you mean …?`` for a misspelt *name*, or an empty string.

    Parameters
    ----------
    most
        Offer at most so many of the *known* names.
    """
    spelling = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name.lower(), spelling, n=most, cutoff=0.55)
    return f"did you mean {' or '.join(spelling[word] for word in close)}?" if close else ""


def unknown_key(key: str, known: Iterable[str]) -> tuple[str, str]:
    """Return what is wrong with *key*, and the nearest of the *known* ones (or all)."""
    names = list(known)
    others = f"known keys: {', '.join(names)}" if len(names) <= MAX_LISTED else ""
    return "unknown key", nearest(key, names) or others


def _without_empty(value: Any, path: KeyPath, faults: Faults) -> Any:  # noqa: ANN401
    """Return *value* without keys that have no value; each is a fault."""
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            faults.add((*path, key), "has no value", "give one or remove the key")
        return {
            key: _without_empty(item, (*path, key), faults)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_empty(item, (*path, i), faults) for i, item in enumerate(value)]
    return value


def _sentences(detail: ErrorDetails, kind: Any, below: KeyPath) -> tuple[str, str]:  # noqa: ANN401
    """Return what is wrong and what would be right, for one of pydantic's errors."""
    error, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    key = str(below[-1]) if below else ""
    got = f"got {shown(value)}"
    wrong, right = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, {got}", ""
    match error:
        case "fault":
            wrong, right = context["wrong"], context["right"] or _number_hint(key, value)
        case "missing":
            wrong, right = "missing", _MISSING.get(key, _unit(key))
        case "extra_forbidden":
            wrong, right = unknown_key(key, _fields(kind, below[:-1]))
        case "greater_than_equal":
            wrong, right = _too_small(context["ge"], value, key)
        case "less_than_equal":
            wrong, right = f"must be at most {context['le']:.12g}, {got}", _unit(key)
        case "literal_error":
            words = context["expected"].replace("'", "")
            right = nearest(value, re.split(r", | or ", words)) if isinstance(value, str) else ""
            wrong = f"must be {words}, {got}"
        case "list_type":
            wrong = f"must be a list, {got}"
        case "model_type" | "dict_type":
            wrong = f"must be a mapping of keys to values, {got}"
    return wrong, right


def _too_small(least: float, value: float, key: str) -> tuple[str, str]:
    if value <= 0 < least < 1:  # the tiny bound behind "positive" would only puzzle
        return f"must be positive, got {shown(value)}", ""
    return f"must be at least {least:.12g}, got {shown(value)}", _unit(key) if least else ""


def _unit(key: str) -> str:
    unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
    return f"the unit is {unit}" if unit else ""


def _number_hint(key: str, value: Any) -> str:  # noqa: ANN401
    """Return how to write ``12 GB`` or ``1,5``: values that begin like a number."""
    match = re.match(r"\s*[-+]?[0-9.]+", value) if isinstance(value, str) else None
    if match is None or not _unit(key):
        return ""
    return f"write a plain number, {_unit(key)}"


def _fields(kind: Any, below: KeyPath) -> list[str]:  # noqa: ANN401
    """Return the keys of the section that *below* leads to inside *kind*."""
    section = kind
    for part in below:
        if isinstance(part, str):
            section = _section(section.model_fields[part].annotation)
    return list(section.model_fields)


def _section(annotation: Any) -> Any:  # noqa: ANN401
    """Return the section inside a type such as ``Section | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inside = (_section(part) for part in typing.get_args(annotation))
    return next((section for section in inside if section is not None), None)
