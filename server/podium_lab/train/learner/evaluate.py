"""Looks at what a policy does on items it was not trained on: greedy or sampled plans, scored.

Where a job trains second rounds, they are written and scored too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

from podium_lab.train.draws import Draw, Which, looks
from podium_lab.train.environment import Score
from podium_lab.train.items import Item
from podium_lab.train.learner.held import Grammars, generate
from podium_lab.train.learner.reward import PlanReward
from podium_lab.train.opening import asked_rows

BATCH = 32
"""Questions that are answered at once."""


@dataclass(frozen=True)
class Looker:
    """Asks a policy for plans and has them scored."""

    reward: PlanReward
    tokenizer: Any
    grammars: Grammars | None = None
    """What its decoding is held to, if it is."""

    def plans(self, model: Any, drawn: Sequence[Draw], *, temperature: float = 0.0) -> list[str]:
        """What the policy writes for each draw; greedy at temperature 0."""
        prompts = [row["prompt"] for row in asked_rows(self.reward.ground, drawn)]
        return self._written(model, prompts, drawn, temperature=temperature)

    @torch.no_grad()
    def _written(
        self,
        model: Any,
        prompts: Sequence[list[dict[str, str]]],
        drawn: Sequence[Draw],
        *,
        temperature: float,
        later: bool = False,
    ) -> list[str]:
        was_training = model.training
        model.eval()
        texts: list[str] = []
        for start in range(0, len(drawn), BATCH):
            part = drawn[start : start + BATCH]
            teams = [draw.workers for draw in part]
            held = self.grammars and self.grammars.processors(teams, later=later)
            _, ids = generate(
                model, self.tokenizer, prompts[start : start + BATCH],
                self._settings(temperature), held,
            )  # fmt: skip
            texts += self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        model.train(was_training)
        return texts

    def look(
        self,
        model: Any,
        items: Sequence[Item],
        *,
        temperature: float = 0.0,
        which: Which = "whole",
    ) -> list[Score]:
        """Scores of the policy's plans for *items*, on pools of a kind; of both rounds, the second
        ones after the first, in a job that trains them."""
        ground = self.reward.ground
        drawn = looks(items, ground.pool.names, pools=ground.job.workers.shown, which=which)
        texts = self.plans(model, drawn, temperature=temperature)
        if self.reward.ground.job.recursion is None:
            return self.reward.score(texts, drawn)
        firsts = self.reward.firsts(texts, drawn)
        asked = [place for place, first in enumerate(firsts) if first.outcome]
        again = self._written(
            model,
            [[{"role": "user", "content": firsts[place].prompt}] for place in asked],
            [drawn[place] for place in asked],
            temperature=temperature,
            later=True,
        )
        written = dict(zip(asked, again, strict=True))
        seconds = [written.get(place, "") for place in range(len(firsts))]
        return [it.score for it in firsts] + self.reward.seconds(seconds, drawn, firsts)

    def _settings(self, temperature: float) -> GenerationConfig:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        return GenerationConfig(
            max_new_tokens=self.reward.ground.job.grpo.max_tokens,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            **(sampling if temperature else {"do_sample": False}),
        )
