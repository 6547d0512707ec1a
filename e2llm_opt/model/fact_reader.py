"""Typed values out of an untyped configuration, collecting every fault by its key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from e2llm_opt.errors import Fault
from e2llm_opt.model.fact_faults import MAX_BYTES, MAX_FACT

STAGE_START_KEYS = ("first", "modulo", "remainder")


class FactReader:
    """Reads values of a configuration; ``null`` is the same as no key at all.

    Parameters
    ----------
    config
        Keys → values as JSON or YAML gave them.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.faults: list[Fault] = []

    def given(self, key: str) -> Any:  # noqa: ANN401 - whatever the file says
        """Return the value of *key* as it stands; None when there is none."""
        return self._config.get(key)

    def fault(self, key: str, wrong: str, right: str = "") -> None:
        """Note what is wrong with *key*."""
        self.faults.append(Fault(path=key, wrong=wrong, right=right))

    def is_faulty(self, *keys: str) -> bool:
        """Whether one of *keys* has been found wrong."""
        return any(fault.path in keys for fault in self.faults)

    def whole(self, *keys: str) -> int | None:
        """Return the first given of *keys* as a whole number; None when there is none."""
        for key in keys:
            value = self.given(key)
            if value is None:
                continue
            if not _is_number(value) or value != math.floor(value):
                self.fault(key, f"must be a whole number, got {_shown(value)}")
            elif not 0 <= value <= MAX_FACT:
                self.fault(key, f"must be between 0 and {MAX_FACT:,}, got {_shown(value)}")
            else:
                return int(value)
            return None
        return None

    def flag(self, *keys: str) -> bool | None:
        """Return the first given of *keys* as yes or no; None when there is none."""
        for key in keys:
            value = self.given(key)
            if isinstance(value, bool):
                return value
            if value is not None:
                self.fault(key, f"must be true or false, got {_shown(value)}")
        return None

    def size(self, key: str) -> float | None:
        """Return *key* as a number of bytes or FLOP; None when there is none."""
        value = self.given(key)
        return None if value is None else self._size(key, value)

    def per_layer(self, key: str) -> float | tuple[float, ...] | None:
        """Return *key* as one number or one number a layer; None when there is none."""
        value = self.given(key)
        if not _is_list(value):
            return self.size(key)
        sizes = [self._size(f"{key}[{layer}]", item) for layer, item in enumerate(value)]
        return tuple(size for size in sizes if size is not None)

    def stage_starts(self, key: str, num_layers: int) -> tuple[int, ...] | None:
        """Return *key*, a list of layers or ``{first, modulo, remainder}``; None: all layers."""
        value = self.given(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return self._periodic_starts(key, value, num_layers)
        if not _is_list(value) or not all(_is_whole(item) for item in value):
            right = "a list of layers, or {first:, modulo:, remainder:}"
            self.fault(key, f"cannot be {_shown(value)}", right)
            return None
        return tuple(int(item) for item in value)

    def _periodic_starts(
        self, key: str, value: Mapping[str, Any], num_layers: int
    ) -> tuple[int, ...]:
        for unknown in sorted(set(map(str, value)) - set(STAGE_START_KEYS)):
            self.fault(f"{key}.{unknown}", "unknown key", f"one of {', '.join(STAGE_START_KEYS)}")
        reader = FactReader({name: value.get(name) for name in STAGE_START_KEYS})
        first = reader.whole("first") or 0
        modulo = reader.whole("modulo")
        remainder = reader.whole("remainder") or 0
        for fault in reader.faults:
            self.fault(f"{key}.{fault.path}", fault.wrong)
        if not modulo:
            if not reader.is_faulty("modulo"):
                self.fault(f"{key}.modulo", "must be a positive whole number")
            return ()
        return tuple(
            layer for layer in range(first, num_layers) if layer % modulo == remainder % modulo
        )

    def _size(self, key: str, value: object) -> float | None:
        if not _is_number(value):
            self.fault(key, f"must be a number, got {_shown(value)}")
        elif not 0 <= value <= MAX_BYTES:
            self.fault(key, f"must be between 0 and {MAX_BYTES:g}, got {_shown(value)}")
        else:
            return float(value)
        return None


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _is_whole(value: object) -> bool:
    return _is_number(value) and value == math.floor(value)


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    limit = 40
    return text if len(text) <= limit else text[:limit] + "…"
