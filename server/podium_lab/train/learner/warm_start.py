"""Teaches a small model the form of a plan, never the choice: workers are named at random.

A model of some billion parameters reads the form from its prompt; one of 135 million writes 17 %
readable plans from examples, and needs this. What it learns of who is good at what is learned by
reinforcement alone, and that is measured apart. Where a job trains second rounds, their form is
taught too: whether they accept or plan anew is drawn by lot as well.
"""

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, PrinterCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from podium_lab.train.config import Job, WarmStart
from podium_lab.train.draws import Draw, draws
from podium_lab.train.environment import shuffled
from podium_lab.train.learner.models import adapters, dtype_of
from podium_lab.train.learner.reward import PlanReward
from podium_lab.train.opening import Ground, policy_card
from podium_lab.train.random_plans import accepting, random_plan, rendered

FOLDER = "warm"


def warm_start(reward: PlanReward, model: Any, tokenizer: Any) -> Any:
    """The model after it has been taught the form; as it is where the job has no warm start.

    What it has been taught is kept in the job's folder, and used when the job is begun again.
    """
    job = reward.ground.job
    if job.warm_start is None:
        return model
    kept = job.folder / FOLDER
    if not kept.is_dir():
        trainer = SFTTrainer(
            model=model,
            args=arguments(job, job.warm_start),
            train_dataset=rows(reward, job.warm_start, tokenizer),
            processing_class=tokenizer,
            peft_config=adapters(job.model),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        save_whole(trainer, kept)
        return trainer.model
    if job.model.lora_rank is not None:
        return PeftModel.from_pretrained(model, kept, is_trainable=True)
    return AutoModelForCausalLM.from_pretrained(kept, dtype=dtype_of(job.model))


def save_whole(trainer: Any, folder: Path) -> None:
    """Save a trainer's model so that *folder* is there only once all of it is."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    trainer.save_model(str(partial))
    if trainer.is_world_process_zero():
        (partial / "training_args.bin").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    trainer.accelerator.wait_for_everyone()


def rows(reward: PlanReward, warm: WarmStart, tokenizer: Any) -> Dataset:
    """Prompts as in the job, and plans that say nothing about them."""
    ground = reward.ground
    drawn = list(_examples(ground, warm.iterations * warm.batch, warm.two_steps))
    again = round(warm.second_rounds * len(drawn)) if ground.job.recursion else 0
    texts = [*_second_rounds(reward, drawn[:again]), *_first_rounds(ground, drawn[again:])]
    if again:
        random.Random(f"{ground.job.seed}:order").shuffle(texts)
    examples: list[dict[str, Any]] = []
    for prompt, plan in texts:
        asked = [{"role": "user", "content": prompt}]
        written = [{"role": "assistant", "content": plan}]
        if warm.prompts_too:
            text = tokenizer.apply_chat_template([*asked, *written], tokenize=False)
            examples.append({"text": text})
        else:
            examples.append({"prompt": asked, "completion": written})
    return Dataset.from_list(examples)


def _first_rounds(ground: Ground, drawn: Sequence[tuple[Draw, str]]) -> Iterator[tuple[str, str]]:
    card = policy_card(ground.job)
    for draw, plan in drawn:
        pool = shuffled(ground.pool, draw.workers)
        yield ground.environment.prompt(draw.item, pool, card), plan


def _second_rounds(
    reward: PlanReward, drawn: Sequence[tuple[Draw, str]]
) -> Iterator[tuple[str, str]]:
    """What is asked after plans by lot were carried out; half of the replies accept."""
    job = reward.ground.job
    chance = random.Random(f"{job.seed}:second")
    draws = [draw for draw, _ in drawn]
    for first, draw in zip(reward.firsts([plan for _, plan in drawn], draws), draws, strict=True):
        plan = rendered(random_plan(draw.workers, chance, 0.5), draw.workers, job.asked.form)
        if first.outcome:
            yield first.prompt, accepting(job.asked.form) if chance.random() < 0.5 else plan


def _examples(ground: Ground, count: int, two_steps: float) -> Iterator[tuple[Draw, str]]:
    job, chance = ground.job, random.Random(f"{ground.job.seed}:warm")
    drawn = draws(
        ground.part("train"),
        ground.pool.names,
        iterations=count,
        questions=1,
        seed=job.seed + 1,
        pools=job.workers.shown,
    )
    for draw in drawn:
        plan = random_plan(draw.workers, chance, two_steps)
        yield draw, rendered(plan, draw.workers, job.asked.form)


def example_plans(ground: Ground, count: int) -> list[str]:
    """Plans alone, as they are taught."""
    warm = ground.job.warm_start or WarmStart()
    return [plan for _, plan in _examples(ground, count, warm.two_steps)]


def arguments(job: Job, warm: WarmStart) -> SFTConfig:
    """TRL's arguments for a warm start."""
    return SFTConfig(
        output_dir=str(job.folder / FOLDER),
        per_device_train_batch_size=warm.batch,
        max_steps=warm.iterations,
        learning_rate=warm.learning_rate,
        lr_scheduler_type="constant",
        completion_only_loss=None if warm.prompts_too else True,
        max_length=job.asked.context_window,
        seed=job.seed,
        bf16=dtype_of(job.model, compute=True) == torch.bfloat16,
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=5,
        report_to=[],
        disable_tqdm=True,
    )
