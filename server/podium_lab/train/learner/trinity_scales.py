"""SVF (papers.md 2.1): scales on the singular values of one layer, evolved along with a head.

Each candidate has states of its own then, so that none can be kept. But what lies below the layer
stays as it is: what comes into it is calculated once for each view, and for each candidate only
the layer itself and those above it are. The paper scales the embedding as well, which would change
all of that, and the vocabulary's projection, which no state goes through.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from podium.policy.head import Head
from podium_lab.train.config import Model
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item
from podium_lab.train.learner.models import PROJECTIONS, load_model, load_tokenizer
from podium_lab.train.learner.to_gguf import to_gguf
from podium_lab.train.learner.trinity_arena import Arena, Floats, OwnModel, Whole
from podium_lab.train.trinity.table import Table, views_from

MODEL = "coordinator"
"""Name of the scaled model in the job's folder, as a folder and as a GGUF file."""
BATCH = 32
"""Views that are read at once."""


@dataclass(frozen=True)
class Factors:
    """A matrix of the layer, taken apart: W = U diag(s) V."""

    linear: Any
    left: Tensor
    values: Tensor
    right: Tensor

    @classmethod
    def of(cls, linear: Any) -> "Factors":
        left, values, right = torch.linalg.svd(linear.weight.detach(), full_matrices=False)
        return cls(linear, left, values, right)

    def scale(self, by: Tensor) -> None:
        """Put U diag(s(1 + by)) V in its place, with the sum of its singular values unchanged."""
        scaled = self.values * (1 + by)
        scaled = scaled * (self.values.sum() / scaled.sum())
        self.linear.weight.copy_(self.left * scaled @ self.right)


class ScaledModel:
    """The coordinator's model, whose second-to-last layer can be scaled, and its views."""

    def __init__(self, base: str, views: Sequence[str]) -> None:
        """*base* is a folder that transformers reads; *views* are read once, up to the layer.

        Raises:
            SettingsError: there is no such model.
            TrainingError: it is of another kind.
        """
        self.model: Any = load_model(Model(base=base)).eval()
        self.tokenizer: Any = load_tokenizer(base)
        self.model.requires_grad_(False)
        decoder = self.model.get_decoder()
        self.above = list(decoder.layers[-2:])
        named = dict(self.above[0].named_modules())
        found = [name for name in named if name.rpartition(".")[2] in PROJECTIONS]
        if len(self.above) < 2 or len(found) < len(PROJECTIONS):
            raise TrainingError(
                f"trinity.svf: the second-to-last layer of {base} has not the seven matrices "
                f"{', '.join(PROJECTIONS)}; set svf = false, or take a model of Llama's kind."
            )
        self.factors = [Factors.of(named[name]) for name in found]
        self.inputs = [self._below(text) for text in views]

    @property
    def size(self) -> int:
        """How many singular values there are."""
        return sum(len(each.values) for each in self.factors)

    def scale(self, scales: Floats) -> None:
        """Scale the layer: one number for each singular value, 0 leaves it as it is."""
        sizes = [len(each.values) for each in self.factors]
        parts = torch.from_numpy(np.asarray(scales, dtype=np.float32)).split(sizes)
        for factors, by in zip(self.factors, parts, strict=True):
            factors.scale(by)

    def states(self, views: Sequence[int]) -> Floats:
        """The state of each of *views* (by number) as the layer is scaled now: a row for each."""
        order = sorted(views, key=lambda view: len(self.inputs[view]))
        rows: dict[int, Tensor] = {}
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            rows |= zip(some, self._above([self.inputs[view] for view in some]), strict=True)
        return torch.stack([rows[view] for view in views]).numpy().astype(np.float64)

    def write(self, folder: Path) -> Path:
        """Write the model, scaled as it is, for the engine of local models; its file.

        Raises:
            TrainingError: it is of a kind that cannot be written.
        """
        whole, file = folder / MODEL, folder / f"{MODEL}.gguf"
        self.model.save_pretrained(whole)
        self.tokenizer.save_pretrained(whole)
        if not to_gguf(whole, file):
            raise TrainingError(
                "trinity.svf: this model cannot be written for the engine of local models, so the "
                "server could not serve what is evolved; set svf = false, or take SmolLM2."
            )
        return file

    @torch.no_grad()
    def _below(self, text: str) -> Tensor:
        """What comes into the layer for a text, up to its penultimate token."""
        ids = self.tokenizer(text, return_tensors="pt")["input_ids"][:, :-1]
        heard: list[Tensor] = []

        def hear(_: Any, given: tuple[Any, ...]) -> None:
            heard.append(given[0])

        hook = self.above[0].register_forward_pre_hook(hear)
        try:
            self.model.get_decoder()(input_ids=ids, use_cache=False)
        finally:
            hook.remove()
        return heard[0][0]

    @torch.no_grad()
    def _above(self, inputs: Sequence[Tensor]) -> Iterator[Tensor]:
        """States at the ends of what came into the layer; shorter ones are filled up behind."""
        decoder = self.model.get_decoder()
        hidden = torch.nn.utils.rnn.pad_sequence(list(inputs), batch_first=True)
        places = torch.arange(hidden.shape[1])[None]
        turned = decoder.rotary_emb(hidden, places)
        for layer in self.above:
            given = layer(hidden, position_ids=places, position_embeddings=turned)
            hidden = given[0] if isinstance(given, tuple) else given
        ends = torch.tensor([len(each) - 1 for each in inputs])
        yield from decoder.norm(hidden[torch.arange(len(ends)), ends])


class ScaledArena(Arena):
    """Episodes whose candidates are a head and scales: the head's numbers, then the scales."""

    def __init__(self, table: Table, model: ScaledModel, training: Sequence[Item]) -> None:
        super().__init__(table, model.states(range(len(table.views))), training)
        self.model = model

    @property
    def size(self) -> int:
        return self.numbers + self.model.size

    @property
    def numbers(self) -> int:
        """Of the head alone."""
        return super().size

    def steps(self, sigma: float, svf_sigma: float) -> Floats | None:
        """First steps of each number, in parts of *sigma*."""
        scales = np.full(self.model.size, svf_sigma / sigma)
        return np.concatenate([np.ones(self.numbers), scales])

    def logits(self, heads: Floats, begins: Whole) -> Floats:
        """Of the views that episodes from *begins* may come to; 0 for all others."""
        views = sorted(views_from(self.table, begins.tolist()))
        found = np.zeros((len(heads), len(self.features), self.rows))
        for place, head in enumerate(heads):
            self.model.scale(head[self.numbers :])
            features = self.scaled(self.model.states(views))
            found[place, views] = features @ head[: self.numbers].reshape(self.rows, -1).T
        return found

    def head(self, weights: Floats, **known: object) -> Head:
        """The head; its model has to be scaled for it."""
        return super().head(weights[: self.numbers], **known)

    def write(self, weights: Floats, folder: Path) -> OwnModel:
        """The model with the scales of *weights*."""
        self.model.scale(weights[self.numbers :])
        file = self.model.write(folder)
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        states = self.model.states(range(len(self.table.views)))
        return OwnModel(file.resolve(), digest, states.tolist())
