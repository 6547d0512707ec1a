"""What a shell completes an argument to: files, catalogue names, devices of the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import click

    Items = list[CompletionItem[str]]
    Complete = Callable[[click.Context, click.Parameter, str], Items]

_FILE = "file"


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Leave it to the shell, which knows files best."""
    return [CompletionItem(incomplete, type=_FILE)]


def catalogue(kind: str) -> Complete:
    """Complete to the catalogue's names of *kind*; for models also to files."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        items = [
            CompletionItem(key, help=name)
            for key, name in _names(kind)
            if key.startswith(incomplete.lower())
        ]
        return items or (files(ctx, param, incomplete) if kind == "models" else [])

    return complete


def choice_of(option: str) -> Complete:
    """Complete to the words that *option* knows."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
        return [CompletionItem(word) for word in _words(option) if word.startswith(incomplete)]

    return complete


def planners(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Complete the last of several planners that commas separate."""
    from e2llm_opt.planners import PLANNERS

    before, comma, last = incomplete.rpartition(",")
    named = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{name}")
        for name in PLANNERS
        if name.startswith(last) and name not in named
    ]


def engines(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Complete to the engines that a plan can be exported to."""
    from e2llm_opt.export.engines import ENGINES

    return [CompletionItem(name) for name in ENGINES if name.startswith(incomplete.lower())]


def devices(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Complete to the devices of the inventory that the command line names before."""
    try:
        path = _inventory(ctx)
        names = list(_devices(path)) if path else []
    except InputError:  # the command itself says what is wrong with the file
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def devices_or_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Complete to the devices of the inventory that an option names before, else to all types."""
    path = ctx.params.get("inventory")
    if path is None:
        return catalogue("devices")(ctx, param, incomplete)
    try:
        names = list(_devices(path))
    except InputError:  # the command itself says what is wrong with the file
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _inventory(ctx: click.Context) -> str | None:
    """Return the inventory file; behind an option without a value click leaves words unparsed."""
    parsed: str | None = ctx.params.get("inventory")
    arguments = [param.name for param in ctx.command.params if param.param_type_name == "argument"]
    place = arguments.index("inventory")
    return parsed or (ctx.args[place] if len(ctx.args) > place else None)


def _names(kind: str) -> list[tuple[str, str]]:
    from e2llm_opt.catalogue import catalogue as tables

    if kind == "models":
        return [(entry.key, entry.name) for entry in tables.model_entries()]
    if kind == "devices":
        return [(device.key, device.name) for device in tables.device_entries()]
    if kind == "runtimes":
        return [(row.key, "") for row in tables.runtime_rows()]
    rows = tables.weight_format_rows()
    if kind == "kv_cache":
        rows = tuple(row for row in rows if row.kv_cache_bits is not None)
    return [(row.key, "") for row in rows]


def _words(option: str) -> list[str]:
    from typing import get_args

    from e2llm_opt.constraints import Roles
    from e2llm_opt.problem import Objective
    from e2llm_opt.workload.scenarios import Risk

    if option == "objective":
        return [str(word) for word in Objective]
    if option == "risk":
        return [str(word) for word in Risk]
    return list(get_args(Roles))


def _devices(path: str) -> Iterator[str]:
    """Yield the names of an inventory's devices, those with a count also one by one."""
    from e2llm_opt.loading.yaml_file import read_document

    document, _ = read_document(path)
    listed: Any = document.value.get("devices")
    for entry in listed if isinstance(listed, list) else []:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        yield name
        count = entry.get("count", 1)
        if isinstance(count, int) and count > 1:
            yield from (f"{name}-{i}" for i in range(1, min(count, _MOST) + 1))


_MOST = 1000
"""Nobody picks from more names than this."""
