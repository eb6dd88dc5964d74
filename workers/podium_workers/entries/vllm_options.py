"""What a pool says about a vLLM server, and the arguments of `vllm serve` that follow from it.

Where vLLM is found on a machine is `find_python`'s matter, how it is run is the engine's.
"""

import importlib.util
import re
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from podium_workers.engine.state import VllmOrder, VllmSpec
from podium_workers.errors import NotInstalledError
from podium_workers.worker import Frozen

OWN_WINDOW = 8192
"""Tokens of prompt and reply unless the pool says otherwise: what the card promises and what memory
is set aside for are to be one number."""
OWN_FLAGS = frozenset(
    {"model", "host", "port", "uds", "api-key", "served-model-name", "config", "root-path",
     "max-model-len", "gpu-memory-utilization", "quantization", "q", "dtype",
     "tensor-parallel-size", "tp", "data-parallel-size", "dp", "enable-lora", "lora-modules",
     "structured-outputs-config", "guided-decoding-backend", "ssl-keyfile", "ssl-certfile",
     "headless", "grpc", "disable-log-stats", "enable-prompt-tokens-details",
     "enable-prefix-caching", "no-enable-prefix-caching"}
)  # fmt: skip
"""Flags of `vllm serve` that Podium sets, or that would take the server from it."""
ENVIRONMENT = "vllm"
"""Name of the folder, among those for environments, in which vLLM may have one of its own."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.I)
_HELD = '{"backend": "guidance", "disable_any_whitespace": true}'
"""The decoder that is ready for a plan's schema in milliseconds (another one took half a minute)
and lets it fix the spaces: a small model that may choose them forgets its examples."""


class VllmOptions(Frozen):
    """How a vLLM server of Podium's own is run. Nothing here counts for one that runs already."""

    model_config = ConfigDict(strict=True)

    python: str | None = None
    """The interpreter that has vLLM, when it is not found by itself."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory that vLLM may take; vLLM's own default when not given."""
    quantization: str | None = None
    """Such as "awq" or "fp8"; most quantised models say it themselves."""
    dtype: str | None = None
    """Such as "bfloat16"; the model's own when not given."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs over which each layer is split."""
    data_parallel: int = Field(default=1, ge=1)
    """Copies of the model, each on GPUs of its own."""
    lora: dict[str, str] = Field(default_factory=dict)
    """Adapters by name, each a folder or the name of a model on a hub."""
    adapter: str | None = None
    """Which of the adapters this worker is; the only one, when there is one and nothing is said,
    and none when this is empty."""
    flags: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further arguments of `vllm serve`, passed on as they are."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the server, such as CUDA_VISIBLE_DEVICES."""
    start_within_s: float = Field(default=900, gt=0)
    """Seconds that a start may take, with the download of the model."""
    stop_idle_s: float = Field(default=3600, ge=0)
    """Seconds after the last call that the server is stopped; 0 for never."""

    @field_validator("flags")
    @classmethod
    def _are_free(cls, flags: tuple[str, ...]) -> tuple[str, ...]:
        if flags and not flags[0].startswith("-"):
            raise ValueError(f"{flags[0]!r} is no flag: flags begin with --")
        for flag in flags:
            if flag.startswith("-") and (taken := _taken(flag, OWN_FLAGS)):
                raise ValueError(
                    f"{flag!r} is not free, since Podium sets --{taken}; {_instead(taken)}"
                )
        return flags

    @field_validator("env")
    @classmethod
    def _are_no_secrets(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is no name of an environment variable")
            if _SECRET.search(name):
                raise ValueError(
                    f"{name} looks like a secret, which does not belong in a pool; log in with "
                    "the hub's own command instead"
                )
        return env

    @model_validator(mode="after")
    def _names_its_adapter(self) -> Self:
        if self.adapter and self.adapter not in self.lora:
            raise ValueError(
                f"there is no adapter {self.adapter!r}; add it to the table lora, or choose one "
                f"of {', '.join(self.lora) or 'none'}"
            )
        return self

    @property
    def served_name(self) -> str:
        """The name of the model that this worker asks for; empty for the model itself."""
        only = next(iter(self.lora)) if len(self.lora) == 1 else ""
        return only if self.adapter is None else self.adapter

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given."""
        return tuple(name for name in VllmOptions.model_fields if name in self.model_fields_set)

    def order(self, model: str, *, window: int, python: Path, lora: Mapping[str, str]) -> VllmOrder:
        """The wish for a server of *model* with all of *lora*, run by *python*."""
        spec = VllmSpec(
            model=model,
            python=python,
            arguments=self._arguments(model, window, lora),
            environment=tuple(sorted(self.env.items())),
        )
        return VllmOrder(
            spec=spec, start_within_s=self.start_within_s, stop_idle_s=self.stop_idle_s
        )

    def _arguments(self, model: str, window: int, lora: Mapping[str, str]) -> tuple[str, ...]:
        named: dict[str, object] = {
            "--served-model-name": model,
            "--max-model-len": window,
            "--gpu-memory-utilization": self.gpu_memory_utilization,
            "--quantization": self.quantization,
            "--dtype": self.dtype,
            "--tensor-parallel-size": self.tensor_parallel if self.tensor_parallel > 1 else None,
            "--data-parallel-size": self.data_parallel if self.data_parallel > 1 else None,
            "--structured-outputs-config": _HELD,
        }
        own = [text for name, it in named.items() if it is not None for text in (name, str(it))]
        # Counts what the prompt's stable beginning saves.
        own.append("--enable-prompt-tokens-details")
        if lora:
            adapters = [f"{name}={path}" for name, path in sorted(lora.items())]
            own += ["--enable-lora", "--lora-modules", *adapters]
        return (model, *self.flags, *own)


def _taken(flag: str, names: Collection[str]) -> str:
    """Which of *names* a flag stands for, spelled as vLLM allows; empty when it is none."""
    name = re.split(r"[=.+]", flag.lstrip("-"), maxsplit=1)[0].replace("_", "-")
    if name in names:
        return name
    if flag.startswith("--") and len(name) > 2:
        # vLLM takes the beginning of a flag for the whole.
        return next((taken for taken in sorted(names) if taken.startswith(name)), "")
    return ""


_KEYS_OF_FLAGS = {
    "max-model-len": "context_window",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "quantization": "quantization",
    "q": "quantization",
    "dtype": "dtype",
    "tensor-parallel-size": "tensor_parallel",
    "tp": "tensor_parallel",
    "data-parallel-size": "data_parallel",
    "dp": "data_parallel",
    "enable-lora": "lora",
    "lora-modules": "lora",
    "model": "model",
}


def _instead(taken: str) -> str:
    key = _KEYS_OF_FLAGS.get(taken)
    return f"use the key {key}" if key else "leave it out"


def find_python(named: str | None, environments: Path, path: str | None) -> Path:
    """The interpreter that has vLLM: the one that is *named*, this one, that of the environment
    below *environments*, or that of the command `vllm` in the directories of *path*.

    Raises:
        NotInstalledError: there is none.
    """
    if named is not None:
        python = Path(named).expanduser()
        if not python.is_file():
            raise NotInstalledError(f"python = {named!r} in the pool: there is no such file.")
        return python.absolute()
    spec = importlib.util.find_spec("vllm")
    if spec is not None and spec.origin is not None:  # a mere folder of that name has none
        return Path(sys.executable)
    own = environments / ENVIRONMENT / "bin" / "python"
    if own.is_file():
        return own.absolute()
    command = shutil.which("vllm", path=path)
    if command is not None:
        beside = Path(command).resolve().with_name("python")
        if beside.is_file():
            return beside
    raise NotInstalledError(
        f"vLLM is not installed: make an environment for it with `python -m venv {own.parents[1]} "
        f"&& {own} -m pip install vllm`, or name an interpreter that has it as python in the pool."
    )
