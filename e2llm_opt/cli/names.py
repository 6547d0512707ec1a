"""Options that take names: some of a few, or one for something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


class Names(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """``name,name``, each known and none twice.

    Parameters
    ----------
    what
        What one of them is, for messages.
    known
        All there are.
    """

    def __init__(self, what: str, known: Sequence[str]) -> None:
        self.name, self._what, self._known = f"{what}s", what, known

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names, or fail as a usage error."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if name not in self._known:
                self.fail(f"'{name}' is not one of {', '.join(self._known)}.", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"{value!r} names a {self._what} twice.", param, ctx)
        return names


class Pair(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """``192.168.1.7=mini``; what stands before the last equals sign may hold others.

    Parameters
    ----------
    form
        What stands before and behind, for messages: ``FOUND=NAME``.
    example
        One.
    """

    def __init__(self, form: str, example: str) -> None:
        self.name, self._example = form, example

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return both, or fail as a usage error."""
        if isinstance(value, tuple):
            return value
        first, equals, second = str(value).rpartition("=")
        if not equals or not first.strip() or not second.strip() or not second.isprintable():
            self.fail(f"{value!r} is not {self.name}, such as {self._example}.", param, ctx)
        return first.strip(), second.strip()
