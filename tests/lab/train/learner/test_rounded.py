"""The copy in bfloat16 that plans are written with where a processor calculates so."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from podium_lab.train.learner.rounded import RoundedCopy
from podium_lab.train.learner.sharing import SharingTrainer, write


@pytest.fixture
def base() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=101, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def adapted(base: Any) -> Any:
    targets = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], layers_to_transform=[1, 2])
    return get_peft_model(base, targets).eval()


def trainer_of(model: Any, *, bf16: bool = True, device: str = "cpu") -> Any:
    trainer: Any = SharingTrainer.__new__(SharingTrainer)
    trainer.args = SimpleNamespace(bf16=bf16)
    trainer.accelerator = SimpleNamespace(device=SimpleNamespace(type=device))
    trainer.model = model
    return trainer


def apart(one: Any, other: Any) -> float:
    """How far the chances are apart that two models see for the next token, at most."""
    ids = torch.arange(3, 27).reshape(2, 12)
    with torch.no_grad():
        mine, its = (model(input_ids=ids).logits.float().softmax(-1) for model in (one, other))
    return (mine - its).abs().max().item()


def learn(model: Any) -> None:
    for name, weights in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weights, std=1.0)


def test_the_copy_follows_what_adapters_have_learned(adapted: Any) -> None:
    trainer = trainer_of(adapted)
    first = trainer.writes_with(adapted)
    assert first.dtype == torch.bfloat16
    begun = apart(adapted, first)
    learn(adapted)
    missed = apart(adapted, first)
    assert trainer.writes_with(adapted) is first
    followed = apart(adapted, first)
    assert max(begun, followed) < missed / 5


def test_the_copy_follows_weights_that_are_trained_whole(base: Any) -> None:
    copied = RoundedCopy(base)
    with torch.no_grad():
        for weights in base.parameters():
            weights.add_(torch.randn_like(weights) * 0.1)
    missed = apart(base, copied.model)
    copied.follow(base)
    assert apart(base, copied.model) < missed / 5


def test_the_copy_writes_what_the_model_writes(adapted: Any) -> None:
    learn(adapted)
    settings = GenerationConfig(
        max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=2, use_cache=True
    )
    ids = torch.arange(3, 12).repeat(4, 1)
    mask = torch.ones_like(ids)
    with torch.no_grad():
        plain = write(adapted, ids, mask, settings)
        own = write(trainer_of(adapted).writes_with(adapted), ids, mask, settings)
    assert own.shape == plain.shape
    assert torch.equal(own[:, :10], plain[:, :10])  # later ones may differ by rounding


@pytest.mark.parametrize("named", [{"bf16": False}, {"device": "cuda"}])
def test_elsewhere_the_model_itself_writes(adapted: Any, named: dict[str, Any]) -> None:
    assert trainer_of(adapted, **named).writes_with(adapted) is adapted
