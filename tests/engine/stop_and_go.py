"""Run a command for a share of the time only, where no control group can hold it to that.

python tests/engine/stop_and_go.py SHARE COMMAND…
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH: Final = Path(__file__)
PERIOD_S: Final = 0.01
"""Short against the time of a token, long against that of a signal."""


def run(share: float, command: Sequence[str]) -> int:
    """Run *command*, stopped for the rest of each period, and return its exit code."""
    with subprocess.Popen(command) as process:
        try:
            while process.poll() is None:
                process.send_signal(signal.SIGCONT)
                time.sleep(share * PERIOD_S)
                process.send_signal(signal.SIGSTOP)
                time.sleep((1 - share) * PERIOD_S)
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
    return process.returncode


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(run(float(sys.argv[1]), sys.argv[2:]))
