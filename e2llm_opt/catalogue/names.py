"""Matching names whatever their case, vendor and punctuation; nearest names for unknown ones."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VENDORS = (
    *("nvidia", "geforce", "tesla", "amd", "radeon", "instinct", "intel", "arc", "apple"),
    *("qualcomm", "meta", "openai", "google", "microsoft", "the"),
)
"""Leading words that say who made a thing, and not which one it is."""
SUFFIXES = ("instruct", "chat", "it", "base", "hf", "gguf", "v0.1")
"""Endings of model names that do not change the architecture."""
NUM_NEAREST = 3
_LIKE = 0.55
"""Names that are less alike are not offered."""
MAX_LISTED = 12
"""Where nothing is near, all keys are offered if there are no more than these."""
MAX_NAME_LENGTH = 80
"""Longer names are cut before they are compared or shown [characters]."""


class UnknownNameError(InputError):
    """A name that the catalogue does not have.

    Parameters
    ----------
    kind
        What was looked up: ``device``, ``model``, ``weight format``, ``KV cache format``,
        ``runtime``.
    name
        The name as it was given.
    nearest
        Known names like it, best first; may be empty.
    """

    def __init__(self, kind: str, name: str, nearest: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest
        shown = name if len(name) <= MAX_NAME_LENGTH else name[:MAX_NAME_LENGTH] + "…"
        right = f"did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__([Fault(wrong=f"unknown {kind} '{shown}'", right=right)])


def plain(name: str) -> str:
    """Return *name* without organisation, vendor, punctuation, case and the unit of its memory.

    Examples
    --------
    >>> plain("NVIDIA GeForce RTX 3060 12GB"), plain("rtx-3060-12gb")
    ('rtx306012', 'rtx306012')
    >>> plain("meta-llama/Meta-Llama-3.1-8B")
    'llama318b'
    """
    words = _words(name)
    while len(words) > 1 and words[0] in VENDORS:
        words.pop(0)
    return _squeezed(words)


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.rsplit("/", 1)[-1].lower())


def _squeezed(words: list[str]) -> str:
    return re.sub(r"(?<=\d)gi?b$", "", "".join(words))


def without_suffixes(name: str) -> str:
    """Return *name* without endings such as ``-Instruct`` or ``-GGUF``."""
    endings = "|".join(re.escape(suffix) for suffix in SUFFIXES)
    return re.sub(rf"([-_ ]({endings}))+$", "", name, flags=re.IGNORECASE)


def index_of(names_of_key: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the plain form of every name, with its vendor and without → its key.

    Raises
    ------
    ValueError
        When two keys share a name: a mistake in the package's own data.
    """
    index: dict[str, str] = {}
    for key, names in names_of_key.items():
        for name in (key, *names):
            for form in {plain(name), _squeezed(_words(name))}:
                if index.setdefault(form, key) != key:
                    raise ValueError(f"'{name}' names both {index[form]} and {key}")
    return index


def find(kind: str, name: str, index: Mapping[str, str]) -> str:
    """Return the key that *name* means.

    Raises
    ------
    UnknownNameError
        When there is none, with the nearest keys.
    """
    short = name[: 2 * MAX_NAME_LENGTH]
    for candidate in (short, without_suffixes(short)):
        key = index.get(plain(candidate))
        if key is not None:
            return key
    nearest = nearest_keys(short, index) or _all_if_few(index)
    raise UnknownNameError(kind, name, nearest)


def nearest_keys(name: str, index: Mapping[str, str]) -> tuple[str, ...]:
    """Return up to three keys whose names are most like *name*, best first."""
    wanted, words = plain(without_suffixes(name)), set(_words(name)) - {*VENDORS}
    scores = {match: _likeness(wanted, words, match, key) for match, key in index.items()}
    close = [match for match in scores if scores[match] >= _LIKE]
    close.sort(key=lambda match: (-scores[match], len(match)))
    return tuple(dict.fromkeys(index[match] for match in close))[:NUM_NEAREST]


def _likeness(wanted: str, words: set[str], match: str, key: str) -> float:
    """Return how like a known name is: as a whole or its beginning, and by words in common.

    Digits in another order are the commonest slip in the name of a card.
    """
    begin = match[: len(wanted)]
    whole, start = (difflib.SequenceMatcher(None, wanted, one).ratio() for one in (match, begin))
    common = 0.25 * len(words & set(_words(key)))
    return max(whole, start - 0.02) + common + (0.05 if sorted(wanted) == sorted(begin) else 0.0)


def _all_if_few(index: Mapping[str, str]) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(index.values()))
    return keys if len(keys) <= MAX_LISTED else ()


def matches(search: str, names: Iterable[str]) -> bool:
    """Whether every word of *search* occurs somewhere in *names*."""
    text = " ".join(names).lower()
    squeezed = re.sub(r"[^a-z0-9]", "", text)
    words = search.lower().split()
    return all(word in text or re.sub(r"[^a-z0-9]", "", word) in squeezed for word in words)
