"""Reads a prompt once for all rollouts of its group, where a processor does all the work.

A group's rollouts have one prompt. TRL reads it again for each: before it writes, and again before
it learns. Here its keys and values are calculated once and shared, and the gradient comes back to
them from all rollouts, so that the same is learned for a third to a half of the time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from podium_lab.train.learner.rounded import RoundedCopy


def groups(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each prompt, and for each row the number of its prompt.

    TRL mixes the rows of an iteration, so that those of one prompt need not lie side by side.
    """
    rows, number = torch.unique(torch.cat([ids, mask], dim=1), dim=0, return_inverse=True)
    places = torch.arange(len(ids), device=ids.device)
    firsts = places.new_full((len(rows),), len(ids))
    return firsts.scatter_reduce(0, number, places, "amin"), number


def read(model: Any, ids: Tensor, mask: Tensor) -> DynamicCache:
    """What a model keeps of prompts, all but their last tokens: each is read once."""
    firsts, number = groups(ids, mask)
    cache = DynamicCache(config=model.config)
    model.get_decoder()(
        input_ids=ids[firsts, :-1],
        attention_mask=mask[firsts, :-1],
        position_ids=positions(mask)[firsts, :-1],
        past_key_values=cache,
        use_cache=True,
    )
    cache.batch_select_indices(number)
    return cache


def positions(mask: Tensor) -> Tensor:
    """Of each token in its text, padding left out."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


class RoomyLayer(DynamicLayer):
    """What one layer keeps of texts that grow, with room for their ends from the beginning.

    The library's own one copies all of it for each token: half of the time that writing takes.
    """

    def __init__(self, keys: Tensor, values: Tensor, room: int) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self._length = keys.shape[-2]
        self._keys, self._values = _with_room(keys, room), _with_room(values, room)
        self._show()

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values, with those of the newest tokens."""
        begin, self._length = self._length, self._length + key_states.shape[-2]
        self._keys[..., begin : self._length, :] = key_states
        self._values[..., begin : self._length, :] = value_states
        return self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (whole[..., : self._length, :] for whole in (self._keys, self._values))
        self.keys, self.values = keys, values
        return keys, values


def _roomy(layer: Any, room: int) -> Any:
    """A layer of the plain kind with room; one of another kind, which forgets, as it is."""
    kept: Any = layer  # its type says that keys may be missing still
    return RoomyLayer(kept.keys, kept.values, room) if type(layer) is DynamicLayer else layer


def _with_room(kept: Tensor, room: int) -> Tensor:
    whole = kept.new_empty((*kept.shape[:-2], kept.shape[-2] + room, kept.shape[-1]))
    whole[..., : kept.shape[-2], :] = kept
    return whole


def write(model: Any, ids: Tensor, mask: Tensor, settings: Any, processors: Any = None) -> Tensor:
    """Prompts with what the model writes to them; prompts are padded on the left."""
    known: dict[str, Any] = {}
    if ids.device.type == "cpu":
        known["cache"] = cache = read(_causal(model), ids, mask)
        cache.layers = [_roomy(layer, settings.max_new_tokens) for layer in cache.layers]
    return model.generate(
        input_ids=ids, attention_mask=mask, generation_config=settings,
        logits_processor=processors, **known,
    )  # fmt: skip


def _is_worth_it(ids: Tensor, mask: Tensor) -> bool:
    return ids.device.type == "cpu" and len(groups(ids, mask)[0]) < len(ids)


def _causal(model: Any) -> Any:
    """The model below its adapters, which stay in their places."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


class SharingTrainer(GRPOTrainer):
    """TRL's trainer; on a processor it reads each prompt once."""

    _rounded: RoundedCopy | None = None

    def writes_with(self, model: Any) -> Any:
        """What plans are written with: the model, or its copy in what a processor calculates in."""
        if not self.args.bf16 or self.accelerator.device.type != "cpu":
            return model
        causal = _causal(model)
        self._rounded = self._rounded or RoundedCopy(causal)
        self._rounded.follow(causal)
        return self._rounded.model

    def _generate_single_turn(
        self, prompt_ids: Sequence[Sequence[int]], images: Any, *more: Any, **named: Any
    ) -> tuple[list[list[int]], Any]:
        if self.use_vllm or images or self.accelerator.device.type != "cpu":
            return super()._generate_single_turn(prompt_ids, images, *more, **named)
        rows: Any = {"input_ids": [list(ids) for ids in prompt_ids]}
        tokenizer: Any = self.processing_class
        padded = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
        ids, mask = padded["input_ids"], padded["attention_mask"]
        with (
            unwrap_model_for_generation(
                self.model_wrapped, self.accelerator, generation_kwargs=self.generation_kwargs
            ) as model,
            torch.no_grad(),
        ):
            written = write(self.writes_with(model), ids, mask, self.generation_config)
        stops = set(self.eos_token_ids)
        return [_up_to(row, stops) for row in written[:, ids.shape[1] :].tolist()], None

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **named: Any,
    ) -> Any:
        prompts = input_ids.shape[1] - logits_to_keep
        ids, mask = input_ids[:, :prompts], attention_mask[:, :prompts]
        in_parts = batch_size is not None and batch_size < len(input_ids)
        if in_parts or _is_more_than_text(named) or not _is_worth_it(ids, mask):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, **named
            )
        with self.accelerator.autocast():
            cache = read(_causal(model), ids, mask)
            rest = slice(prompts - 1, None)  # the prompt's last token begins what is to be scored
            found = model(
                input_ids=input_ids[:, rest],
                attention_mask=attention_mask,
                position_ids=positions(attention_mask)[:, rest],
                past_key_values=cache,
                labels=input_ids[:, rest].masked_fill(attention_mask[:, rest] == 0, -100),
                fused_lm_head=True,
            )
        return found.log_probs, found.entropy if named.get("compute_entropy") else None, None


def _is_more_than_text(named: Mapping[str, Any]) -> bool:
    """Whether a model is given or asked for more than text: images, or a loss of its own."""
    others = (value for name, value in named.items() if name != "compute_entropy")
    return any(value is not None and value is not False for value in others)


def _up_to(ids: list[int], stops: set[int]) -> list[int]:
    """Tokens up to the first that ends a text."""
    end = next((place for place, token in enumerate(ids) if token in stops), len(ids))
    return ids[: end + 1]
