"""Watches TRL's trainer: sums every iteration up, records it, looks at other items, stops it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from podium_lab.train.alone import Reference
from podium_lab.train.environment import Score
from podium_lab.train.items import balanced
from podium_lab.train.learner.board import Board
from podium_lab.train.learner.evaluate import Looker
from podium_lab.train.learner.reward import PlanReward
from podium_lab.train.records import Learned, Look, Records
from podium_lab.train.status import line, share
from podium_lab.train.stopwatch import Stopwatch
from podium_lab.train.watch import Step, Watch, summed

Tell = Callable[[str], None]


@dataclass
class Watching(TrainerCallback):
    """What TRL calls after each iteration."""

    reward: PlanReward
    records: Records
    watch: Watch
    reference: Reference | None
    looker: Looker | None
    """None where only the trainer itself can have the policy write: on several devices."""
    tell: Tell
    clock: Stopwatch = field(default_factory=Stopwatch)
    board: Board = field(default_factory=Board)
    model: Any = None
    """The policy, once there is a trainer."""
    stopped: str = ""
    """What collapsed, if anything did."""
    broken: str = ""
    """Why what was just learned cannot be used; empty while it can."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """One iteration is over."""
        own = [score.model_dump_json() for score in self.reward.take()]
        scores = [Score.model_validate_json(text) for text in gather_object(own)]
        size = self.reward.ground.job.group
        groups = [scores[start : start + size] for start in range(0, len(scores), size)]
        step = summed(state.global_step, groups, self.reference)
        if state.is_world_process_zero:
            self.records.keep(step, scores)
            self.took("iteration", step.iteration)
            self.board.add("train", step.iteration, step)
            self.tell(line(step))
        # In parts on several devices, each would see its own; there the gradient tells.
        if self.looker and (lost := _lost_weights(self.model)):
            self._break(control, f"The weights ({lost})", state.global_step)
            return
        every = self.reward.ground.job.validate_every
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self.validate(str(state.global_step), state.global_step)
        if why := self.watch.look(step):
            self.stopped = why
            control.should_training_stop = True
            control.should_save = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: object,
    ) -> TrainerControl | None:
        """The learner's own figures of an iteration; one that is no number ends the job."""
        if logs is None or "loss" not in logs:
            return None
        learned = Learned(
            iteration=state.global_step,
            loss=_number(logs.get("loss")),
            grad_norm=_number(logs.get("grad_norm")),
            learning_rate=_number(logs.get("learning_rate")),
            entropy=_number(logs.get("entropy")),
            plan_tokens=_number(logs.get("completions/mean_length")),
        )
        if state.is_world_process_zero:
            self.records.learned(learned)
            self.board.add("learner", learned.iteration, learned)
        lost = [name for name in ("loss", "grad_norm") if _is_lost(logs.get(name))]
        if lost:
            self._break(control, f"The {lost[0].replace('_norm', 'ient')}", state.global_step)
        return control

    def took(self, of: str, iteration: int = 0) -> None:
        """Note what was done since this was last called; by the process that keeps the records."""
        taken = self.clock.lap(of, iteration)
        if PartialState().is_main_process:
            self.records.took(taken)

    def _break(self, control: TrainerControl, what: str, iteration: int) -> None:
        """End the job without saving what its last iteration has made of the model."""
        self.broken = (
            f"{what} came to no finite number in iteration {iteration}, so that what it taught was "
            "not saved"
        )
        control.should_training_stop = True
        control.should_save = False

    def validate(self, name: str, iteration: int) -> Step | None:
        """Look at the validation part, greedily; None where that cannot be done here."""
        if self.looker is None:
            return None
        ground = self.reward.ground
        items = balanced(ground.part("validation"), ground.job.validation_items, salt="validation")
        scores = self.looker.look(self.model, items)
        step = summed(0, [[score] for score in scores], self.reference)
        look = Look(name=name, part="validation", temperature=0.0, items=len(items), step=step)
        self.records.look(look, scores)
        self.took("look", iteration)
        self.board.add("validation", iteration, step)
        self.tell(f"validation, {name}: {share(step)}")
        return step


@torch.no_grad()
def _lost_weights(model: Any) -> str:
    """The name of trained weights that are no finite numbers; empty when all are."""
    trained = ((name, it) for name, it in model.named_parameters() if it.requires_grad)
    return next((name for name, it in trained if not torch.isfinite(it).all()), "")


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _is_lost(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)
