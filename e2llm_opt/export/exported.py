"""What an exporter answers: files and commands, or the reason why the engine cannot do it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from e2llm_opt.export.folder import write_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

NEAREST = "nearest-plan.json"
"""The file that holds the nearest plan which the engine can express."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand:
    """One process: where it runs, its words, and its environment variables."""

    device: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A plan put into one engine's words.

    Parameters
    ----------
    engine
        Its name.
    files
        Text of each file by its path inside the folder; those that begin with ``#!`` are
        executable.
    commands
        What runs, in the order of starting.
    not_expressible
        Why the engine cannot express the plan; None where it can. There are no commands then,
        and the only file is :data:`NEAREST`, if there is a nearest plan.
    warnings
        What the engine does otherwise than the plan says, and what must be known.
    """

    engine: str
    files: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[ExportCommand, ...] = ()
    not_expressible: str | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the answer of ``e2llm-opt export --json``."""
        return {
            "engine": self.engine,
            "files": dict(self.files),
            "commands": [
                {"device": own.device, "argv": list(own.argv), "env": dict(own.env)}
                for own in self.commands
            ],
            "not_expressible": self.not_expressible,
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def write(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write all files into a new folder, which is complete or absent.

        Parameters
        ----------
        folder
            A folder that does not exist yet.
        force
            Replace what an earlier export wrote there. Other files in the folder stay.

        Raises
        ------
        InputError
            When the folder exists, was not written by an export, or the system refuses.
        """
        write_folder(folder, self.files, force=force)
