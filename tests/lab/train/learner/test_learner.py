"""Parts of the learner, with a tokenizer and a model made on the spot."""

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.train.learner.conftest import Ran
from transformers import AutoModelForCausalLM

from podium_lab.train.config import Job
from podium_lab.train.draws import Draw
from podium_lab.train.learner.grpo import arguments, build
from podium_lab.train.learner.held import Grammars
from podium_lab.train.learner.models import load_tokenizer, token_ids
from podium_lab.train.learner.reward import PlanReward
from podium_lab.train.learner.run import Opened, opened
from podium_lab.train.learner.watching import Watching
from podium_lab.train.opening import asked_rows
from podium_lab.train.records import Records
from podium_lab.train.watch import StopRules, Watch

Again = Callable[..., Ran]


@pytest.fixture
def found(again: Again) -> Generator[Opened]:
    ran = again(grpo={"iterations": 1, "questions": 1, "rollouts": 8, "batch": 8})
    with opened(ran.job, {}, ran.settings) as found:
        yield found


@dataclass
class Given(PlanReward):
    """Rewards that were set beforehand, whatever is written."""

    rewards: Sequence[float | None] = ()

    async def __call__(
        self,
        prompts: Sequence[object],
        completions: Sequence[Sequence[dict[str, str]]],
        draw: Sequence[str],
        **_: object,
    ) -> list[float | None]:
        scores = await super().__call__(prompts, completions, draw)
        assert len(scores) == len(self.rewards)
        return list(self.rewards)


def test_a_rollout_without_a_reward_has_no_part_in_its_group(found: Opened) -> None:
    ground, folder = found.ground, found.ground.job.folder
    rewards = (None, None, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    reward = Given(ground, found.reward.portal, rewards=rewards)
    watch = Watch(StopRules(), workers=2)
    watching = Watching(reward, Records(folder), watch, None, None, lambda text: None)
    model = AutoModelForCausalLM.from_pretrained(folder / "warm")
    trainer = build(ground, model, found.tokenizer, reward, watching)
    watching.model = trainer.model
    trainer.train()
    advantages = list(trainer._logs["advantages"])
    assert advantages[:2] == [0, 0]
    assert advantages[2:5] == pytest.approx([0.9128] * 3, abs=1e-3)
    assert advantages[5:] == pytest.approx([-0.9128] * 3, abs=1e-3)


def test_the_trainer_asks_with_the_token_ids_of_the_models_template(found: Opened) -> None:
    """What vLLM does with messages is the same call of the same template."""
    ground = found.ground
    draw = Draw(iteration=0, item=ground.items[0], workers=ground.pool.names)
    (row,) = asked_rows(ground, [draw])
    text = found.tokenizer.apply_chat_template(
        row["prompt"], add_generation_prompt=True, tokenize=False
    )
    plain = found.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert token_ids(found.tokenizer, row["prompt"]) == plain
    assert ground.items[0].question in text


def test_only_what_a_plan_is_free_in_is_learned_when_held(found: Opened) -> None:
    job = found.ground.job
    job = job.model_copy(update={"grpo": job.grpo.model_copy(update={"held": True, "prose": 0})})
    tokenizer = found.tokenizer
    plan = 'model_id = [1]\nsubtasks = ["Solve it and say it."]\naccess_list = [[]]'
    free = _free(tokenizer, job, plan, ("one", "other"))
    assert "1" in free
    assert "Solve it and say it." in free
    # Where the plan begins is free, since a mark may stand before it; how it goes on is not.
    assert not any(forced in free for forced in ("_id", "subtasks", "access", "list"))


def test_of_a_name_only_what_tells_it_apart_is_learned(found: Opened) -> None:
    job = found.ground.job
    held = job.grpo.model_copy(update={"held": True})
    by_json = job.asked.model_copy(update={"form": "json"})
    job = job.model_copy(update={"grpo": held, "asked": by_json})
    plan = '{"steps": [{"subtask": "Solve it.", "worker": "reckoner", "access": []}]}'
    alone = _free(found.tokenizer, job, plan, ("reckoner",))
    assert alone.startswith("Solve it.")
    assert "r" not in alone
    several = _free(found.tokenizer, job, plan, ("reckoner", "reader", "encyclopedia"))
    assert several.startswith("Solve it.")
    assert several != alone
    assert not several.endswith("er")
    assert not any(forced in several for forced in ("steps", "worker", "access"))


def _free(tokenizer: Any, job: Job, plan: str, team: tuple[str, ...]) -> str:
    """What of a plan that is held is learned."""
    ids = [*tokenizer(plan, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    marks = Grammars.of(job, tokenizer, len(tokenizer)).free(ids, team)
    assert len(marks) == len(ids)
    return "".join(tokenizer.decode([i]) for i, mark in zip(ids, marks, strict=True) if mark)


def test_vllm_is_held_by_one_expression_and_not_corrected(again: Again) -> None:
    ran = again(grpo={"held": True, "vllm": "colocate"})
    with opened(ran.job, {}, ran.settings) as found:
        settings = arguments(found.ground)
    assert settings.vllm_structured_outputs_regex
    assert settings.vllm_importance_sampling_correction is False
    assert (settings.use_vllm, settings.vllm_mode) == (True, "colocate")


def test_the_papers_settings_reach_the_trainer(again: Again) -> None:
    paper = {
        "iterations": 200, "questions": 4, "rollouts": 64, "batch": 2, "max_tokens": 1024,
        "learning_rate": 1e-6, "schedule": "cosine", "warm_up": 0.03,
    }  # fmt: skip
    ran = again(grpo=paper)
    with opened(ran.job, {}, ran.settings) as found:
        settings = arguments(found.ground, processes=2)
    a_step = settings.per_device_train_batch_size * settings.gradient_accumulation_steps * 2
    assert (a_step, settings.num_generations, settings.max_steps) == (256, 64, 200)
    assert (settings.temperature, settings.beta, settings.epsilon) == (1.0, 0.0, 0.2)
    assert (settings.lr_scheduler_type, settings.warmup_steps) == ("cosine", 0.03)


def test_a_pad_token_is_not_the_end_of_a_text(found: Opened, tmp_path: Path) -> None:
    folder = found.ground.job.folder / "base"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["pad_token"] = settings["eos_token"]
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.pad_token == "<|endoftext|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_a_tiny_model_is_under_a_million_parameters(found: Opened) -> None:
    model = AutoModelForCausalLM.from_pretrained(found.ground.job.folder / "base")
    assert sum(it.numel() for it in model.parameters()) < 1_000_000
    assert all(torch.isfinite(it).all() for it in model.parameters())
