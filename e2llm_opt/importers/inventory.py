"""What was found, written: as a new inventory, or into the text of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from e2llm_opt.importers.describe import device_items, link_items, open_keys
from e2llm_opt.loading.inventory_merge import merged_items, title_of, written_inventory

if TYPE_CHECKING:
    from e2llm_opt.importers.found import Found
    from e2llm_opt.loading.inventory_items import Item


class Inventoried(NamedTuple):
    """An inventory's text, and what the user should know of it, a sentence each."""

    text: str
    notes: tuple[str, ...]


def inventoried(found: Found, source: str, *, into: str = "", file: str = "") -> Inventoried:
    """Return *found* as an inventory.

    Parameters
    ----------
    found
        Of one source.
    source
        What it is called in comments.
    into
        Text of an inventory that gets what was found; a new one unless given.
    file
        Its name, for messages.

    Raises
    ------
    InputError
        When *into* is no YAML, or cannot take it without changing other parts.
    """
    devices, links = device_items(found, source), link_items(found, source)
    items = (*devices, *links)
    if not into:
        notes = (*found.notes, *(note for item in items for note in _open(item)))
        return Inventoried(written_inventory(devices, links), notes)
    merged = merged_items(into, devices, links, file=file)
    # What was in the file before may know what the source does not.
    new = [item for item in items if f"{title_of(item.keys)}: added" in merged.notes]
    notes = (*found.notes, *(note for item in new for note in _open(item)))
    return Inventoried(merged.text, (*notes, *merged.notes))


def _open(item: Item) -> list[str]:
    """Say what the user still has to give."""
    keys = open_keys(item)
    return [f"{title_of(item.keys)}: {', '.join(keys)} not known yet; see TODO"] if keys else []
