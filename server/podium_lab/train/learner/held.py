"""Decoding held to the server's own grammar of plans while training, so that content is learned.

Each question has the grammar of the workers that it shows. Text that the grammar leaves no choice
in is taken out of the loss: it is not the policy's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import xgrammar
from transformers import LogitsProcessorList
from trl.models.utils import unwrap_model_for_generation
from xgrammar.contrib.hf import LogitsProcessor

from podium.plan_grammar import lists_grammar
from podium_lab.train.config import Job

Generated = dict[str, Any]


@dataclass
class Grammars:
    """Compiled grammars for a model's tokens, by how many workers a plan may name."""

    job: Job
    info: xgrammar.TokenizerInfo
    _compiled: dict[int, xgrammar.CompiledGrammar] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, tokenizer: Any, vocabulary: int) -> "Grammars":
        """*vocabulary*: how many tokens the model's output has."""
        stops = [tokenizer.eos_token_id]
        return cls(
            job,
            xgrammar.TokenizerInfo.from_huggingface(
                tokenizer, vocab_size=vocabulary, stop_token_ids=stops
            ),
        )

    def of_workers(self, count: int) -> xgrammar.CompiledGrammar:
        """The grammar of plans for so many workers."""
        if count not in self._compiled:
            text = grammar_text(self.job, count)
            self._compiled[count] = xgrammar.GrammarCompiler(self.info).compile_grammar(text)
        return self._compiled[count]

    def processors(self, counts: Sequence[int]) -> LogitsProcessorList:
        """What holds one batch, whose questions show so many workers each; used once."""
        return LogitsProcessorList([LogitsProcessor([self.of_workers(n) for n in counts])])

    def free(self, ids: Sequence[int], count: int) -> list[int]:
        """1 for each token of a plan that the policy chose, 0 where its text was forced."""
        matcher = xgrammar.GrammarMatcher(self.of_workers(count))
        marks: list[int] = []
        for token in ids:
            forced = matcher.is_terminated() or bool(matcher.find_jump_forward_string())
            marks.append(0 if forced else 1)
            if matcher.is_terminated() or not matcher.accept_token(token):
                marks += [0] * (len(ids) - len(marks))
                break
        return marks


def grammar_text(job: Job, workers: int) -> str:
    """The server's grammar of a first plan for so many workers."""
    return lists_grammar(workers, max_steps=job.asked.max_steps, prose=job.grpo.prose)


@dataclass(frozen=True)
class HeldRollouts:
    """Writes the plans of a batch for TRL, held to the grammar."""

    grammars: Grammars
    shown: Mapping[str, int]
    """How many workers a prompt shows, by its text."""

    def __call__(self, prompts: Sequence[Sequence[dict[str, str]]], trainer: Any) -> Generated:
        """One plan for each of *prompts*, as TRL's `rollout_func` wants them."""
        tokenizer = trainer.processing_class
        counts = [self.shown[prompt[-1]["content"]] for prompt in prompts]
        with (
            unwrap_model_for_generation(
                trainer.model_wrapped, trainer.accelerator,
                generation_kwargs=trainer.generation_kwargs,
            ) as model,
            torch.no_grad(),
        ):  # fmt: skip
            asked, written = generate(
                model, tokenizer, prompts, trainer.generation_config,
                self.grammars.processors(counts),
            )  # fmt: skip
        marks = [self.grammars.free(ids, n) for ids, n in zip(written, counts, strict=True)]
        return {
            "prompt_ids": asked, "completion_ids": written, "logprobs": None, "env_mask": marks,
        }  # fmt: skip


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[dict[str, str]]],
    settings: Any,
    processors: LogitsProcessorList | None = None,
) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids of prompts and of what the model writes to them, without padding."""
    inputs = tokenizer.apply_chat_template(
        [list(prompt) for prompt in prompts], add_generation_prompt=True, tokenize=True,
        padding=True, padding_side="left", return_tensors="pt", return_dict=True,
    ).to(model.device)  # fmt: skip
    kept = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    written = model.generate(**kept, generation_config=settings, logits_processor=processors)
    length = kept["input_ids"].shape[1]
    stop = tokenizer.eos_token_id
    asked = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(kept["input_ids"], kept["attention_mask"], strict=True)
    ]
    return asked, [_up_to(row[length:].tolist(), stop) for row in written]


def _up_to(ids: list[int], stop: int) -> list[int]:
    return ids[: ids.index(stop) + 1] if stop in ids else ids
