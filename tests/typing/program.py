"""A user's program: it must pass ``mypy --strict``, and is never run."""

from __future__ import annotations

import e2llm_opt
from e2llm_opt import Infeasible, InputError, Plan, Problem, plan
from e2llm_opt.plan.plan import Replica


def main(path: str) -> Plan | None:
    try:
        problem = Problem.load(path, workload={"rate_per_s": 0.5})
    except InputError as error:
        print("\n".join(str(fault) for fault in error.faults))
        return None
    answer = plan(problem, seed=1, stop=e2llm_opt.Stop(time_limit_s=2.0))
    if isinstance(answer, Infeasible):
        print(answer.reason)
        return None
    first: Replica = answer.replicas[0]
    report = e2llm_opt.check(answer, problem)
    cut = e2llm_opt.partition(problem, [0], e2llm_opt.Role.DECODE, slots=first.slots)
    arrivals = e2llm_opt.draw_arrivals(problem.workload, 100, rate_per_s=1.0)
    run = e2llm_opt.simulate(answer, problem, arrivals)
    print(run.summary(answer, problem).waiting_time_s.p99, run.num_rejected)
    rows = e2llm_opt.compare(problem, arrivals, planners=["hexgen"])
    print([row.to_dict() for row in rows])
    print(report.valid, cut is not None and cut.bottleneck_s)
    return answer
