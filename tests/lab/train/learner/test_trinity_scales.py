"""SVF: a layer that is scaled by its singular values, and heads that are evolved with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.lab.train.learner.test_trinity import SMALL, TEST, TRAIN, gathered, job
from transformers import AutoModelForCausalLM, AutoTokenizer

from podium.config import Settings
from podium.policy.head import load_head
from podium_lab.train.errors import TrainingError
from podium_lab.train.learner.models import PROJECTIONS
from podium_lab.train.learner.tiny import make_model, make_tokenizer
from podium_lab.train.learner.trinity_evolve import evolve
from podium_lab.train.learner.trinity_run import run
from podium_lab.train.learner.trinity_scales import ScaledArena, ScaledModel
from podium_lab.train.trinity.features import FILE, KeptStates

TEXTS = ("user: Which city governs Norway?", "user: Calculate 3 times 4.\n\nassistant: It is 12.")
FEW = SMALL.model_copy(update={"svf": True, "generations": 4, "population": 6, "replications": 6})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model that has learned nothing."""
    folder = tmp_path_factory.mktemp("base")
    tokenizer = make_tokenizer([item.question for item in (*TRAIN, *TEST)])
    make_model(tokenizer, seed=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def read_whole(model: Any, base: str) -> np.ndarray:
    """States of the texts as transformers has them, each text by itself."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows: list[np.ndarray] = []
    with torch.no_grad():
        for text in TEXTS:
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            rows.append(model.get_decoder()(input_ids=ids).last_hidden_state[0, -2].numpy())
    return np.stack(rows)


def test_without_scales_states_are_the_models_own(base: str) -> None:
    scaled = ScaledModel(base, TEXTS)
    own = read_whole(AutoModelForCausalLM.from_pretrained(base), base)
    assert scaled.states([0, 1]) == pytest.approx(own, abs=1e-4)
    assert scaled.states([1, 0]) == pytest.approx(own[::-1], abs=1e-4)


def test_scales_change_the_seven_matrices_as_the_paper_says(base: str, tmp_path: Path) -> None:
    scaled = ScaledModel(base, TEXTS)
    before = scaled.states([0, 1])
    scales = np.random.default_rng(0).normal(0, 0.3, scaled.size)
    scaled.scale(scales)
    other: Any = AutoModelForCausalLM.from_pretrained(base)
    left = list(scales)
    for name, linear in other.get_decoder().layers[-2].named_modules():
        if name.rpartition(".")[2] in PROJECTIONS:
            u, s, v = np.linalg.svd(linear.weight.detach().numpy(), full_matrices=False)
            own, left = np.asarray(left[: len(s)]), left[len(s) :]
            changed = s * (1 + own) * s.sum() / (s * (1 + own)).sum()
            linear.weight.data = torch.from_numpy((u * changed @ v).astype(np.float32))
    assert not left
    after = scaled.states([0, 1])
    assert after == pytest.approx(read_whole(other, base), abs=1e-3)
    assert np.abs(after - before).max() > 0.01
    file = scaled.write(tmp_path)
    written = AutoModelForCausalLM.from_pretrained(file.with_suffix(""))
    assert read_whole(written, base) == pytest.approx(after, abs=1e-3)
    scaled.scale(np.zeros(scaled.size))
    assert scaled.states([0, 1]) == pytest.approx(before, abs=1e-3)


async def test_a_candidate_is_a_head_and_scales(base: str) -> None:
    found = await gathered()
    model = ScaledModel(base, found.table.views)
    arena = ScaledArena(found.table, model, TRAIN)
    assert arena.size == arena.numbers + model.size
    head = np.random.default_rng(0).normal(size=arena.size) * 0.5
    plain = np.concatenate([head[: arena.numbers], np.zeros(model.size)])
    logits = arena.logits(np.stack([head, plain]), arena.begins(TEST[:2]))
    seen = np.abs(logits).sum(axis=2) > 0
    assert seen[0].any()
    assert not seen.all()
    own = arena.features @ plain[: arena.numbers].reshape(arena.rows, -1).T
    assert logits[1][seen[1]] == pytest.approx(own[seen[1]], abs=1e-3)
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


async def test_head_and_scales_are_evolved_together_and_go_on_exactly(
    base: str, tmp_path: Path
) -> None:
    found = await gathered()
    arena = ScaledArena(found.table, ScaledModel(base, found.table.views), TRAIN)
    whole, curve = evolve(arena, TRAIN[:4], FEW, seed=1)
    assert np.abs(whole[arena.numbers :]).max() > 0
    assert whole[arena.numbers :].std() < whole[: arena.numbers].std() / 3
    part = FEW.model_copy(update={"generations": 2, "checkpoint_every": 1})
    evolve(arena, TRAIN[:4], part, seed=1, folder=tmp_path)
    rest, longer = evolve(arena, TRAIN[:4], FEW, seed=1, folder=tmp_path)
    assert longer == curve
    assert np.array_equal(rest, whole)


async def test_a_job_leaves_a_head_with_a_model_of_its_own(
    base: str, tmp_path: Path, settings: Settings
) -> None:
    values = job(tmp_path).model_copy(update={"trinity": FEW})
    small = values.model_copy(update={"model": values.model.model_copy(update={"base": base})})
    found = await gathered()
    file = run(small, found, lambda _: None, models_dir=settings.models_dir)
    head = load_head(file)
    kept = KeptStates(tmp_path / FILE, head.model, head.sha256)
    assert all(len(kept.get(text) or ()) == 128 for text in found.table.views)
    assert head.model == str((tmp_path / "coordinator.gguf").resolve())
    assert len(head.sha256) == 64
    assert len(head.mean) == 128


def test_a_model_without_such_a_layer_is_refused(base: str, tmp_path: Path) -> None:
    whole: Any = AutoModelForCausalLM.from_pretrained(base)
    whole.config.num_hidden_layers = 1
    whole.model.layers = whole.model.layers[:1]
    whole.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path)
    with pytest.raises(TrainingError, match="set svf = false"):
        ScaledModel(str(tmp_path), TEXTS)
