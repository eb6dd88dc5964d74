"""Second rounds (papers.md 1.10): what a first plan earns by them, and what becomes of answers.

Knows no training library. A policy that is asked again with its own plan and the last reply in view
plans anew, or accepts by empty lists.
"""

from collections.abc import Iterable, Iterator

from pydantic import Field

from podium_lab.train.environment import Score
from podium_workers.worker import Frozen


class Recursion(Frozen):
    """The recursion fine-tune: half of each group are first plans, and half are second ones, each
    asked for with what came of its own first plan in view."""

    discount: float = Field(default=0.25, ge=0, le=1)
    """Part that the second round's reward has in what the first plan earns; the paper's."""

    def credited(self, first: Score, second: Score) -> Score:
        """*first* with its part in what the second round earned; as it is where there is none."""
        if first.reward is None or second.reward is None:
            return first
        reward = (1 - self.discount) * first.reward + self.discount * second.reward
        return first.model_copy(update={"reward": reward})


def unasked(first: Score) -> Score:
    """The second round of a first one of which nothing came: left out of its group."""
    before = None if first.reward is None else bool(first.right)
    why = "Nothing came of the first round, so that there was no second."
    return Score(item=first.item, reward=None, round=1, before=before, asked=False, problem=why)


def pairs(count: int, half: int) -> Iterator[tuple[int, int]]:
    """Places of a first round and of its second in *count* rows: groups of *half* first rounds,
    each followed by a group of as many second ones."""
    for start in range(0, count, 2 * half):
        yield from ((place, place + half) for place in range(start, start + half))


class Transitions(Frozen):
    """What became of answers in a second round: how many went from what to what.

    Without a readable second text the answer before stands, as in the server.
    """

    right_right: int = 0
    wrong_right: int = 0
    right_wrong: int = 0
    wrong_wrong: int = 0
    accepted: int = 0
    """Second texts that let the answer stand."""
    unreadable: int = 0
    """Second texts without a plan."""
    unasked: int = 0
    """First rounds of which nothing came."""
    reward: float = 0.0
    """Mean of the second rounds."""

    @property
    def count(self) -> int:
        return self.right_right + self.wrong_right + self.right_wrong + self.wrong_wrong

    @property
    def first(self) -> float:
        """Share of right answers after round one."""
        return (self.right_right + self.right_wrong) / max(1, self.count)

    @property
    def second(self) -> float:
        """Share of right answers after round two, of the same questions."""
        return (self.right_right + self.wrong_right) / max(1, self.count)

    def told(self) -> str:
        """In one line."""
        return (
            f"right after round two {self.second:.0%}, after round one {self.first:.0%} of "
            f"{self.count}: right->right {self.right_right}, wrong->right {self.wrong_right}, "
            f"right->wrong {self.right_wrong}, wrong->wrong {self.wrong_wrong}; accepted "
            f"{self.accepted}, unreadable {self.unreadable}, without a second round {self.unasked}"
        )


def transitions(scores: Iterable[Score]) -> Transitions | None:
    """What the second rounds among *scores* made of answers; None where there are none.

    Those that were dropped say nothing, and are left out.
    """
    later = [score for score in scores if score.round > 0]
    if not later:
        return None
    known = [
        it for it in later if it.before is not None and (it.reward is not None or not it.asked)
    ]
    went = [(bool(it.before), bool(it.before if it.right is None else it.right)) for it in known]
    earned = [score.reward for score in known if score.reward is not None]
    return Transitions(
        right_right=went.count((True, True)),
        wrong_right=went.count((False, True)),
        right_wrong=went.count((True, False)),
        wrong_wrong=went.count((False, False)),
        accepted=sum(score.accepted for score in known),
        unreadable=sum(score.asked and not score.valid for score in known),
        unasked=sum(not score.asked for score in known),
        reward=sum(earned) / max(1, len(earned)),
    )
