"""Writes the two rounds of a batch for TRL: first plans, and second ones on what those came to.

Half of a job's rows are first rounds, half second ones, by groups that TRL measures each in itself
(`recursion.pairs` tells the order). So advantages are normalised by round without a change to TRL,
and what is recorded is the reward that it learns from.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from podium_lab.train.draws import Draw
from podium_lab.train.learner.held import Generated, Grammars, grammar_text, held
from podium_lab.train.learner.reward import PlanReward
from podium_lab.train.plan_regex import regex_of
from podium_lab.train.recursion import pairs

_T = TypeVar("_T")
Prompts = Sequence[Sequence[dict[str, str]]]


@dataclass(frozen=True)
class Row:
    """One text of the policy, as TRL takes it."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float] | None
    """Of the sampler; None where the trainer itself has written."""
    env_mask: list[int]
    """0 for what is no part of the loss."""

    def left_out(self, end: int) -> "Row":
        """A row in its place that teaches nothing: *end* is the token that ends a text."""
        logprobs = None if self.logprobs is None else [0.0]
        return Row(self.prompt_ids, [end], logprobs, [0])


@dataclass(frozen=True)
class TwoRounds:
    """Writes the texts of a batch, as TRL's `rollout_func` does."""

    reward: PlanReward
    drawn: Mapping[str, Draw]
    """What is drawn, by the text of its first prompt."""
    grammars: Grammars | None = None
    """What the trainer's own decoding is held to, if it is."""

    def __call__(self, prompts: Prompts, trainer: Any) -> Generated:
        """A text for each of *prompts*, which are those of first rounds only.

        The row of a second round whose first came to nothing is written all the same, so that all
        devices do the same work, and left out.
        """
        tokenizer = trainer.processing_class
        paired = list(pairs(len(prompts), trainer.num_generations))
        asked = [prompts[one] for one, _ in paired]
        drawn = [self.drawn[prompt[-1]["content"]] for prompt in asked]
        begun = self._written(trainer, asked, drawn, each=trainer.num_generations)
        texts = tokenizer.batch_decode(
            [row.completion_ids for row in begun], skip_special_tokens=True
        )
        firsts = self.reward.firsts(texts, drawn)
        again = [
            [{"role": "user", "content": first.prompt}] if first.outcome else prompt
            for first, prompt in zip(firsts, asked, strict=True)
        ]
        written = self._written(trainer, again, drawn, each=1, later=True)
        seconds = [
            row if first.outcome else row.left_out(tokenizer.eos_token_id)
            for row, first in zip(written, firsts, strict=True)
        ]
        places = [one for one, _ in paired] + [other for _, other in paired]
        return {
            **_columns(_in_order(places, [*begun, *seconds])),
            "first": _in_order(places, [*firsts, *firsts]),
        }

    def _written(
        self,
        trainer: Any,
        prompts: Prompts,
        drawn: Sequence[Draw],
        *,
        each: int,
        later: bool = False,
    ) -> list[Row]:
        """What the policy writes; *each* is how many prompts in a row are the same."""
        if self.grammars is not None:
            teams = [draw.workers for draw in drawn]
            rows = zip(*held(trainer, self.grammars, prompts, teams, later=later), strict=True)
            return [Row(asked, written, None, marks) for asked, written, marks in rows]
        self._hold_vllm(trainer, later=later)
        asked, *_ = trainer._tokenize_prompts([list(prompt) for prompt in prompts])
        written, logprobs = trainer._generate_single_turn(asked, None, {}, each)
        return list(_free(asked, written, logprobs))

    def _hold_vllm(self, trainer: Any, *, later: bool) -> None:
        """Let vLLM know which round's grammar counts, where it is held to one."""
        job = self.reward.ground.job
        if job.grpo.held and trainer.use_vllm:
            text = grammar_text(job, self.reward.ground.pool.names, later=later)
            trainer.vllm_generation.structured_outputs_regex = regex_of(text)


def _free(
    asked: Sequence[list[int]],
    written: Sequence[Sequence[int]],
    logprobs: Sequence[list[float]] | None,
) -> Iterator[Row]:
    for place, ids in enumerate(written):
        chances = None if logprobs is None else logprobs[place]
        yield Row(asked[place], list(ids), chances, [1] * len(ids))


def _in_order(places: Sequence[int], values: Sequence[_T]) -> list[_T]:
    """*values* by the places that they belong to."""
    return [value for _, value in sorted(zip(places, values, strict=True), key=lambda it: it[0])]


def _columns(rows: Sequence[Row]) -> Generated:
    chances = [row.logprobs for row in rows]
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.completion_ids for row in rows],
        "logprobs": None if None in chances else chances,
        "env_mask": [row.env_mask for row in rows],
    }
