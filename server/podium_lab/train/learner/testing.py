"""Looks at a trained model on the part that is sealed until then."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from podium.config import Settings
from podium_lab.train.config import Job
from podium_lab.train.draws import Which
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Part, balanced
from podium_lab.train.learner.evaluate import Looker
from podium_lab.train.learner.held import Grammars
from podium_lab.train.learner.models import load_model
from podium_lab.train.learner.run import MODEL, Opened, opened
from podium_lab.train.learner.warm_start import FOLDER as WARM
from podium_lab.train.records import TRAINED, Look, Records
from podium_lab.train.reference import known
from podium_lab.train.watch import summed


def evaluate(
    job: Job,
    environment: Mapping[str, str],
    settings: Settings,
    *,
    part: Part,
    which: str,
    items: int | None,
    temperature: float,
    pools: Which = "whole",
) -> Look:
    """Look at a job's model on *part*, and note it; *items* None takes all of the part.

    *pools* says which workers it is shown: all, or for each item fewer, such as it has met in its
    training or such as it has not.

    Raises:
        SettingsError, ManifestError, StoreError: something cannot be used.
        TrainingError: what is to be looked at is not there; nothing is noted then.
    """
    records = Records(job.folder)
    folder, iterations = _trained(job, records) if which == TRAINED else _untrained(job)
    with opened(job, environment, settings) as found:
        ground = found.ground
        records.begin(job, ground.items, ground.label)
        model = _load(found, folder)
        vocabulary = model.config.get_text_config().vocab_size
        held = Grammars.of(ground.job, found.tokenizer, vocabulary) if job.grpo.held else None
        asked = balanced(ground.part(part), items or len(ground.items), salt=part)
        torch.manual_seed(job.seed)
        scores = Looker(found.reward, found.tokenizer, held).look(
            model, asked, temperature=temperature, which=pools
        )
        step = summed(0, [[score] for score in scores], known(ground))
        look = Look(
            name=which, part=part, pools=pools, temperature=temperature, items=len(asked),
            iterations=iterations, step=step,
        )  # fmt: skip
        records.look(look, scores)
        return look


def _trained(job: Job, records: Records) -> tuple[Path, int]:
    """Where the end of a job lies, and after how many iterations it came."""
    folder, ended = job.folder / MODEL, records.ended()
    # A job that goes on keeps the model of its earlier end until it has one of its own.
    if ended is None or not folder.is_dir():
        raise TrainingError(
            f"{folder}: there is no trained model yet, {len(records.steps())} of "
            f"{job.grpo.iterations} iterations are done; type `podium train grpo` to go on, or "
            "give --untrained to look at what it began from."
        )
    return folder, ended.iterations


def _untrained(job: Job) -> tuple[Path | None, int]:
    """Where the model lies that reinforcement begins from; None for the base itself."""
    if job.warm_start is None:
        return None, 0
    if not (folder := job.folder / WARM).is_dir():
        raise TrainingError(
            f"{folder}: reinforcement begins from the warm start, which is not made yet; type "
            "`podium train grpo` to make it."
        )
    return folder, 0


def _load(found: Opened, folder: Path | None) -> Any:
    """What lies in *folder*; the base itself where that is None."""
    model = found.ground.job.model
    if folder is None:
        return load_model(model)
    if model.lora_rank is not None:
        return PeftModel.from_pretrained(load_model(model), str(folder))
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
