"""Factors from people's units to SI: the only place where 2**30 and 10**9 are written."""

from typing import Final

GIB: Final = 2.0**30
"""Bytes in one GiB."""
MIB: Final = 2.0**20
"""Bytes in one MiB."""
GB_PER_S: Final = 1e9
"""Bytes per second in one GB/s."""
MBIT_PER_S: Final = 1e6 / 8
"""Bytes per second in one Mbit/s."""
TFLOP_PER_S: Final = 1e12
"""FLOP per second in one TFLOPS."""
MS: Final = 1e-3
"""Seconds in one millisecond."""
US: Final = 1e-6
"""Seconds in one microsecond."""
