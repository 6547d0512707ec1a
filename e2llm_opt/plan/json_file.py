"""Plans as JSON: fixed key order out, every fault at once in, and an exact round trip."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.plan.infeasible import INFEASIBLE_SCHEMA, Infeasible
from e2llm_opt.plan.plan import PLAN_SCHEMA, Plan
from e2llm_opt.text_file import read_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

_ONLY_IF_KNOWN = ("kv_bytes", "kv_transfer_s", "break_even_bandwidth_mbit_s", "scenarios")
"""Fields that are left out where they mean nothing."""
_ONLY_IF_ANY = ("tensor_parallel",)
"""Lists that are left out where they are empty."""
_SENTENCES = {
    "missing": "missing",
    "unexpected_keyword_argument": "unknown key",
    "dataclass_type": "must be an object",
    "tuple_type": "must be a list",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "mapping_type": "must be an object",
    "dict_type": "must be an object",
}
"""pydantic's words for an error, in ours."""


def dump_json(answer: Plan | Infeasible | Mapping[str, Any]) -> str:
    """Return an answer as JSON text, ending in a newline.

    Keys stand in the order of the dataclasses' fields, numbers are written so that they read
    back to the same value.
    """
    return json.dumps(_plain(answer), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan that this program wrote.

    Raises
    ------
    InputError
        When the file cannot be read, is no JSON, or is no plan of this schema version.
    """
    return plan_from_dict(read_json_document(path), file=str(path))


def plan_from_dict(document: object, *, file: str = "") -> Plan:
    """Return the plan that a JSON document holds.

    Parameters
    ----------
    document
        Parsed JSON.
    file
        For error messages.

    Raises
    ------
    InputError
        With every missing, unknown or mistyped key.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - slow to import

    _check_schema(document, file)
    try:
        # JSON mode: lists become tuples, but nothing else is bent into its type.
        read = _file_model().model_validate_json(json.dumps({"plan": document}))
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InputError([_fault(detail, file) for detail in details]) from None
    return cast("Plan", read.plan)  # type: ignore[attr-defined]


def read_json_document(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file of any shape, such as a plan that a person wrote.

    Raises
    ------
    InputError
        When the file cannot be read, is not JSON, repeats a key, or holds a number that is not
        finite.
    """
    name = str(path)
    text = read_text(path)
    try:
        return json.loads(
            text,
            object_pairs_hook=_unrepeated,
            parse_constant=_not_finite,
            parse_float=_finite,
            parse_int=_whole,
        )
    except json.JSONDecodeError as error:
        wrong = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]} (column {error.colno})"
        is_yaml = any(line.startswith("devices:") for line in text.splitlines())
        right = "this looks like an inventory; the plan comes first" if is_yaml else ""
        raise InputError([Fault(file=name, line=error.lineno, wrong=wrong, right=right)]) from None
    except RecursionError:
        raise InputError([Fault(file=name, wrong="nested too deeply to be a plan")]) from None
    except _RefusedError as error:
        raise InputError([Fault(file=name, wrong=str(error))]) from None


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan, made from the dataclasses."""
    schema = _file_model().model_json_schema()
    definitions = schema["$defs"]
    plan = definitions.pop("Plan")
    for part in (plan, *definitions.values()):
        _simplify(part)
    plan["required"] = ["schema", *plan["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{PLAN_SCHEMA.replace('/', ':')}",
        "title": "A plan of e2llm-opt",
        **plan,
        "$defs": dict(sorted(definitions.items())),
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever an answer holds
    if is_dataclass(value):
        items = {field.name: getattr(value, field.name) for field in fields(value)}
        return {
            name: _plain(item)
            for name, item in items.items()
            if not (name in _ONLY_IF_KNOWN and item is None)
            and not (name in _ONLY_IF_ANY and not item)
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> str | bool | int | float | None:  # noqa: ANN401
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    # NumPy's numbers are registered with `numbers`; JSON knows only Python's.
    return int(value) if isinstance(value, Integral) else float(value)


@cache
def _file_model() -> type[BaseModel]:
    from pydantic import ConfigDict, create_model  # noqa: PLC0415 - slow to import

    # Plain dataclasses inherit the configuration of the model that holds them.
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model("PlanFile", __config__=config, plan=(Plan, ...))


def _check_schema(document: object, file: str) -> None:
    if not isinstance(document, Mapping):
        raise InputError([Fault(file=file, wrong="not a plan", right="a plan is a JSON object")])
    schema = document.get("schema")
    if schema == PLAN_SCHEMA:
        return
    right = f"this version reads '{PLAN_SCHEMA}'"
    if schema is None:
        wrong = "missing"
    elif schema == INFEASIBLE_SCHEMA:
        wrong, right = "this file says why there is no plan", "a plan is needed here"
    else:
        wrong = f"unknown version {json.dumps(schema)[:60]}"
    raise InputError([Fault(file=file, path="schema", wrong=wrong, right=right)])


def _fault(detail: ErrorDetails, file: str) -> Fault:
    wrong = _SENTENCES.get(detail["type"], detail["msg"])
    if wrong.startswith("must be"):
        wrong += f", got {json.dumps(detail['input'], default=str)[:60]}"
    return Fault(file=file, path=_spelled(detail["loc"][1:]), wrong=wrong)


def _spelled(path: Sequence[str | int]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


class _RefusedError(ValueError):
    """Something that JSON allows and we do not."""


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in document if keys.count(key) > 1)
        message = f"the key '{twice}' stands twice in one object"
        raise _RefusedError(message)
    return document


def _not_finite(text: str) -> float:
    message = f"{text} is no number that a plan can hold"
    raise _RefusedError(message)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_finite(text)


def _whole(text: str) -> int:
    # Python refuses thousands of digits; no count of bytes has that many.
    return int(text) if len(text) <= 30 else int(_finite(text))  # noqa: PLR2004


def _simplify(part: dict[str, Any]) -> None:
    """Drop the titles that repeat the key, and the line breaks of a docstring."""
    part.pop("title", None)
    if "description" in part:
        part["description"] = part["description"].split("\n\n")[0].replace("\n", " ")
    for entry in part.get("properties", {}).values():
        entry.pop("title", None)
