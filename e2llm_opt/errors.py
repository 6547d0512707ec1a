"""What can go wrong because of the input: every fault at once, with place and remedy."""

from collections.abc import Iterable
from dataclasses import dataclass


class E2LLMError(Exception):
    """Base of every error that this package raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with the input.

    Parameters
    ----------
    wrong
        What is wrong, as a sentence fragment: ``unknown key``, ``must be positive, got -3``.
    right
        What would be right, or an empty string where nothing can be said.
    path
        Key path inside the file, such as ``devices[2].memory_gib``; empty for the whole file.
    file
        File name as the user gave it; empty for objects built in Python.
    line
        1-based line in the file; 0 where there is none.
    """

    wrong: str
    right: str = ""
    path: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return ``file:line: path: wrong; right``, leaving out what is not known."""
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        text = f"{self.wrong}; {self.right}" if self.right else self.wrong
        return ": ".join(part for part in (place, self.path, text) if part)


class InputError(E2LLMError):
    """The input cannot be used; carries all its faults.

    Parameters
    ----------
    faults
        At least one fault, or one sentence (which becomes one fault).
    """

    def __init__(self, faults: Iterable[Fault] | str) -> None:
        given = (Fault(wrong=faults),) if isinstance(faults, str) else tuple(faults)
        self.faults: tuple[Fault, ...] = given
        super().__init__("\n".join(str(fault) for fault in given))
