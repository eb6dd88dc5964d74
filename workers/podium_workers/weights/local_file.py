"""The file of a model on this machine: found, or pulled first when it is one of the catalogue's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import from_thread, to_thread

from podium_workers.weights.catalogue import Weights, weights_named
from podium_workers.weights.pulling import Notify, find, is_present, megabytes, pull
from podium_workers.weights.sources import Source

_TOLD_PER_PULL = 10


@dataclass(frozen=True)
class LocalFile:
    """A GGUF file by its name in the catalogue, or by its path."""

    gguf: str
    models_dir: Path
    notify: Notify = lambda text: None
    """Told, in one sentence each, what a pull of missing weights does."""
    sources: Sequence[Source] | None = None
    """Where missing weights come from; None for the usual places."""

    @property
    def weights(self) -> Weights | None:
        """What the catalogue says of it, if it is there."""
        return weights_named(self.gguf)

    async def path(self) -> Path:
        """Where it lies, once it is here.

        Raises:
            ModelFileError: it is no model of Podium's and no file, or it cannot be pulled.
        """
        weights = self.weights
        if weights is None or is_present(weights, self.models_dir):
            return await to_thread.run_sync(find, self.gguf, self.models_dir)
        self.notify(
            f"{weights.title} is not on this machine yet: pulling {megabytes(weights.size)} "
            f"({weights.licence}) into {self.models_dir}."
        )
        return await to_thread.run_sync(self._pull, weights)

    def _pull(self, weights: Weights) -> Path:
        told = 0

        def progress(done: int, total: int, source: str) -> None:
            nonlocal told
            from_thread.check_cancelled()
            if (share := done * _TOLD_PER_PULL // total) > told:
                told = share
                tell(f"{weights.name}: {100 * done // total}% of {megabytes(total)} from {source}.")

        def tell(text: str) -> None:
            from_thread.run_sync(self.notify, text)

        path = pull(weights, self.models_dir, sources=self.sources, progress=progress, notify=tell)
        tell(f"{weights.name} is here: {path} ({weights.notice}).")
        return path
