"""A prompt that is read once for its group: the same is written, and the same is learned."""

from typing import Any

import pytest
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from podium_lab.train.learner.sharing import SharingTrainer, groups, write

LENGTH, GROUP, WRITTEN = 9, 4, 6


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=101, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    base = LlamaForCausalLM(config)
    add_fused_lm_head(base, outputs=("log_probs", "entropy"))
    adapted = get_peft_model(
        base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], layers_to_transform=[1, 2])
    )
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights)
    return adapted.eval()


@pytest.fixture
def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """Three prompts of different lengths, each for a group of four, and mixed."""
    ids = torch.randint(3, 101, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[1, :4], mask[1, :4] = 0, 0
    mixed = torch.randperm(3 * GROUP, generator=torch.Generator().manual_seed(5))
    return ids.repeat_interleave(GROUP, 0)[mixed], mask.repeat_interleave(GROUP, 0)[mixed]


def test_groups_are_rows_of_one_prompt(prompts: tuple[torch.Tensor, torch.Tensor]) -> None:
    ids, mask = prompts
    firsts, number = groups(ids, mask)
    assert len(firsts) == len(set(number.tolist())) == 3
    assert torch.equal(ids[firsts][number], ids)
    assert torch.equal(mask[firsts][number], mask)


@pytest.mark.parametrize("sampled", [False, True])
def test_the_same_is_written(
    model: Any, prompts: tuple[torch.Tensor, torch.Tensor], sampled: bool
) -> None:
    settings = GenerationConfig(
        max_new_tokens=WRITTEN, do_sample=sampled, top_k=0, pad_token_id=0, eos_token_id=2
    )
    ids, mask = prompts
    torch.manual_seed(3)
    plain = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    torch.manual_seed(3)
    assert torch.equal(write(model, ids, mask, settings), plain)


def test_the_same_is_learned(model: Any, prompts: tuple[torch.Tensor, torch.Tensor]) -> None:
    ids, mask = prompts
    added = torch.randint(3, 101, (len(ids), WRITTEN), generator=torch.Generator().manual_seed(2))
    kept = torch.ones_like(added)
    kept[::2, 4:] = 0  # some have ended earlier
    ids, mask = torch.cat([ids, added], 1), torch.cat([mask, kept], 1)
    found = []
    for kind in (GRPOTrainer, SharingTrainer):
        trainer: Any = kind.__new__(kind)
        trainer.accelerator = Accelerator(cpu=True)
        model.zero_grad()
        chances, entropies, _ = trainer._get_per_token_logps_and_entropies(
            model, ids, mask, WRITTEN, compute_entropy=True
        )
        ((chances + entropies) * kept * torch.arange(len(ids))[:, None]).sum().backward()
        gradients = [it.grad.clone() for it in model.parameters() if it.grad is not None]
        found.append((chances * kept, entropies * kept, gradients))
    (chances, entropies, gradients), (others, other_entropies, other_gradients) = found
    torch.testing.assert_close(chances, others, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(entropies, other_entropies, atol=1e-5, rtol=1e-4)
    assert len(gradients) == len(other_gradients) == 8
    for one, other in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
