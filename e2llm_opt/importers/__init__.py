"""From what people have to an inventory: one module a source, each reading one kind of output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.importers.found import Found


class Source(NamedTuple):
    """A kind of output that can be imported.

    Parameters
    ----------
    name
        On the command line.
    module
        In this folder; its ``read(text, where)`` returns what a file called *where* says.
    command
        What produces such a file.
    names_host
        Whether the output says which machine it is of; else the file's name, or the user, does.
    """

    name: str
    module: str
    command: str
    names_host: bool = True

    def read(self, text: str, where: str, host: str = "") -> Found:
        """Return what *text*, of a file called *where* and of the machine *host*, says.

        Raises
        ------
        InputError
            When it is not this source's output, with the line; or when it needs no *host*.
        """
        module = import_module(f"e2llm_opt.importers.sources.{self.module}")
        if not self.names_host:
            return cast("Callable[[str, str, str], Found]", module.read)(text, where, host)
        if host:
            wrong = f"--host: the output of {self.name} names its machines"
            raise InputError([Fault(wrong=wrong, right="change names with --name FOUND=NAME")])
        return cast("Callable[[str, str], Found]", module.read)(text, where)


SOURCES = (
    Source(
        "nvidia-smi",
        "nvidia_smi",
        "nvidia-smi --query-gpu=index,name,uuid,memory.total,memory.used --format=csv",
        names_host=False,
    ),
    Source("llama-server", "llama_server", "llama-server --list-devices", names_host=False),
    Source("iperf3", "iperf3", "iperf3 -c HOST -J"),
    Source("ping", "ping", "ping -c 20 HOST", names_host=False),
    Source("kubernetes", "kubernetes", "kubectl get nodes -o json"),
    Source("gpustack", "gpustack", "curl -H 'Authorization: Bearer KEY' URL/v2/workers"),
    Source("ansible", "ansible", "ansible all -m setup"),
    Source("ray", "ray", "the cluster YAML of ray up"),
    Source("parallax", "parallax", "curl URL/cluster/status_json"),
    Source(
        "graph", "graph", "networkx.write_graphml, or json.dump(networkx.node_link_data(graph))"
    ),
)
"""Every source, in the order of the documentation."""


def source(name: str) -> Source:
    """Return the source called *name*, one of :data:`SOURCES`."""
    return next(one for one in SOURCES if one.name == name)


__all__ = ["SOURCES", "Source", "source"]
