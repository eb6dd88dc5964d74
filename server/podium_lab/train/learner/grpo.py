"""GRPO on TRL's trainer: the paper's algorithm (papers.md 1.6) around the environment's rewards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import trl.trainer.utils
from datasets import Dataset
from peft import PeftModel
from transformers import PrinterCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from podium.errors import SettingsError
from podium_lab.train.draws import Draw
from podium_lab.train.learner.held import Grammars, HeldRollouts, grammar_text
from podium_lab.train.learner.models import adapters, dtype_of
from podium_lab.train.learner.recursion import TwoRounds
from podium_lab.train.learner.reward import PlanReward
from podium_lab.train.learner.sharing import SharingTrainer
from podium_lab.train.learner.watching import Watching
from podium_lab.train.opening import Ground, asked_rows, training_draws
from podium_lab.train.plan_regex import regex_of


def arguments(ground: Ground, *, processes: int = 1) -> GRPOConfig:
    """TRL's arguments for a job on so many processes, one for each device.

    Raises:
        SettingsError: an iteration cannot be shared out between so many.
    """
    job, grpo = ground.job, ground.job.grpo
    rollouts = grpo.questions * grpo.rollouts
    batch = min(grpo.batch, rollouts // processes)
    on_cpu = not torch.cuda.is_available()
    if rollouts % (batch * processes):
        raise SettingsError(
            f"grpo.batch: {batch} on each of {processes} devices does not divide the {rollouts} "
            "rollouts of an iteration."
        )
    if job.recursion and rollouts // processes % grpo.rollouts:
        raise SettingsError(
            f"grpo.questions: with [recursion] each of {processes} devices takes whole groups, and "
            f"{grpo.questions} questions cannot be shared out so; give a multiple of {processes}."
        )
    return GRPOConfig(
        output_dir=str(job.folder / "checkpoints"),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=rollouts // (batch * processes),
        num_generations=job.group,
        max_steps=grpo.iterations,
        max_completion_length=grpo.max_tokens,
        temperature=grpo.temperature,
        learning_rate=grpo.learning_rate,
        lr_scheduler_type=grpo.schedule,
        warmup_steps=grpo.warm_up,
        epsilon=grpo.clip,
        beta=grpo.kl,
        loss_type=grpo.loss,
        scale_rewards="group",
        num_iterations=1,
        shuffle_dataset=False,
        seed=job.seed,
        bf16=dtype_of(job.model, compute=True) == torch.bfloat16,
        use_cpu=on_cpu,
        gradient_checkpointing=not on_cpu,
        save_steps=job.checkpoint_every,
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        **_vllm(ground),
    )


def _vllm(ground: Ground) -> dict[str, Any]:
    """What TRL is told of vLLM; nothing where the trainer itself writes."""
    job, grpo = ground.job, ground.job.grpo
    if grpo.vllm == "off":
        return {}
    text = grammar_text(job, ground.pool.names) if grpo.held else ""
    return {
        "use_vllm": True,
        "vllm_mode": grpo.vllm,
        "vllm_server_base_url": grpo.vllm_url if grpo.vllm == "server" else None,
        "vllm_gpu_memory_utilization": grpo.vllm_memory,
        "vllm_enable_sleep_mode": grpo.vllm == "colocate",
        "vllm_tensor_parallel_size": grpo.vllm_parallel,
        "vllm_max_model_length": job.asked.context_window,
        "vllm_structured_outputs_regex": regex_of(text) if text else None,
        # What was sampled under a grammar has other chances than the trainer's own.
        "vllm_importance_sampling_correction": not grpo.held,
    }


def build(
    ground: Ground,
    model: Any,
    tokenizer: Any,
    reward: PlanReward,
    watching: Watching,
    *,
    grammars: Grammars | None = None,
    processes: int = 1,
) -> GRPOTrainer:
    """The trainer of a job; its decoding is held where there are *grammars*."""
    drawn = training_draws(ground)
    asked = asked_rows(ground, drawn)
    texts = (row["prompt"][-1]["content"] for row in asked)
    by_text = dict(zip(texts, drawn, strict=True))
    if ground.job.recursion:  # a group of first rounds, then one of the second ones
        asked = [row for row in asked for _ in range(2)]
    rewards: Any = [reward]  # TRL's type for them leaves asynchronous ones out
    trainer = SharingTrainer(
        model=model,
        reward_funcs=rewards,
        args=arguments(ground, processes=processes),
        train_dataset=Dataset.from_list([dict(row) for row in asked]),
        processing_class=tokenizer,
        peft_config=None if isinstance(model, PeftModel) else adapters(ground.job.model),
        rollout_func=_rollouts(reward, by_text, grammars),
        callbacks=[watching],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _rollouts(reward: PlanReward, drawn: Mapping[str, Draw], grammars: Grammars | None) -> Any:
    """What writes plans in the place of TRL's own generation; None where that will do."""
    if reward.ground.job.recursion:
        return TwoRounds(reward, drawn, grammars)
    if grammars is None:
        return None
    return HeldRollouts(grammars, {text: draw.workers for text, draw in drawn.items()})


def score_completions_only() -> None:
    """Leave prompts out of what is projected on the vocabulary, on a processor as on a GPU.

    TRL does so only where its fused kernels can run, though what is left out is not their doing;
    a step takes 36 to 50 % less time so, and gives the same.
    """
    if not torch.cuda.is_available():
        kernels: Any = trl.trainer.utils
        kernels._use_triton = lambda device: True


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that a job goes on from; None where there is none yet.

    One without the file that is written last was cut off, and does not count.
    """
    whole = (path.parent for path in (folder / "checkpoints").glob("checkpoint-*/*_state.json"))
    found = sorted(
        whole,
        key=lambda path: int(path.name.rpartition("-")[2]),
    )
    return found[-1] if found else None
