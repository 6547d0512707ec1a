"""What an exporter decides: processes in the order of starting, and who is asked by users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from e2llm_opt.export.addresses import in_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.export.setup import ReplicaSetup, StageSetup

HealthKind = Literal["http", "tcp", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How to ask a process whether it serves.

    Parameters
    ----------
    kind
        ``http``: it answers at *path*; ``tcp``: its port is open; ``process``: it runs.
    """

    kind: HealthKind = "process"
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process on one device.

    Parameters
    ----------
    title
        What it is, in a few words.
    device, folder
        Where it runs, and where its scripts go.
    stage, replica
        What it belongs to; None for a router.
    argv, env
        Its words and environment variables.
    host, port
        Where it listens.
    shell
        Positions in *argv* that only the machine itself can fill in, with the shell words that
        do. They hold nothing but words of ours and checked hosts.
    is_awaited
        Whether the next process of its folder starts only once this one listens.
    caution
        What whoever starts it must know; it is printed then.
    """

    title: str
    device: str
    folder: str
    argv: tuple[str, ...]
    host: str
    port: int
    stage: StageSetup | None = None
    replica: ReplicaSetup | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    shell: Mapping[int, str] = field(default_factory=dict)
    is_awaited: bool = False
    caution: str = ""

    @property
    def url(self) -> str:
        """Where it answers HTTP."""
        return f"http://{in_url(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What users' requests may be sent to.

    Parameters
    ----------
    share
        Part of the requests, relative to the other endpoints.
    slots
        Requests it serves at once.
    health
        Path at which it says that it serves; empty where it has none.
    """

    name: str
    host: str
    port: int
    share: float
    slots: int
    health: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A plan in the words of one engine.

    Parameters
    ----------
    processes
        In the order of starting.
    endpoints
        With several, a front door is written that shares requests between them.
    files
        Further files by path.
    needs
        What must be installed, a sentence.
    notes
        What the reader of the README must know, a paragraph each.
    warnings
        What the engine does otherwise than the plan says.
    has_scripts
        Whether each device gets scripts; containers start without.
    """

    processes: tuple[Process, ...]
    needs: str
    endpoints: tuple[Endpoint, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    has_scripts: bool = True
