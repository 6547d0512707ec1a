"""``e2llm-opt probe``: this machine as an entry of an inventory."""

from __future__ import annotations

import os

import click

from e2llm_opt.cli.importing import target_options, write_found


@click.command("probe")
@click.option("--name", default="", help="What to call it; its host name unless given.")
@target_options
@click.option("-q", "--quiet", is_flag=True, help="Print no notes.")
def command(name: str, into: str | None, output: str | None, quiet: bool) -> None:
    """Describe this machine: its graphics cards, or its CPU with the RAM.

    Nothing is measured. What the machine does not say of itself comes from the catalogue, with a
    comment that says so, or is left to fill in.

    \b
    Examples:
      e2llm-opt probe
      e2llm-opt probe --name tower --into homelab.yaml
      ssh pi e2llm-opt probe >> pi.yaml
    """
    from e2llm_opt.importers.machine import this_machine
    from e2llm_opt.importers.probe import probed, refuse_card
    from e2llm_opt.text_file import read_text

    found = probed(this_machine(), name)
    if into and os.path.lexists(into):
        refuse_card(found, read_text(into), into)
    write_found(found, "probe", into=into, output=output, is_quiet=quiet)
