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
from podium_lab.train.items import Part, balanced
from podium_lab.train.learner.evaluate import Looker
from podium_lab.train.learner.held import Grammars
from podium_lab.train.learner.models import load_model
from podium_lab.train.learner.run import MODEL, Opened, opened
from podium_lab.train.records import Look, Records
from podium_lab.train.reference import known
from podium_lab.train.watch import summed

WHICH = ("trained", "untrained")
"""What is looked at: the end of the job, or what it was before any reinforcement."""


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
    """
    records = Records(job.folder)
    with opened(job, environment, settings) as found:
        ground = found.ground
        records.begin(job, ground.items, ground.label)
        model = _load(found, job.folder / (MODEL if which == "trained" else "warm"))
        vocabulary = model.config.get_text_config().vocab_size
        held = Grammars.of(ground.job, found.tokenizer, vocabulary) if job.grpo.held else None
        asked = balanced(ground.part(part), items or len(ground.items), salt=part)
        torch.manual_seed(job.seed)
        scores = Looker(found.reward, found.tokenizer, held).look(
            model, asked, temperature=temperature, which=pools
        )
        step = summed(0, [[score] for score in scores], known(ground))
        look = Look(
            name=which, part=part, pools=pools, temperature=temperature, items=len(asked), step=step
        )
        records.look(look, scores)
        return look


def _load(found: Opened, folder: Path) -> Any:
    """What lies in *folder*; the base itself where there is nothing."""
    model = found.ground.job.model
    if not folder.is_dir():
        return load_model(model)
    if model.lora_rank is not None:
        return PeftModel.from_pretrained(load_model(model), str(folder))
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
