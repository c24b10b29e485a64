"""The exact optimum of a round, and its fast approximation."""

import numpy as np

from dpsparfl_jax.registry import SOLVERS
from dpsparfl_jax.scheduling import sifting
from dpsparfl_jax.scheduling.problem import Allocation, RoundProblem, empty_allocation
from dpsparfl_jax.scheduling.search import Reach, Search, branch_and_bound, descend


@SOLVERS.register("descent")
def solve_descent(
    problem: RoundProblem,
    start_s: float | None = None,
    reach: Reach | None = None,
) -> Allocation:
    """Matching at a deadline, best deadline of the matching, until nothing changes.

    Never worse than where it starts: from the earliest deadline and from the latest, or
    from `start_s` alone. `reach` is `reach_of(problem)`, where it is known already.
    """
    if reach is None and sifting.is_worthwhile(problem):
        found = sifting.descent(problem, start_s)
        if found is not None:
            return found
    search = Search(problem, reach)
    if not search.size:
        return empty_allocation()
    if start_s is not None:
        nodes = descend(search, min(max(start_s, search.low), problem.latest_s))
    else:
        nodes = descend(search, search.low)
        nodes += descend(search, search.latest())
    return search.result(-np.inf, nodes)


@SOLVERS.register("joint")
def solve_joint(problem: RoundProblem, tolerance: float = 1e-6) -> Allocation:
    """The optimum, certified to within `tolerance` of the largest reward times K.

    Where delay (almost) costs nothing, it is given a tiny price, and the certificate is
    wider by what that may have cost.
    Paper: problem P2 as a whole.  Departs: BUILD_NOTES "joint optimum".
    """
    if sifting.is_worthwhile(problem):
        found = sifting.optimum(problem, tolerance)
        if found is not None:
            return found
    search = Search(problem)
    if not search.size:
        return empty_allocation()
    return search.result(*branch_and_bound(search, tolerance))
