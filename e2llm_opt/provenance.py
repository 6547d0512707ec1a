"""Where a number comes from: a result is as trustworthy as the worst of its inputs."""

from collections.abc import Iterable
from enum import StrEnum


class Provenance(StrEnum):
    """Origin of a number, best first."""

    MEASURED = "measured"
    CATALOGUE = "catalogue"
    ASSUMED = "assumed"


def worst(origins: Iterable[Provenance]) -> Provenance:
    """Return the least trustworthy of *origins*; measured when there are none."""
    order = tuple(Provenance)
    return max(origins, key=order.index, default=Provenance.MEASURED)
