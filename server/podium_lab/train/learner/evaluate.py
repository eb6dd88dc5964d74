"""Looks at what a policy does on items it was not trained on: greedy or sampled plans, scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

from podium_lab.train.draws import Draw
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

    @torch.no_grad()
    def plans(self, model: Any, drawn: Sequence[Draw], *, temperature: float = 0.0) -> list[str]:
        """What the policy writes for each draw; greedy at temperature 0."""
        prompts = [row["prompt"] for row in asked_rows(self.reward.ground, drawn)]
        was_training = model.training
        model.eval()
        texts: list[str] = []
        for start in range(0, len(drawn), BATCH):
            part = drawn[start : start + BATCH]
            held = self.grammars and self.grammars.processors([len(it.workers) for it in part])
            _, ids = generate(
                model, self.tokenizer, prompts[start : start + BATCH],
                self._settings(temperature), held,
            )  # fmt: skip
            texts += self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        model.train(was_training)
        return texts

    def look(self, model: Any, items: Sequence[Item], *, temperature: float = 0.0) -> list[Score]:
        """Scores of the policy's plans for *items*, on the whole pool."""
        names = self.reward.ground.pool.names
        drawn = [Draw(iteration=0, item=item, workers=names) for item in items]
        return self.reward.score(self.plans(model, drawn, temperature=temperature), drawn)

    def _settings(self, temperature: float) -> GenerationConfig:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        return GenerationConfig(
            max_new_tokens=self.reward.ground.job.grpo.max_tokens,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            **(sampling if temperature else {"do_sample": False}),
        )
