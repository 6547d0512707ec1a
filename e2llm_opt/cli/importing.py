"""``e2llm-opt import``: what other tools print, as an inventory or into one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from e2llm_opt.cli import words
from e2llm_opt.cli.names import Pair
from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from e2llm_opt.cli.problem import AnyFunction
    from e2llm_opt.importers.found import Found

_STANDARD_INPUT = "-"


class _SourceName(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """A source, read late: the list of them is not needed to print the help of others."""

    name = "source"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the source's name, or fail as a usage error that lists all."""
        from e2llm_opt.importers import SOURCES

        names = [source.name for source in SOURCES]
        if value not in names:
            self.fail(f"{value!r} is not one of {', '.join(names)}.", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the sources that start so."""
        from e2llm_opt.importers import SOURCES

        del ctx, param
        return [CompletionItem(s.name) for s in SOURCES if s.name.startswith(incomplete)]


def target_options(function: AnyFunction) -> AnyFunction:
    """Add what says where an inventory goes."""
    into = click.option(
        "--into",
        help="Merge into this inventory, comments kept; a new file is made where there is none.",
        shell_complete=words.files,
    )
    output = click.option(
        "-o",
        "--output",
        help="Write the inventory here instead of into --into; - is standard output.",
        shell_complete=words.files,
    )
    return into(output(function))


@click.command("import")
@click.argument("source", type=_SourceName())
@click.argument("files", nargs=-1, required=True, shell_complete=words.files)
@target_options
@click.option(
    "--name",
    "names",
    type=Pair("FOUND=NAME", "192.168.1.7=mini"),
    multiple=True,
    help="Call what the files call FOUND, a name or an address, NAME; may be repeated.",
)
@click.option("--host", help="The machine that the output of nvidia-smi, ping ... is of.")
@click.option("--interface", help="Call the links so, where two machines have several.")
@click.option("-q", "--quiet", is_flag=True, help="Print no notes.")
def command(
    source: str,
    files: tuple[str, ...],
    into: str | None,
    output: str | None,
    names: tuple[tuple[str, str], ...],
    host: str | None,
    interface: str | None,
    quiet: bool,
) -> None:
    """Turn FILES, what SOURCE printed, into an inventory; - is standard input.

    SOURCE is nvidia-smi, llama-server, iperf3, ping, kubernetes, gpustack, ansible, ray, parallax
    or graph. Several files are of one source each time: of iperf3 in both directions, or one a
    machine. What SOURCE does not know comes from the catalogue, with a comment that says so.

    \b
    Examples:
      e2llm-opt import nvidia-smi tower.csv
      e2llm-opt import iperf3 there.json back.json --name 192.168.1.7=mini --into lab.yaml
      ping -c 20 mini | e2llm-opt import ping - --host tower --into lab.yaml
      kubectl get nodes -o json | e2llm-opt import kubernetes - -o lab.yaml
    """
    from e2llm_opt.importers.combine import combined

    found = combined(_read(source, files, host), dict(names), interface=interface or "")
    write_found(found, source, into=into, output=output, is_quiet=quiet)


def write_found(
    found: Found, source: str, *, into: str | None, output: str | None, is_quiet: bool
) -> None:
    """Write what was found, as a new inventory or into the text of one, and its notes."""
    from e2llm_opt.importers.inventory import inventoried
    from e2llm_opt.plan.output import STANDARD_OUTPUT, write_text_atomically
    from e2llm_opt.text_file import read_text

    text = read_text(into) if into and os.path.lexists(into) else ""
    result = inventoried(found, source, into=text, file=into or "")
    target = output or into or STANDARD_OUTPUT
    write_text_atomically(target, result.text)
    for note in () if is_quiet else result.notes:
        click.echo(note, err=target == STANDARD_OUTPUT)


def _read(name: str, files: tuple[str, ...], host: str | None) -> list[Found]:
    """Return what each file says; all that are wrong are reported at once."""
    from e2llm_opt.importers import source
    from e2llm_opt.importers.found import STANDARD_INPUT
    from e2llm_opt.text_file import decoded, read_text

    found: list[Found] = []
    faults: list[Fault] = []
    for file in files:
        try:
            if file == _STANDARD_INPUT:
                text = decoded(sys.stdin.buffer.read(), file=STANDARD_INPUT)
            else:
                text = read_text(file, max_bytes=_MAX_BYTES)
            where = STANDARD_INPUT if file == _STANDARD_INPUT else file
            found.append(source(name).read(text, where, host or ""))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return found


_MAX_BYTES = 64 * 2**20
"""A long ``iperf3 -J`` or a thousand nodes of Kubernetes are some MiB."""
