"""Which catalogue model and weight format a llama-bench row is of, by its file and its type."""

from __future__ import annotations

import re
from functools import cache

from e2llm_opt.catalogue.catalogue import (
    model_entries,
    model_entry,
    weight_format_row,
    weight_format_rows,
)
from e2llm_opt.catalogue.names import UnknownNameError

_PART = re.compile(r"-\d{5}-of-\d{5}$")
_MOST_DROPPED = 4
"""Words that may stand behind a model's name in a file name: ``Instruct``, ``2507`` …"""
_NEAR = 0.02
"""Parameter counts that differ by less are those of one model."""
_SIZES = {"small": "s", "medium": "m", "large": "l"}
_TYPE = re.compile(
    r"(?P<format>(?:IQ|Q|TQ)\d\w*|B?F16|F32|MXFP4)\b(?:\s*-\s*(?P<size>Small|Medium|Large))?",
    re.IGNORECASE,
)


def weights_of(model_type: str, filename: str) -> str:
    """Return the weight format that llama-bench's *model_type* or a file name ends in, or "".

    Examples
    --------
    >>> weights_of("qwen2 7B Q4_K - Medium", "")
    'q4_k_m'
    >>> weights_of("", "models/Llama-3.2-3B-Instruct-Q8_0.gguf")
    'q8_0'
    """
    found = list(_TYPE.finditer(model_type))
    if found:
        word, size = found[-1]["format"], found[-1]["size"]
        known = _format(f"{word}_{_SIZES[size.lower()]}" if size else word)
        if known:
            return known
    return _split(_stem(filename))[1]


def models_of(model_type: str, filename: str, num_params: float) -> tuple[str, ...]:
    """Return catalogue keys that the row may mean, the most likely first.

    By the file's name; else by the family in *model_type* and the number of parameters, where all
    models that fit are built alike.
    """
    named = _by_name(_split(_stem(filename))[0])
    return tuple(dict.fromkeys(key for key in (named, _by_size(model_type, num_params)) if key))


def _stem(filename: str) -> str:
    name = re.split(r"[/\\]", filename)[-1]
    return _PART.sub("", re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE))


def _split(stem: str) -> tuple[str, str]:
    """Return the name of a model file and its weight format, or "" where it ends in none."""
    for match in re.finditer(r"[-._]", stem):  # the longest ending first: mxfp4_moe, not moe
        known = _format(stem[match.end() :])
        if known:
            return stem[: match.start()], known
    return stem, ""


def _format(word: str) -> str:
    """Return the key of a weight format, where *word* is one of its names and not just like one."""
    if not re.fullmatch(r"[A-Za-z]\w*", word):
        return ""
    try:
        return weight_format_row(word).key if word.lower() in _format_names() else ""
    except UnknownNameError:
        return ""


@cache
def _format_names() -> frozenset[str]:
    return frozenset(name for row in weight_format_rows() for name in (row.key, *row.aliases))


def _by_name(name: str) -> str:
    """Return the model that *name* means: without an owner before it and words behind it."""
    starts = [0, *(match.end() for match in re.finditer(r"_", name))]
    for start in starts:
        words = re.split(r"[-_ ]", name[start:])
        for kept in range(len(words), max(0, len(words) - _MOST_DROPPED - 1), -1):
            try:
                return model_entry("-".join(words[:kept])).key
            except UnknownNameError:
                continue
    return ""


def _by_size(model_type: str, num_params: float) -> str:
    family = re.match(r"[a-z-]+", model_type.lower())
    if family is None or num_params <= 0:
        return ""
    near = [
        entry
        for entry in model_entries()
        if entry.key.startswith(family[0].rstrip("-"))
        and entry.params_b
        and abs(entry.params_b * 1e9 / num_params - 1) < _NEAR
    ]
    is_one = len({repr(sorted(entry.facts.items())) for entry in near}) == 1
    return near[0].key if is_one else ""
