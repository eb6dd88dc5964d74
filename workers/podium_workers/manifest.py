"""Pool manifests: who may be in the pool, as strict TOML. Data only; `pool` opens what they say."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from podium_workers.asked import Asked
from podium_workers.entries.common import StatedPrice
from podium_workers.entries.explain import explain
from podium_workers.entries.named import (
    AnthropicEntry,
    CassetteEntry,
    CommandEntry,
    Entry,
    LocalEntry,
    OpenAIEntry,
    ProgramEntry,
    ScriptedEntry,
    VllmEntry,
)
from podium_workers.errors import ManifestError
from podium_workers.scripted import Rule
from podium_workers.worker import Frozen, LongPrice


class PoolManifest(Frozen):
    """A pool as its manifest describes it."""

    model_config = ConfigDict(strict=True)

    workers: Annotated[
        tuple[Annotated[Entry, Field(discriminator="kind")], ...],
        Field(strict=False, min_length=1, alias="worker"),
    ]
    """In order of strength, the strongest first."""
    conductor: str | None = None
    """The worker that writes plans; when not given, the one that does no steps, else the first."""
    asked: Asked = Asked()
    """How the conductor is asked for plans."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names = [worker.name for worker in self.workers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two workers are named {name!r}; every name must be its own")
        if self.conductor is not None and self.conductor not in names:
            raise ValueError(
                f"the conductor {self.conductor!r} is not a worker of this pool; "
                f"choose one of {', '.join(names)}"
            )
        self._check_programs()
        self._check_planner()
        return self

    def _check_planner(self) -> None:
        idle = [entry.name for entry in self.workers if not entry.steps]
        if len(idle) == len(self.workers):
            raise ValueError(
                f"{' and '.join(idle)} {'has' if len(idle) == 1 else 'have'} steps = false, so "
                "that nobody does what is planned; add a [[worker]], or take steps = false out"
            )
        if len(idle) > 1:
            raise ValueError(
                f"{' and '.join(idle)} have steps = false; only one worker, the conductor, can "
                "write plans and do nothing else"
            )
        if idle and self.conductor not in (None, *idle):
            raise ValueError(
                f"{idle[0]!r} has steps = false and is not the conductor, so that it would do "
                f"nothing at all; set conductor = {idle[0]!r}, or take steps = false out"
            )

    def _check_programs(self) -> None:
        direct = [it for it in self.workers if not isinstance(it, ProgramEntry)]
        writers = [it.name for it in direct if it.steps]
        for entry in self.workers:
            if not isinstance(entry, ProgramEntry):
                continue
            if entry.by not in writers:
                raise ValueError(
                    f"{entry.name!r} lets {entry.by!r} write its programs, which is no other "
                    f"worker of this pool that does steps; choose one of "
                    f"{', '.join(writers) or 'none'}"
                )
            if self.conductor == entry.name or not entry.steps:
                raise ValueError(
                    f"the conductor {entry.name!r} writes programs, not plans; choose {entry.by!r}"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Of all workers, with that of a conductor that does no steps."""
        return tuple(worker.name for worker in self.workers)

    @property
    def planner(self) -> Entry | None:
        """The conductor, where it does nothing but write plans."""
        return next((worker for worker in self.workers if not worker.steps), None)

    @property
    def doers(self) -> tuple[Entry, ...]:
        """The workers that plans may give steps to."""
        return tuple(worker for worker in self.workers if worker.steps)


def load_manifest(path: Path) -> PoolManifest:
    """The manifest in that file.

    Raises:
        ManifestError: it is missing, cannot be read, or something in it is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ManifestError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: the manifest cannot be read: {error}.") from None
    manifest = parse_manifest(text, str(path))
    workers = tuple(_beside(path, entry) for entry in manifest.workers)
    return manifest.model_copy(update={"workers": workers})


def _beside(path: Path, entry: Entry) -> Entry:
    """*entry* with the path of its model or cassette taken from the manifest's own folder."""
    if isinstance(entry, CassetteEntry):
        file = path.parent.absolute() / Path(entry.file).expanduser()
        return entry.model_copy(update={"file": str(file)})
    if isinstance(entry, CommandEntry):
        return _command_beside(path.parent.absolute(), entry)
    if isinstance(entry, VllmEntry) and entry.is_own:
        return _vllm_beside(path.parent.absolute(), entry)
    if not isinstance(entry, LocalEntry) or not entry.gguf.endswith(".gguf"):
        return entry
    gguf = path.parent.absolute() / Path(entry.gguf).expanduser()
    return entry.model_copy(update={"gguf": str(gguf)})


def _command_beside(folder: Path, entry: CommandEntry) -> CommandEntry:
    update: dict[str, object] = {}
    if entry.folder is not None:
        update["folder"] = str(folder / Path(entry.folder).expanduser())
    if entry.command and entry.command[0].startswith((".", "~")):
        program = str(folder / Path(entry.command[0]).expanduser())
        update["command"] = (program, *entry.command[1:])
    return entry.model_copy(update=update)


def _vllm_beside(folder: Path, entry: VllmEntry) -> VllmEntry:
    def beside(given: str) -> str:
        is_path = given.startswith((".", "~", "/"))
        return str(folder / Path(given).expanduser()) if is_path else given

    update: dict[str, object] = {
        "model": beside(entry.model),
        "lora": {name: beside(path) for name, path in entry.lora.items()},
    }
    if entry.python is not None:
        update["python"] = beside(entry.python)
    return entry.model_copy(update=update)


def parse_manifest(text: str, source: str) -> PoolManifest:
    """The manifest in *text*; *source* names it in errors.

    Raises:
        ManifestError: it is no TOML, or something in it is wrong.
    """
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # ValueError too for numbers of thousands of digits, which Python refuses to read.
        raise ManifestError(f"{source}: this is not valid TOML: {error}.") from None
    try:
        return PoolManifest.model_validate(data)
    except ValidationError as error:
        # A mistyped key first: it is also why its right form is missing.
        first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
        raise ManifestError(explain(first, data, source, _KEYS)) from None


def shipped(name: str) -> PoolManifest:
    """A manifest that comes with the package, such as `local`: the files of its folder `pools`."""
    text = (files("podium_workers") / "pools" / f"{name}.toml").read_text(encoding="utf-8")
    return parse_manifest(text, f"the shipped manifest {name!r}")


KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")
"""Environment variables that give a pool of hosted models when there is no manifest."""
_OTHER_NAMES = {"GEMINI_API_KEY": "GOOGLE_API_KEY"}


def default_manifest(env: Mapping[str, str]) -> tuple[PoolManifest, str]:
    """The pool for a user who wrote no manifest, and one line that says which one and why.

    The keys found in *env* give hosted models; a key of OpenRouter counts where there is no other,
    since it leads to the same models; no key gives the local pool.
    """
    hosted = shipped("hosted")
    usable = tuple(found for entry in hosted.workers for found in _with_key(entry, env))
    if usable:
        return _chosen(hosted.model_copy(update={"workers": usable}), "hosted models")
    if env.get("OPENROUTER_API_KEY"):
        return _chosen(shipped("openrouter"), "hosted models by way of OpenRouter")
    manifest = shipped("local")
    names = f"{', '.join(KEY_VARIABLES[:-1])} or {KEY_VARIABLES[-1]}"
    return manifest, (f"Pool: {', '.join(manifest.names)} (local models, since no {names} is set).")


def _with_key(entry: Entry, env: Mapping[str, str]) -> tuple[Entry, ...]:
    """The entry if its key is in *env*, under either of its names."""
    if not isinstance(entry, OpenAIEntry | AnthropicEntry) or entry.key_variable is None:
        return ()
    if env.get(entry.key_variable):
        return (entry,)
    other = _OTHER_NAMES.get(entry.key_variable, "")
    return (entry.model_copy(update={"api_key_env": other}),) if env.get(other) else ()


def _chosen(manifest: PoolManifest, what: str) -> tuple[PoolManifest, str]:
    keys = dict.fromkeys(
        entry.key_variable
        for entry in manifest.workers
        if isinstance(entry, OpenAIEntry | AnthropicEntry) and entry.key_variable
    )
    found = f"{' and '.join(keys)} {'are' if len(keys) > 1 else 'is'} set"
    return manifest, f"Pool: {', '.join(manifest.names)} ({what}, since {found})."


def _keys_of(model: type[Frozen]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


_KEYS = {
    "": _keys_of(PoolManifest),
    "asked": _keys_of(Asked),
    "openai": _keys_of(OpenAIEntry),
    "anthropic": _keys_of(AnthropicEntry),
    "vllm": _keys_of(VllmEntry),
    "local": _keys_of(LocalEntry),
    "scripted": _keys_of(ScriptedEntry),
    "command": _keys_of(CommandEntry),
    "program": _keys_of(ProgramEntry),
    "cassette": _keys_of(CassetteEntry),
    "price": _keys_of(StatedPrice),
    "long": _keys_of(LongPrice),
    "rule": _keys_of(Rule),
}
"""The keys that each table of a manifest may have."""
