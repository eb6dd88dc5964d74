"""Whole jobs on real TRL with a tiny model: records, going on, stopping, failing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGUFReader
from safetensors import safe_open
from tests.lab.train.learner.conftest import SKILLS, Ran, make_job

from podium.config import Settings
from podium_lab.train.errors import TrainingError
from podium_lab.train.exporting import export
from podium_lab.train.learner.to_gguf import to_gguf
from podium_lab.train.records import Records
from podium_workers.trained import TRAINING

Again = Callable[..., Ran]


class CutOffError(Exception):
    """Stands for whatever ends a process."""


def test_a_job_leaves_its_model_and_all_its_records(finished: Ran) -> None:
    folder, records = finished.job.folder, Records(finished.job.folder)
    steps = records.steps()
    assert [step.iteration for step in steps] == [1, 2, 3, 4]
    assert all(step.rollouts == 16 and step.regret is not None for step in steps)
    assert [it.iteration for it in records.lessons()] == [1, 2, 3, 4]
    assert all(it.loss is not None and it.entropy for it in records.lessons())
    assert len(records.rollouts()) == 64
    assert [(look.name, look.part, look.items) for look in records.looks()] == [
        ("before", "validation", 8), ("after", "validation", 8),
    ]  # fmt: skip
    assert records.begun().label == "simulated"
    assert {path.name for path in (folder / "checkpoints").glob("checkpoint-*")} == {
        "checkpoint-2", "checkpoint-4",
    }  # fmt: skip
    assert (folder / "model" / "tokenizer.json").exists()
    assert not list(folder.glob("*.partial"))


def test_it_says_one_line_an_iteration(finished: Ran) -> None:
    lines = [line for line in finished.said if line.startswith("iteration ")]
    assert len(lines) == 4
    assert all("\n" not in line for line in finished.said)


def test_a_job_that_was_cut_off_ends_as_if_it_had_not_been(finished: Ran, again: Again) -> None:
    ran = again()

    def until_the_third(text: str) -> None:
        if text.startswith("iteration 3"):
            raise CutOffError

    ran.tell = until_the_third
    with pytest.raises(CutOffError):
        ran.run()
    torn = ran.job.folder / "checkpoints" / "checkpoint-3"
    torn.mkdir()  # as if cut off while it was written
    ran.tell = None
    ran.run()
    assert "going on from iteration 2" in ran.said
    assert ran.weights() == finished.weights()
    one, other = (Records(it.job.folder) for it in (ran, finished))
    assert one.steps() == other.steps()
    curves, uncut = _curves(ran.job.folder), _curves(finished.job.folder)
    assert curves["train/reward"] == uncut["train/reward"], "no iteration is shown twice"
    assert [it.model_dump(exclude={"run_id"}) for it in one.rollouts()] == [
        it.model_dump(exclude={"run_id"}) for it in other.rollouts()
    ]


def test_all_that_is_recorded_is_on_the_board(finished: Ran) -> None:
    records, curves = Records(finished.job.folder), _curves(finished.job.folder)
    assert curves["train/reward"] == [
        (step.iteration, pytest.approx(step.reward)) for step in records.steps()
    ]
    assert curves["train/routed"] == [
        (step.iteration, pytest.approx(step.routed)) for step in records.steps()
    ]
    assert [number for number, _ in curves["learner/loss"]] == [1, 2, 3, 4]
    assert [number for number, _ in curves["validation/right"]] == [0, 4]
    assert {name.split("/")[1] for name in curves} >= {"lengths", "routing", "plan_tokens"}
    assert finished.said[0].startswith("curves: ")
    assert f"--logdir {finished.job.folder}" in finished.said[0]


def _curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a job."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(folder / "board"), size_guidance={"scalars": 0}).Reload()
    return {
        name: [(event.step, event.value) for event in shown.Scalars(name)]
        for name in shown.Tags()["scalars"]
    }


def test_what_each_piece_of_work_took_is_recorded(finished: Ran) -> None:
    times = Records(finished.job.folder).times()
    done = ["opening", "warm start", "look", "opening", *["iteration"] * 4, "look", "saving"]
    assert [time.of for time in times] == done
    assert all(time.wall_s > 0 for time in times)
    assert next(time for time in times if time.of == "warm start").cpu_s > 0


def test_fewer_workers_are_looked_at_as_training_has_shown_them_or_not(again: Again) -> None:
    from podium_lab.train.learner.testing import evaluate

    skills = [*SKILLS, {"name": "neither", "by_kind": {}}]
    shown = {"fewest": 2, "kept_back": [["calculator", "encyclopedia"]]}
    ran = again(
        asked={"prompt": "brief", "shows": "cards", "max_steps": 2, "context_window": 1024},
        workers={"simulated": skills, "parallel": 8, "shown": shown},
        grpo={"iterations": 1},
        validation_items=2,
    )
    ran.run()
    pools = [set(rollout.shown) for rollout in Records(ran.job.folder).rollouts()]
    assert {"calculator", "encyclopedia"} not in pools
    look = evaluate(
        ran.job, {}, ran.settings,
        part="validation", which="trained", items=3, temperature=0.0, pools="unseen",
    )  # fmt: skip
    assert (look.pools, look.items) == ("unseen", 3)
    seen = Records(ran.job.folder).seen(look)
    assert {it.shown for it in seen} == {("calculator", "encyclopedia")}


def test_a_job_that_is_done_is_not_done_again(finished: Ran) -> None:
    with pytest.raises(TrainingError, match="this job is done"):
        finished.run()


def test_other_settings_do_not_go_on_with_a_job(again: Again) -> None:
    ran = again(grpo={"iterations": 2})
    ran.run()
    (ran.job.folder / "outcome.json").unlink()
    other = make_job(ran.job.folder, grpo={"iterations": 2, "learning_rate": 1e-5})
    with pytest.raises(TrainingError, match=r"begun with another 'grpo\.learning_rate'"):
        Ran(other, ran.settings).run()


def test_a_collapse_into_form_stops_a_real_run(again: Again) -> None:
    """Nobody can answer anything: all that a plan can earn, it earns by being readable."""
    nobody = [{"name": skills["name"], "by_kind": {}} for skills in SKILLS]
    ran = again(
        workers={"simulated": nobody, "parallel": 8},
        grpo={"iterations": 40, "questions": 4, "learning_rate": 4e-4, "batch": 32},
        stop={
            "after": 6,
            "window": 3,
            "most_flat": None,
            "least_entropy": None,
            "most_to_one": None,
            "form_growth": 0.15,
            "form_after": 6,
        },  # of the rules, the one that is meant
        checkpoint_every=50,
    )
    ran.run()
    records = Records(ran.job.folder)
    ended, steps = records.ended(), records.steps()
    assert ended is not None
    assert ended.stopped.startswith("Only the form is learned")
    assert ended.iterations == len(steps) < 40
    assert steps[-1].reward > steps[0].reward
    assert all(step.right_if_valid == 0 for step in steps)


def test_workers_that_always_fail_stop_a_run(again: Again) -> None:
    slow = [{**skills, "seconds": 600.0} for skills in SKILLS]
    ran = again(
        workers={"simulated": slow, "parallel": 16},
        rollout_seconds=0.05,
        validation_items=1,
        stop={"after": 2, "window": 2, "most_dropped": 0.2},  # of the others, many are unreadable
    )
    ran.run()
    ended = Records(ran.job.folder).ended()
    assert ended is not None
    assert "of the rollouts were dropped in 2 iterations" in ended.stopped
    assert ended.iterations == 2


def test_a_loss_that_is_no_number_ends_a_run_and_is_not_saved(again: Again) -> None:
    ran = again(grpo={"learning_rate": 1e39}, checkpoint_every=1)
    with pytest.raises(TrainingError, match=r"no finite number.*lower grpo\.learning_rate"):
        ran.run()
    assert not list(ran.job.folder.glob("checkpoints/checkpoint-*"))
    assert not (ran.job.folder / "model").exists()


def test_money_that_is_spent_ends_a_run_that_can_go_on(again: Again) -> None:
    dear = [{**skills, "price": {"input": 1000, "output": 1000}} for skills in SKILLS]
    ran = again(workers={"simulated": dear, "parallel": 2}, max_usd=1e-6)
    with pytest.raises(TrainingError, match="raise max_usd and go on"):
        ran.run()


def test_decoding_held_to_the_grammar_gives_readable_plans(finished: Ran, again: Again) -> None:
    ran = again(grpo={"held": True, "prose": 0, "iterations": 1}, validation_items=2)
    ran.run()
    (step,) = Records(ran.job.folder).steps()
    # Only what max_tokens has cut off cannot be read.
    assert step.valid > max(0.6, Records(finished.job.folder).steps()[0].valid)
    (lesson,) = Records(ran.job.folder).lessons()
    assert lesson.plan_tokens is not None
    assert lesson.plan_tokens < 20, "forced text does not count"


def test_plans_held_to_json_name_the_workers_that_are_shown(again: Again) -> None:
    asked = {
        "form": "json", "shows": "cards", "prompt": "brief", "max_steps": 1, "context_window": 1024,
    }  # fmt: skip
    ran = again(
        asked=asked,
        workers={"simulated": SKILLS, "shown": {"fewest": 1, "shuffled": True}, "parallel": 8},
        grpo={"held": True, "iterations": 2, "questions": 4, "rollouts": 4, "max_tokens": 160},
        validation_items=2,
    )
    ran.run()
    rollouts = Records(ran.job.folder).rollouts()
    read = [it for it in rollouts if it.valid]
    # Its tokens are those of lists: a plan in JSON takes many, and some are cut off.
    assert len(read) > len(rollouts) / 2, rollouts[0].problem
    assert all(set(it.workers) <= set(it.shown) for it in read)
    assert {len(it.shown) for it in rollouts} == {1, 2}


def test_what_was_trained_is_exported_with_a_card(finished: Ran, tmp_path: Path) -> None:
    def no_merge(trained: Path, base: str, out: Path) -> None:
        raise AssertionError("all weights were trained")

    out = tmp_path / "out"
    assert export(finished.job.folder, out, "merged", merge=no_merge, to_gguf=to_gguf) == out
    card = (out / "README.md").read_text()
    begun = Records(finished.job.folder).begun()
    assert "**Workers: simulated.**" in card
    assert all(digest in card for digest in begun.data.values())
    assert "nothing here says how it does with real models" in card
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"
    with pytest.raises(TrainingError, match="there is something already"):
        export(finished.job.folder, out, "merged", merge=no_merge, to_gguf=to_gguf)
    with pytest.raises(TrainingError, match="no/such: there is no such file"):
        export(
            finished.job.folder, tmp_path / "g", "gguf", merge=no_merge, to_gguf=to_gguf,
            converter="no/such",
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == [out]


def test_what_was_trained_becomes_a_file_for_the_local_engine(
    finished: Ran, tmp_path: Path
) -> None:
    file = export(finished.job.folder, tmp_path / "out", "gguf", merge=print, to_gguf=to_gguf)
    read = GGUFReader(file)
    with safe_open(finished.job.folder / "model" / "model.safetensors", framework="np") as weights:
        told = weights.get_tensor("model.layers.0.mlp.down_proj.weight")
        count = len(list(weights.keys()))
    tensors = {tensor.name: tensor.data for tensor in read.tensors}
    assert len(tensors) == count
    assert abs(tensors["blk.0.ffn_down.weight"] - told).max() < 1e-3
    tokens = read.get_field("tokenizer.ggml.tokens")
    shape = read.get_field("llama.vocab_size")
    assert tokens is not None
    assert shape is not None
    assert len(tokens.data) == shape.contents()
    assert {path.name for path in file.parent.iterdir()} == {"model.gguf", "README.md", TRAINING}


LLAMA_3 = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\\\p{N}{1,3}"}, "behavior": "Isolated"},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
    ],
}


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("tokenizer", {"pre_tokenizer": LLAMA_3}),
        ("tokenizer", {"pre_tokenizer": None}),
        ("tokenizer", {"normalizer": {"type": "Prepend", "prepend": "\u2581"}}),
        ("config", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
        ("config", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0}}),
    ],
)
def test_a_model_that_would_be_served_wrongly_needs_a_converter(
    finished: Ran, tmp_path: Path, file: str, changes: dict[str, object]
) -> None:
    folder = shutil.copytree(finished.job.folder / "model", tmp_path / "model")
    path = folder / f"{file}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert not to_gguf(folder, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_adapters_are_trained_and_merged(settings: Settings, again: Again, tmp_path: Path) -> None:
    from podium_lab.train.learner.export import merge

    ran = again(grpo={"iterations": 1}, warm_start=None)
    shutil.rmtree(ran.job.folder / "warm")
    model = ran.job.model.model_copy(update={"lora_rank": 4, "lora_layers": 2})
    ran.job = ran.job.model_copy(update={"model": model})
    ran.run()
    assert (ran.job.folder / "model" / "adapter_config.json").exists()
    out = export(ran.job.folder, tmp_path / "whole", "merged", merge=merge, to_gguf=to_gguf)
    assert (out / "model.safetensors").exists()
    alone = export(ran.job.folder, tmp_path / "lora", "adapter", merge=merge, to_gguf=to_gguf)
    assert (alone / "adapter_model.safetensors").exists()
