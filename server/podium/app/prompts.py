"""The prompts that a client offers to its user: ways to make good use of the tools.

Each is a text for the calling model (`texts/*.md`), filled with what the user gives.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Annotated

from mcp.server import MCPServer
from pydantic import Field

from podium.plan import Step
from podium.runs import Runs
from podium_workers.worker import mend

TEXTS = {
    name: Template(files("podium.app").joinpath(f"texts/{name}.md").read_text(encoding="utf-8"))
    for name in ("delegate", "second_opinion", "review")
}
FOCUSES = ("bugs", "security", "clarity", "speed", "tests")
"""What a review may look for; any other words will do too."""
_ALL = "bugs, risks and what is unclear"
_REVIEW = (
    "Review the text of the question's files, looking for $focus. List each finding with its "
    "place, what is wrong, why it matters, and how sure you are. Say so if there is none."
)
_MERGE = (
    "Merge the two reviews into one. Put together what both found, and say that both did. Check "
    "each finding against the text itself and leave out what is wrong. Order them, worst first."
)


@dataclass(frozen=True)
class Prompts:
    """The prompts, made for the pool of this process."""

    runs: Runs

    def add_to(self, server: MCPServer) -> None:
        """Offer them all."""
        server.prompt("delegate", title="Give a hard question to the team")(self.delegate)
        server.prompt("second_opinion", title="Get a second opinion")(self.second_opinion)
        server.prompt("review", title="Review by two, merged by a third")(self.review)

    async def delegate(
        self,
        question: Annotated[str, Field(description="Write what you want to know.")],
        strategy: Annotated[
            str, Field(description="'conductor', 'single' or 'chain'; empty for the setting.")
        ] = "",
        workers: Annotated[
            str, Field(description="The only workers to use, with commas; empty for all.")
        ] = "",
        follow_up: Annotated[
            str, Field(description="run_id of an earlier run that this question follows.")
        ] = "",
    ) -> str:
        """Give a question to the team of models, with all that it needs, and report the answer."""
        given = {
            "strategy": strategy.strip(),
            "workers": [name.strip() for name in workers.split(",") if name.strip()],
            "follow_up": follow_up.strip(),
        }
        said = [
            f"`{name}={json.dumps(value, ensure_ascii=False)}`"
            for name, value in given.items()
            if value
        ]
        options = f" and {', '.join(said)}" if said else ""
        return _filled("delegate", question=question, options=options)

    async def second_opinion(
        self,
        question: Annotated[str, Field(description="Write what the opinion is to be about.")],
        answer: Annotated[
            str, Field(description="The first answer; empty for the one in this conversation.")
        ] = "",
        worker: Annotated[
            str, Field(description="Who is to give it; empty for the strongest.")
        ] = "",
    ) -> str:
        """Ask one other model the same question blind, and compare the two answers."""
        return _filled(
            "second_opinion",
            question=question,
            answer=answer.strip() or "Your own, as it stands in this conversation.",
            worker=worker.strip() or self._names()[0],
        )

    async def review(
        self,
        subject: Annotated[
            str, Field(description="Name a file or a change, or paste the text or diff.")
        ],
        focus: Annotated[str, Field(description="What to look for; empty for everything.")] = "",
    ) -> str:
        """Have a file or diff reviewed by two workers blind, and by a third that merges."""
        return _filled(
            "review",
            subject=subject,
            focus=focus.strip() or _ALL,
            plan=_review_plan(self._names(), focus.strip() or _ALL),
        )

    def _names(self) -> Sequence[str]:
        return self.runs.orchestrator.pool.names


def _review_plan(names: Sequence[str], focus: str) -> str:
    """Two reviewers and the strongest worker to merge; all different, if the pool is big enough."""
    first, second = names[1:3] if len(names) > 2 else (names[0], names[-1])
    review = _REVIEW.replace("$focus", focus)
    steps = (
        Step(worker=first, subtask=review),
        Step(worker=second, subtask=review),
        Step(worker=names[0], subtask=_MERGE, access=(0, 1)),
    )
    written = [step.model_dump(mode="json") for step in steps]
    return "plan=" + json.dumps(written, ensure_ascii=False, indent=1)


def _filled(name: str, **values: str) -> str:
    return mend(TEXTS[name].substitute(values)).strip()
