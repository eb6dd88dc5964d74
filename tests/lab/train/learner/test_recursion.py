"""Second rounds on real TRL with a tiny model: what they earn, what is left out, going on."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from tests.lab.train.learner.conftest import Ran, make_job
from transformers import AutoModelForCausalLM
from trl.trainer.grpo_trainer import GRPOTrainer

from podium.config import Settings
from podium.errors import SettingsError
from podium_lab.train.card import card
from podium_lab.train.environment import Score
from podium_lab.train.learner.grpo import arguments, build
from podium_lab.train.learner.held import Grammars
from podium_lab.train.learner.run import Opened, opened
from podium_lab.train.learner.testing import evaluate
from podium_lab.train.learner.warm_start import rows
from podium_lab.train.learner.watching import Watching
from podium_lab.train.random_plans import accepting
from podium_lab.train.records import Records
from podium_lab.train.recursion import pairs
from podium_lab.train.status import status
from podium_lab.train.watch import StopRules, Watch

Again = Callable[..., Ran]
GRPO = {"iterations": 2, "questions": 2, "rollouts": 8, "batch": 16}
HALF = 4


class CutOffError(Exception):
    """Ends a job as a power cut does."""


def _recursive(again: Again, **sections: object) -> Ran:
    plain = {"recursion": {}, "grpo": GRPO, "checkpoint_every": 1, "validation_items": 4}
    return again(**{**plain, **sections})


def _own(score: Score) -> float:
    """What a round earns by itself."""
    return 0.0 if not score.valid else 1.0 if score.right else 0.5


def _paired(scores: Sequence[Score]) -> list[tuple[Score, Score]]:
    return [(scores[one], scores[other]) for one, other in pairs(len(scores), HALF)]


def test_a_job_trains_both_rounds_and_shows_both(again: Again) -> None:
    ran = _recursive(again)
    ran.run()
    records = Records(ran.job.folder)
    rollouts, steps = records.rollouts(), records.steps()
    assert len(rollouts) == 2 * 16
    for first, second in _paired(rollouts):
        assert (first.round, second.round, first.item) == (0, 1, second.item)
        assert second.asked == (first.right is not None)
        if second.asked:
            assert (second.before, second.run_id) == (first.right, first.run_id)
            assert second.reward == _own(second) or second.accepted
            assert first.reward == pytest.approx(0.75 * _own(first) + 0.25 * (second.reward or 0))
        else:
            assert (first.reward, first.valid, second.reward) == (0.0, False, None)
    assert any(second.asked for _, second in _paired(rollouts))
    asked = sum(it.asked for it in rollouts)
    assert sum(step.rollouts for step in steps) == asked
    assert all(step.second and step.dropped == 0 for step in steps)
    for look in records.looks():
        assert look.step.second
        assert look.step.second.count == look.items == 4
        assert look.step.second.first == look.step.right
    evaluate(
        ran.job, {}, ran.settings, part="validation", which="trained", items=3, temperature=0.0
    )
    shown = "\n".join(status(records))
    assert shown.count("right after round two") == 4, "of each look, and of the last iteration"
    assert card(records, form="whole", workers=()).count("right after round two") == 3


def test_advantages_are_measured_by_round_and_rows_without_a_first_have_none(again: Again) -> None:
    readable = {"held": True, "prose": 0}
    ran = _recursive(again, grpo={**GRPO, "iterations": 1, **readable})
    with opened(ran.job, {}, ran.settings) as found:
        trainer = _built(found, "warm")
        trainer.train()
        scores = Records(ran.job.folder).rollouts()
        advantages = list(trainer._logs["advantages"])
    expected: list[float] = []
    for start in range(0, len(scores), HALF):
        group = [score.reward for score in scores[start : start + HALF]]
        kept = [reward for reward in group if reward is not None]
        middle = mean(kept) if kept else 0.0
        spread = stdev(kept) if len(kept) > 1 else 0.0
        expected += [0.0 if it is None else (it - middle) / (spread + 1e-4) for it in group]
    assert advantages == pytest.approx(expected, abs=2e-3)
    assert any(advantages), scores


def test_first_plans_that_cannot_be_read_leave_their_second_rows_out(again: Again) -> None:
    ran = _recursive(again, grpo={**GRPO, "iterations": 1, "max_tokens": 8})
    with opened(ran.job, {}, ran.settings) as found:
        trainer = _built(found, "base")  # it has learned nothing
        trainer.train()
        advantages = list(trainer._logs["advantages"])
    scores = Records(ran.job.folder).rollouts()
    assert [score.asked for score in scores] == [True] * 4 + [False] * 4 + [True] * 4 + [False] * 4
    assert [score.reward for score in scores] == [*[0.0] * 4, *[None] * 4] * 2
    assert advantages == [0.0] * 16
    (step,) = Records(ran.job.folder).steps()
    assert (step.rollouts, step.dropped, step.valid) == (8, 0, 0.0)


def _built(found: Opened, base: str) -> GRPOTrainer:
    ground, tokenizer = found.ground, found.tokenizer
    watch = Watch(StopRules(), workers=2)
    records = Records(ground.job.folder)
    watching = Watching(found.reward, records, watch, None, None, lambda text: None)
    model = AutoModelForCausalLM.from_pretrained(ground.job.folder / base)
    held = Grammars.of(ground.job, tokenizer, len(tokenizer)) if ground.job.grpo.held else None
    trainer = build(ground, model, tokenizer, found.reward, watching, grammars=held)
    watching.model = trainer.model
    return trainer


def test_going_on_gives_what_an_uninterrupted_job_gives(again: Again, tmp_path: Path) -> None:
    whole = _recursive(again)
    whole.run()
    kept = tmp_path / "kept"
    whole.job.folder.rename(kept)
    cut = Ran(whole.job, whole.settings)
    for name in ("base", "warm"):
        shutil.copytree(kept / name, cut.job.folder / name)

    def cut_off(text: str) -> None:
        if text.startswith("iteration 2: "):
            raise CutOffError

    cut.tell = cut_off
    with pytest.raises(CutOffError):
        cut.run()
    cut.tell = None
    cut.run()
    assert cut.weights() == (kept / "model" / "model.safetensors").read_bytes()
    assert Records(cut.job.folder).steps() == Records(kept).steps()


def test_held_decoding_may_accept_in_the_second_round_only(again: Again) -> None:
    grpo = {**GRPO, "held": True, "prose": 0, "iterations": 1}
    ran = _recursive(again, grpo=grpo, validation_items=2)
    with opened(ran.job, {}, ran.settings) as found:
        tokenizer = found.tokenizer
        text = accepting("lists")
        ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        grammars = Grammars.of(found.ground.job, tokenizer, len(tokenizer))
        team = found.ground.pool.names
        assert any(grammars.free(ids, team, later=True))
        assert sum(grammars.free(ids, team)) < len(ids)
    ran.run()
    (step,) = Records(ran.job.folder).steps()
    assert step.second
    assert step.second.count > 0


def test_a_warm_start_teaches_second_rounds_by_lot(again: Again) -> None:
    warm = {"iterations": 4, "batch": 10, "two_steps": 0.2, "second_rounds": 0.5}
    ran = _recursive(again, warm_start=warm)
    with opened(ran.job, {}, ran.settings) as found:
        assert found.ground.job.warm_start
        examples: list[Any] = list(rows(found.reward, found.ground.job.warm_start, found.tokenizer))
    later = [it for it in examples if "Reply:" in it["prompt"][-1]["content"]]
    assert (len(examples), len(later)) == (40, 20)
    accepted = sum(it["completion"][-1]["content"] == accepting("lists") for it in later)
    assert 4 <= accepted <= 16


def test_a_base_may_be_what_another_job_has_trained(
    finished: Ran, settings: Settings, again: Again, tmp_path: Path
) -> None:
    """Whole, or its adapters alone, whose base has to be there still."""
    trained = again(grpo={"iterations": 1}, warm_start=None)
    shutil.rmtree(trained.job.folder / "warm")
    lora = trained.job.model.model_copy(update={"lora_rank": 4, "lora_layers": 2})
    trained.job = trained.job.model_copy(update={"model": lora})
    trained.run()
    folder = tmp_path / "next"
    base = lora.model_copy(update={"base": str(trained.job.folder / "model")})
    plain = make_job(folder, recursion={}, grpo=GRPO, warm_start=None, validation_items=4)
    adapters = plain.model_copy(update={"model": base})
    Ran(adapters, settings).run()
    merged = AutoModelForCausalLM.from_pretrained(folder / "base")
    assert "lora" not in "".join(merged.state_dict())
    assert (folder / "model" / "adapter_config.json").exists()
    for base, said in (
        (trained.job.folder, "is the folder of a job; name its model"),
        (tmp_path / "no" / "such", "there is no folder"),
    ):
        model = lora.model_copy(update={"base": str(base)})
        job = adapters.model_copy(update={"folder": tmp_path / "third", "model": model})
        with pytest.raises(SettingsError, match=said):
            Ran(job, settings).run()
    shutil.rmtree(trained.job.folder / "base")
    job = adapters.model_copy(update={"folder": tmp_path / "third"})
    with pytest.raises(SettingsError, match=r"holds adapters alone, and their base .* cannot be"):
        Ran(job, settings).run()
    grpo = job.grpo.model_copy(update={"vllm": "server"})
    with pytest.raises(SettingsError, match="a vLLM server needs all weights"):
        Ran(job.model_copy(update={"grpo": grpo}), settings).run()
    assert json.loads((folder / "job.json").read_text())["job"]["recursion"] == {"discount": 0.25}
    assert finished.job.recursion is None


def test_each_device_takes_whole_groups(again: Again) -> None:
    ran = _recursive(again, grpo={**GRPO, "questions": 3, "batch": 6})
    with opened(ran.job, {}, ran.settings) as found:
        settings = arguments(found.ground)
        assert (settings.num_generations, settings.gradient_accumulation_steps) == (4, 4)
        with pytest.raises(SettingsError, match="give a multiple of 2"):
            arguments(found.ground, processes=2)
