"""Documents as YAML text, written by a library: nothing in a name can become a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.export.names import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable


def yaml_text(documents: Iterable[Any], comment: str = "") -> str:
    """Return *documents* as YAML, keys in their order, below a comment of one line."""
    import yaml  # noqa: PLC0415 - only a few engines need it

    class Plain(yaml.CSafeDumper):
        """Writes equal parts out twice, which people can read."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - whatever YAML holds
            del data
            return True

    text = yaml.dump_all(
        list(documents),
        Dumper=Plain,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
    return f"# {one_line(comment)}\n{text}" if comment else text
