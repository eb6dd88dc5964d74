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

from podium.plan_grammar import json_grammar, lists_grammar
from podium_lab.train.config import Job
from podium_lab.train.learner.sharing import write

Generated = dict[str, Any]
Team = tuple[str, ...]
"""Names of the workers that a question shows."""


@dataclass
class Grammars:
    """Compiled grammars for a model's tokens: of first plans, and of those of later rounds, which
    may accept as well."""

    job: Job
    info: xgrammar.TokenizerInfo
    _compiled: dict[str, xgrammar.CompiledGrammar] = field(default_factory=dict)
    """By their text: questions that show the same workers have the same one."""

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

    def of_workers(self, workers: Team, *, later: bool = False) -> xgrammar.CompiledGrammar:
        """The grammar of plans for these workers."""
        text = grammar_text(self.job, workers, later=later)
        if text not in self._compiled:
            self._compiled[text] = xgrammar.GrammarCompiler(self.info).compile_grammar(text)
        return self._compiled[text]

    def processors(self, teams: Sequence[Team], *, later: bool = False) -> LogitsProcessorList:
        """What holds one batch, whose questions show these workers each; used once."""
        grammars = [self.of_workers(team, later=later) for team in teams]
        return LogitsProcessorList([LogitsProcessor(grammars)])

    def free(self, ids: Sequence[int], workers: Team, *, later: bool = False) -> list[int]:
        """1 for each token of a plan that the policy chose, 0 where its text was forced."""
        matcher = xgrammar.GrammarMatcher(self.of_workers(workers, later=later))
        marks: list[int] = []
        for token in ids:
            forced = matcher.is_terminated() or bool(matcher.find_jump_forward_string())
            marks.append(0 if forced else 1)
            if matcher.is_terminated() or not matcher.accept_token(token):
                marks += [0] * (len(ids) - len(marks))
                break
        return marks


def grammar_text(job: Job, workers: Team, *, later: bool = False) -> str:
    """The grammar of a plan for these workers: the first one, or one that may accept.

    Subtasks may be as long as `grpo.max_tokens` lets them be.
    """
    most = job.asked.plan_steps
    if job.asked.form == "json":
        return json_grammar(workers, max_steps=most, may_accept=later, counted=False)
    return lists_grammar(
        len(workers), max_steps=most, may_accept=later, prose=job.grpo.prose, counted=False
    )


@dataclass(frozen=True)
class HeldRollouts:
    """Writes the plans of a batch for TRL, held to the grammar."""

    grammars: Grammars
    shown: Mapping[str, Team]
    """The workers that a prompt shows, by its text."""

    def __call__(self, prompts: Sequence[Sequence[dict[str, str]]], trainer: Any) -> Generated:
        """One plan for each of *prompts*, as TRL's `rollout_func` wants them."""
        teams = [self.shown[prompt[-1]["content"]] for prompt in prompts]
        asked, written, marks = held(trainer, self.grammars, prompts, teams)
        return {
            "prompt_ids": asked, "completion_ids": written, "logprobs": None, "env_mask": marks,
        }  # fmt: skip


def held(
    trainer: Any,
    grammars: Grammars,
    prompts: Sequence[Sequence[dict[str, str]]],
    teams: Sequence[Team],
    *,
    later: bool = False,
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Token ids of prompts and of what a trainer's model writes to them, and what of it is free."""
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped, trainer.accelerator,
            generation_kwargs=trainer.generation_kwargs,
        ) as model,
        torch.no_grad(),
    ):  # fmt: skip
        asked, written = generate(
            trainer.writes_with(model), trainer.processing_class, prompts,
            trainer.generation_config, grammars.processors(teams, later=later),
        )  # fmt: skip
    rows = zip(written, teams, strict=True)
    return asked, written, [grammars.free(ids, team, later=later) for ids, team in rows]


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
    written = write(model, kept["input_ids"], kept["attention_mask"], settings, processors)
    length = kept["input_ids"].shape[1]
    stop = tokenizer.eos_token_id
    asked = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(kept["input_ids"], kept["attention_mask"], strict=True)
    ]
    return asked, [_up_to(row[length:].tolist(), stop) for row in written]


def _up_to(ids: list[int], stop: int) -> list[int]:
    return ids[: ids.index(stop) + 1] if stop in ids else ids
