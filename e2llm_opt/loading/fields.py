"""Types of single values in a file: strict, finite, and with messages people understand."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

_YES = frozenset({"yes", "on", "true"})
_NO = frozenset({"no", "off", "false"})
_MAX_NAME = 200


class Section(BaseModel):
    """One mapping of the file; unknown keys are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def given(self, *keys: str) -> dict[str, Any]:
        """Return those of *keys* (or of all) that the file gives."""
        return {key: getattr(self, key) for key in keys if key in self.model_fields_set}


def shown(value: Any) -> str:  # noqa: ANN401 - a file's value may be anything
    """Return *value* for a message: short, and with its kind where that is the point."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"  # noqa: PLR2004


def fault(wrong: str, right: str = "") -> NoReturn:
    """Refuse a value from inside a pydantic validator."""
    template = "{wrong}"
    raise PydanticCustomError("fault", template, {"wrong": wrong, "right": right})


def _number(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        fault(f"must be a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        fault(f"must be a finite number, got {number:.12g}")
    return number


def _whole(value: Any) -> int:  # noqa: ANN401
    number = _number(value)
    if not number.is_integer():
        fault(f"must be a whole number, got {number:.12g}")
    return int(value)


def _text(value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, str):
        hint = "put it in quotes" if isinstance(value, int | float) else ""
        fault(f"must be text, got {shown(value)}", hint)
    if not value.strip():
        fault("must not be empty")
    if len(value) > _MAX_NAME or not value.isprintable() or value != value.strip():
        fault(
            f"is not a usable name: {shown(value)}",
            f"at most {_MAX_NAME} printable characters, no space around them",
        )
    return value


def _switch(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in _YES | _NO:
        fault(f"must be yes or no, got {shown(value)}")
    return word in _YES


def _all(value: Any) -> str:  # noqa: ANN401
    if value != "all":
        fault(f"must be all or a list of ends, got {shown(value)}", "write [tower, lan]")
    return "all"


Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, BeforeValidator(_text)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Tokens = Annotated[Number, Field(ge=1, le=1e8)]
AllHosts = Annotated[str, BeforeValidator(_all)]

# A value with two forms is a tagged union, so that only the form meant is checked; the tags are
# in angle brackets and never reach a message.
AsNumber = Tag("<number>")
AsMapping = Tag("<mapping>")
NumberOrMapping = Discriminator(
    lambda value: "<mapping>" if isinstance(value, Mapping) else "<number>"
)
AsRange = Tag("<range>")


def _form(value: Any) -> str:  # noqa: ANN401 - a file's value may be anything
    if not isinstance(value, Mapping):
        return "<number>"
    return "<range>" if {"low", "high"} & set(value) else "<mapping>"


NumberOrRange = Discriminator(lambda value: "<range>" if isinstance(value, Mapping) else "<number>")
NumberMappingOrRange = Discriminator(_form)
AsWord = Tag("<word>")
AsList = Tag("<list>")
WordOrList = Discriminator(lambda value: "<list>" if isinstance(value, list) else "<word>")
