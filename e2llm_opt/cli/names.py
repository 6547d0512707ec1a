"""Options that take some names of a few, separated by commas."""

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
