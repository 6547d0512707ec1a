"""A fingerprint of an inventory: equal for equal devices and links in any order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.inventory.link import Link

_NOT_PLANNED_ON = {"prefill_sigma", "decode_sigma"}
"""What is known of a device, but decides nothing in a plan."""


def inventory_sha256(inventory: Inventory) -> str:
    """Return the SHA-256 of the resolved devices and links, as 64 hexadecimal digits.

    Notes
    -----
    Hashed is compact JSON with sorted keys: devices by name, links as ``ends[0] < ends[1]`` and
    by their text, every number as the ``repr`` of a float (DESIGN section 4.3).
    """
    devices = sorted((_device(device) for device in inventory.devices), key=lambda d: d["name"])
    links = sorted((_link(link) for link in inventory.links), key=_text)
    return hashlib.sha256(_text({"devices": devices, "links": links}).encode()).hexdigest()


def _device(device: Device) -> dict[str, Any]:
    return {
        key: _canonical(value)
        for key, value in asdict(device).items()
        if key not in _NOT_PLANNED_ON
    }


def _link(link: Link) -> dict[str, Any]:
    fields = {key: _canonical(value) for key, value in asdict(link).items()}
    if link.ends[0] > link.ends[1]:
        fields["ends"] = (link.ends[1], link.ends[0])
        forth, back = fields["forward_bytes_per_s"], fields["backward_bytes_per_s"]
        fields["forward_bytes_per_s"], fields["backward_bytes_per_s"] = back, forth
    return fields


def _canonical(value: Any) -> Any:  # noqa: ANN401 - the value of any field
    """Make whole numbers floats, so that 12 and 12.0 are the same device."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
