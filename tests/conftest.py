"""Hypothesis profiles, and the objects that many tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from e2llm_opt import solve

solve.NUM_DRAWN = 200  # for thousands of plans; programs that tests start draw as many as users

_EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "10000"))

_calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _calm, max_examples=25)
settings.register_profile("ci", _calm, max_examples=25, derandomize=True)
settings.register_profile("coverage", _calm, max_examples=5, derandomize=True)  # JIT off
settings.register_profile("nightly", _calm, max_examples=_EXAMPLES)
settings.register_profile(  # a fault need only be found, quickly and each time alike
    "mutation",
    _calm,
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "15")),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
