"""Plans that say nothing about their question: workers are drawn by lot, subtasks are phrases.

They teach a small model the form of a plan, and stand in for a policy where there is none yet.
"""

import random
from collections.abc import Sequence

from podium.plan import Plan, Step
from podium.plan_text import render_json, render_lists

ALONE = ("Answer the question.", "Solve it and give the answer.", "Work it out.")
FIRST = ("Find what is needed first.", "Do the first part.", "Start, and give what you find.")
THEN = ("Go on from what you read and give the answer.", "Use it and finish.", "Do the rest.")


def random_plan(names: Sequence[str], chance: random.Random, two_steps: float) -> Plan:
    """A plan whose workers were drawn by lot; with the chance *two_steps* it has two steps."""
    if chance.random() >= two_steps:
        return Plan(steps=(Step(worker=chance.choice(names), subtask=chance.choice(ALONE)),))
    return Plan(
        steps=(
            Step(worker=chance.choice(names), subtask=chance.choice(FIRST)),
            Step(worker=chance.choice(names), subtask=chance.choice(THEN), access="all"),
        )
    )


def rendered(plan: Plan, names: Sequence[str], form: str) -> str:
    """A plan as a policy writes it, in one of the two forms."""
    return render_lists(plan, names) if form == "lists" else render_json(plan)


def accepting(form: str) -> str:
    """What a policy writes to let the answer of the round before stand, in one of the two forms."""
    lists = "model_id = []\nsubtasks = []\naccess_list = []"
    return lists if form == "lists" else '{"steps": []}'
