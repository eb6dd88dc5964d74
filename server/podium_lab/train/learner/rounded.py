"""A copy of a model in bfloat16 that plans are written with, where a processor calculates so.

Weights that are kept in float32 would be rounded anew for every token. The copy is rounded once an
iteration, its adapters merged. What is learned is calculated with the weights themselves: the two
differ by rounding, as a trainer and the vLLM server that writes for it do.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

_BASE, _ADAPTER = ".base_layer", "lora_"


class RoundedCopy:
    """The copy; *model* is a causal model, below its adapters if it has any."""

    def __init__(self, model: Any) -> None:
        config = deepcopy(model.config)
        config.use_cache = True
        self.model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        self.model.eval()
        self._own: dict[str, Tensor] = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, weights in model.named_parameters():
                if _ADAPTER not in name:
                    self._own[name.replace(_BASE, "")].copy_(weights)

    @torch.no_grad()
    def follow(self, model: Any) -> None:
        """Take over what has been learned since: merged adapters, or weights that are trained."""
        for name, weights in model.named_parameters():
            if weights.requires_grad and _ADAPTER not in name:
                self._own[name.replace(_BASE, "")].copy_(weights)
        for name, layer in model.named_modules():
            if hasattr(layer, "get_delta_weight"):
                adapted: Any = layer  # its type says that its methods may be tensors
                weights = adapted.get_base_layer().weight
                for adapter in adapted.active_adapters:
                    weights = weights + adapted.get_delta_weight(adapter)
                self._own[f"{name}.weight"].copy_(weights)
