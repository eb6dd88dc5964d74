"""Diagnostics of a training run, and the rules that stop one that collapses.

The known failure is a reward that rises while nothing is learned but the form: every plan one step,
every step one worker (training.md section 6). So what is right *given a readable plan* is counted
apart from what is readable, and who is chosen apart from how often that is right.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from podium_lab.train.alone import Reference, against, routed
from podium_lab.train.environment import Score
from podium_lab.train.recursion import Transitions, transitions
from podium_workers.worker import Frozen

SURE = 2.33
"""Standard errors above an estimate below which the true value lies with 99 % confidence."""
STOCK_SHARE = 0.02
"""A subtask that makes up more than this of a window's subtasks counts as a stock phrase."""


class Step(Frozen):
    """What one iteration's rollouts came to. Shares are of those that were not dropped; where there
    are second rounds, of first ones alone."""

    iteration: int
    rollouts: int
    dropped: int
    """Rollouts without a reward, since a provider or a judge failed."""
    reward: float
    valid: float
    """Share with a readable plan."""
    right: float
    right_if_valid: float
    """Share of the readable plans with a right answer."""
    lengths: dict[int, int]
    """Steps of a plan, and how many plans have so many."""
    routing: dict[str, float]
    """Share of all steps, by worker."""
    entropy: float
    """Of the routing, in bits."""
    finals: dict[str, float]
    """Share of the last steps, by worker."""
    stock: float
    """Share of subtasks that are stock phrases."""
    flat_groups: float
    """Share of groups in which all rewards are equal: they teach nothing. Groups with fewer than
    two rewards do not count."""
    regret: float | None
    """How much less often it is right than the best worker alone is on each item, of those shown;
    None if nothing is profiled."""
    gain: float | None
    """How much more often it is right than the best single worker is on the same items, at equal
    spend (`alone.against`)."""
    tokens: int
    cost_usd: float | None
    second: Transitions | None = None
    """What second rounds made of the answers; None where there are none."""
    routed: float | None = None
    """Share of the readable plans that give every skill which their item takes to a worker for it;
    None where skills are not known."""
    single: str = ""
    """The best single worker."""
    single_calls: int = 1
    """How often it is asked about an item at equal spend."""
    spend_ratio: float | None = None
    """What plans spend, as a multiple of one call of it."""
    spend_unit: str = ""


def summed(
    iteration: int, groups: Sequence[Sequence[Score]], reference: Reference | None = None
) -> Step:
    """One iteration's groups of rollouts, summed up."""
    scores = [score for group in groups for score in group if score.asked]
    kept = [score for score in scores if score.reward is not None and score.round == 0]
    valid = [score for score in kept if score.valid]
    chosen = Counter(name for score in valid for name in score.workers)
    finals = Counter(score.workers[-1] for score in valid)
    usage_costs = [score.usage.cost_usd for score in scores]
    right = _share(bool(score.right) for score in kept)
    alone = against(kept, reference) if reference else None
    return Step(
        iteration=iteration,
        rollouts=len(scores),
        dropped=sum(score.reward is None for score in scores),
        reward=_mean([score.reward for score in kept if score.reward is not None]),
        valid=_share(score.valid for score in kept),
        right=right,
        right_if_valid=_share(bool(score.right) for score in valid),
        lengths=dict(sorted(Counter(len(score.workers) for score in valid).items())),
        routing=_shares(chosen),
        entropy=entropy(chosen),
        finals=_shares(finals),
        stock=_stock(valid),
        flat_groups=_share(len(set(it)) == 1 for it in map(_rewards, groups) if len(it) > 1),
        regret=alone.regret if alone else None,
        gain=alone.gain if alone else None,
        tokens=sum(score.usage.input_tokens + score.usage.output_tokens for score in scores),
        cost_usd=None if None in usage_costs else sum(cost or 0.0 for cost in usage_costs),
        second=transitions(score for group in groups for score in group),
        routed=routed(kept, reference) if reference else None,
        single=alone.single if alone else "",
        single_calls=alone.single_calls if alone else 1,
        spend_ratio=alone.spend_ratio if alone else None,
        spend_unit=alone.unit if alone else "",
    )


def entropy(counts: Counter[str]) -> float:
    """Of a distribution, in bits; 0 when all is one, or nothing."""
    total = sum(counts.values())
    shares = [count / total for count in counts.values() if count]
    return -sum(share * math.log2(share) for share in shares) + 0.0


def _stock(valid: Sequence[Score]) -> float:
    texts = Counter(" ".join(text.casefold().split()) for it in valid for text in it.subtasks)
    total = sum(texts.values())
    often = sum(n for n in texts.values() if n > max(1, STOCK_SHARE * total))
    return often / total if total else 0.0


def _rewards(group: Sequence[Score]) -> list[float]:
    return [it.reward for it in group if it.asked and it.reward is not None]


def _share(flags: Iterable[bool]) -> float:
    return _mean([float(flag) for flag in flags])


def _shares(counts: Counter[str]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in sorted(counts.items())}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


class StopRules(Frozen):
    """When a run is ended, since going on would only train the collapse. None switches one off."""

    after: int = Field(default=10, ge=0)
    """Iterations before any rule counts."""
    window: int = Field(default=5, ge=1)
    """Iterations that a rule looks back on; every one of them has to break it."""
    least_entropy: float | None = Field(default=0.2, ge=0)
    """Bits of routing entropy: below it, all goes to one worker."""
    most_to_one: float | None = Field(default=0.95, gt=0, le=1)
    """Share of all steps that one worker may get."""
    most_one_step: float | None = Field(default=None, gt=0, le=1)
    """Share of plans that may have a single step; for data that is known to need more."""
    most_stock: float | None = Field(default=None, gt=0, le=1)
    """Share of subtasks that may be stock phrases."""
    most_flat: float | None = Field(default=0.95, gt=0, le=1)
    """Share of groups that may be without any spread in their rewards."""
    most_dropped: float | None = Field(default=0.5, gt=0, le=1)
    """Share of rollouts that may be dropped."""
    form_only: float | None = Field(default=0.02, ge=0)
    """How much the share of right answers given a readable plan must have grown since the run's
    first window, once readable plans have grown by `form_growth`: else only form is learned.

    Questions differ, so a few iterations tell little of that share: the line through all of them
    must leave less than `form_most` of growth possible as well, and nothing is said before
    `form_after`. In a simulation (items of Beta-distributed difficulty, 4 or 12 questions of 12
    rollouts, 200 iterations, 1000 runs each), of runs whose content grows from .45 to .75 in 100
    iterations about 1 % at most are stopped, however fast the form grows. Of runs whose content
    stays at .35 while readable plans grow from .3 to .95 in 20, 79 % (4 questions) and 92 % (12)
    are, half of all by iteration 100 and 51."""
    form_growth: float = Field(default=0.2, gt=0)
    form_most: float = Field(default=0.1, gt=0)
    """Growth that has to be ruled out, with 99 % confidence."""
    form_after: int = Field(default=40, ge=3)
    """Iterations before this rule counts: form is learned first, content after it."""
    finished_at: float | None = Field(default=0.98, gt=0, le=1)
    """A share of right answers at which nothing is a collapse any more but the end of what there
    is to learn. Where it is known what workers do alone, flat groups and one worker are none
    either as soon as plans are right as often as the best worker of each item, but for as much as
    this lacks of 1: more may not be possible."""


@dataclass
class Watch:
    """Looks at every iteration and says when to stop, and why."""

    rules: StopRules
    workers: int
    """Workers that a policy may choose from: with one there is no routing to collapse."""
    steps: list[Step] = field(default_factory=list[Step])

    def look(self, step: Step) -> str:
        """Take one more iteration in; what collapsed, in a sentence, or "" to go on."""
        self.steps.append(step)
        if math.isnan(step.reward):
            return "The reward is not a number any more."
        if len(self.steps) < max(self.rules.after, self.rules.window):
            return ""
        recent = self.steps[-self.rules.window :]
        return next(filter(None, (self._dropped(recent), *self._collapses(recent))), "")

    def _dropped(self, recent: Sequence[Step]) -> str:
        most = self.rules.most_dropped
        if most is None or not all(it.dropped > most * it.rollouts for it in recent):
            return ""
        return (
            f"More than {most:.0%} of the rollouts were dropped in {len(recent)} iterations: "
            "workers or judges fail, and what is left teaches little."
        )

    def _collapses(self, recent: Sequence[Step]) -> Iterable[str]:
        rules = self.rules
        if rules.finished_at is not None and all(it.right >= rules.finished_at for it in recent):
            return
        at_best = self._is_at_best(recent)
        if self.workers > 1 and not at_best:
            yield self._to_one(recent)
        one = rules.most_one_step
        if one is not None and all(_one_step(step) > one for step in recent):
            yield f"Plan length has collapsed: over {one:.0%} of the plans have one step."
        stock = rules.most_stock
        if stock is not None and all(step.stock > stock for step in recent):
            yield f"Subtasks have collapsed: over {stock:.0%} of them are stock phrases."
        yield self._form_only(recent)
        flat = None if at_best else rules.most_flat
        if flat is not None and all(step.flat_groups > flat for step in recent):
            yield f"Rewards have no spread in over {flat:.0%} of the groups: nothing is learned."

    def _is_at_best(self, recent: Sequence[Step]) -> bool:
        """Whether plans are right about as often as the best worker alone of each item; where
        nobody is ever right, none can tell."""
        regrets = [it.regret for it in recent if it.regret is not None]
        enough = self.rules.finished_at
        if enough is None or not regrets or not any(it.right for it in recent):
            return False
        return _mean(regrets) <= 1 - enough

    def _to_one(self, recent: Sequence[Step]) -> str:
        least, most = self.rules.least_entropy, self.rules.most_to_one
        favourite = {max(it.routing, key=it.routing.__getitem__) for it in recent if it.routing}
        if len(favourite) != 1 or not all(it.routing for it in recent):
            return ""
        (name,) = favourite
        low = least is not None and all(step.entropy < least for step in recent)
        high = most is not None and all(step.routing[name] > most for step in recent)
        if not (low or high):
            return ""
        share, bits = recent[-1].routing[name], recent[-1].entropy
        return (
            f"Routing has collapsed to {name!r}: {share:.0%} of the steps, {bits:.2f} bits, while "
            f"{recent[-1].right:.0%} of the answers are right."
        )

    def _form_only(self, recent: Sequence[Step]) -> str:
        count = len(self.steps)
        ends = range(count - self.rules.window + 1, count + 1)
        if not all(self._is_form_alone(self.steps[:end]) for end in ends):
            return ""
        first = self.steps[: self.rules.window]
        form = _mean([it.valid for it in recent]) - _mean([it.valid for it in first])
        content = [_mean([it.right_if_valid for it in part]) for part in (first, recent)]
        return (
            f"Only the form is learned: readable plans have grown by {form:.0%}, but of those "
            f"{content[1]:.0%} are right, as {content[0]:.0%} were at the start."
        )

    def _is_form_alone(self, steps: Sequence[Step]) -> bool:
        """Whether readable plans have grown at the end of *steps*, and surely nothing else."""
        rules, window = self.rules, self.rules.window
        if rules.form_only is None or len(steps) < max(2 * window, rules.form_after):
            return False
        first, last = steps[:window], steps[-window:]
        form = _mean([it.valid for it in last]) - _mean([it.valid for it in first])
        parts = ([it.right_if_valid for it in part if it.valid] for part in (first, last))
        before, after = map(_mean, parts)
        if form < rules.form_growth or after - before >= rules.form_only:
            return False
        return _most_growth([it.right_if_valid for it in steps if it.valid]) < rules.form_most


def _most_growth(values: Sequence[float]) -> float:
    """How much *values* may have grown from first to last, at most: by the straight line through
    them, with 99 % confidence; without a limit where they are too few for one."""
    count = len(values)
    if count < 3:
        return math.inf
    centre, mean = (count - 1) / 2, _mean(values)
    spread = sum((place - centre) ** 2 for place in range(count))
    slope = sum((place - centre) * value for place, value in enumerate(values)) / spread
    rest = sum((value - mean - slope * (place - centre)) ** 2 for place, value in enumerate(values))
    error = math.sqrt(rest / (count - 2) / spread)
    return (slope + SURE * error) * (count - 1)


def _one_step(step: Step) -> float:
    total = sum(step.lengths.values())
    return step.lengths.get(1, 0) / total if total else 0.0
