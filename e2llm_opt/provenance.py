"""Where a number comes from: a result is as trustworthy as the worst of its inputs."""

from enum import StrEnum


class Provenance(StrEnum):
    """Origin of a number, best first."""

    MEASURED = "measured"
    CATALOGUE = "catalogue"
    ASSUMED = "assumed"
