"""Static checks of a plan before anything is paid for: who may work, how many steps."""

import difflib
from collections.abc import Collection

from podium.errors import PlanError
from podium.plan import CALLER, PODIUM, Plan


def check_plan(plan: Plan, workers: Collection[str], *, depth: int, max_steps: int) -> None:
    """Refuse a plan that names a worker this run does not allow, or is longer than allowed.

    Raises:
        PlanError: with rule `worker` or `length`.
    """
    if len(plan.steps) > max_steps:
        raise PlanError(
            "length", f"The plan has {len(plan.steps)} steps; at most {max_steps} are allowed."
        )
    allowed = {*workers, CALLER, *((PODIUM,) if depth > 0 else ())}
    for number, step in plan.numbered():
        if step.worker in allowed:
            continue
        if step.worker == PODIUM:
            raise PlanError(
                "worker", f"Step {number} asks {PODIUM!r} itself, but depth is 0; set depth to 1."
            )
        near = difflib.get_close_matches(step.worker, list(allowed), n=1)
        listing = f"did you mean {near[0]!r}? Allowed are" if near else "allowed are"
        raise PlanError(
            "worker",
            f"Step {number} names {step.worker!r}, which is not in this run's pool; "
            f"{listing} {', '.join(sorted(allowed - {CALLER}))}.",
        )


def dependents(plans: Collection[Plan], number: int) -> frozenset[int]:
    """Every step, in any round, whose prompt rests on that step, directly or not."""
    tainted = {number}
    for plan in plans:
        for later in plan.numbers:
            if tainted.intersection(plan.reads(later)):
                tainted.add(later)
    return frozenset(tainted - {number})
