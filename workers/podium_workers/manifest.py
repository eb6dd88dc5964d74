"""Pool manifests: who may be in the pool, as strict TOML. Data only; `pool` opens what they say."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from podium_workers.errors import ManifestError
from podium_workers.explain import explain
from podium_workers.scripted import Rule
from podium_workers.wire import ANTHROPIC_URL, OPENAI_URL, TimeLimits, is_loopback, scrub
from podium_workers.worker import Frozen, Price, WorkerCard

RESERVED = frozenset({"podium", "caller"})
"""Names that plans use for steps that no worker of a pool does."""
UNKNOWN_WINDOW = 8192
"""Tokens assumed for a model of which nothing is known: better a prompt that is cut and marked as
cut than one that an endpoint cuts in silence (user report T22)."""
LONGEST_REPLY = 16_384
"""Output tokens unless a manifest says otherwise: room for a model that reasons."""

_FREE = Price(input=0, output=0)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Where = Literal["local", "hosted"]


class StatedPrice(Price):
    """A price that a manifest states, in US dollars per million tokens."""

    model_config = ConfigDict(strict=True)


class _Entry(Frozen):
    """What every kind of worker has."""

    model_config = ConfigDict(strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """As plans and arguments name it."""
    good_at: str = ""
    """One line for the conductor: what it does well, and what it does not."""
    role: str = ""
    """Standing instructions: the system message of every prompt."""
    context_window: int | None = Field(default=None, ge=256)
    """Tokens of prompt and reply together."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    parallel: int = Field(default=4, ge=1)
    """Calls at the same time."""

    @field_validator("name")
    @classmethod
    def _is_not_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f"{name!r} has a meaning of its own in plans; choose another name")
        return name

    def _reply_limit(self, window: int, longest: int) -> int:
        return self.max_output_tokens or min(longest, window // 2)


class _ModelEntry(_Entry):
    """A worker that asks a model."""

    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Used where a call asks for none."""


class HostedEntry(_ModelEntry):
    """A worker behind a provider's interface."""

    model: str = Field(min_length=1)
    """As the provider names it."""
    base_url: str | None = None
    """Address of the interface; the provider's own when not given."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    where: Where | None = None
    """Whether prompts stay on this machine; an address on this machine means local."""
    price: StatedPrice | None = None
    """When it is not that of the shipped table."""
    first_byte_s: float = Field(default=TimeLimits().first_byte_s, gt=0)
    """Seconds of silence before the model's first words."""
    idle_s: float = Field(default=TimeLimits().idle_s, gt=0)
    """Seconds of silence after them."""

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, variable: str | None) -> str | None:
        if variable is None or (_VARIABLE.fullmatch(variable) and scrub(variable) == variable):
            return variable
        raise ValueError(
            "this must be the name of an environment variable that holds the key, such as "
            '"OPENAI_API_KEY", never the key itself'
        )

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            usable, parts = False, urlsplit("")
        if not usable or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError('this must be an address such as "http://127.0.0.1:8000/v1"')
        if parts.username or parts.password or parts.query:
            raise ValueError("keys do not belong in an address; use api_key_env")
        return url

    @property
    def limits(self) -> TimeLimits:
        return TimeLimits(first_byte_s=self.first_byte_s, idle_s=self.idle_s)

    def _card(self, kind: str, own_url: str) -> WorkerCard:
        from podium_workers.prices import row_of

        url = self.base_url or own_url
        known = row_of(self.model, base_url=url)
        where = self.where or ("local" if is_loopback(url) else "hosted")
        window = self.context_window or (known.window if known else UNKNOWN_WINDOW)
        price: Price | None = _FREE if where == "local" else None
        if self.price:
            price = Price.model_validate(self.price.model_dump())
        elif known and window <= known.window:
            price = known.price
        longest = min(LONGEST_REPLY, known.max_output) if known else LONGEST_REPLY
        return WorkerCard(
            name=self.name,
            kind=kind,
            model=self.model,
            where=where,
            context_window=window,
            max_output_tokens=self._reply_limit(window, longest),
            price=price,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
        )


class OpenAIEntry(HostedEntry):
    """A model at OpenAI or any address that speaks its Chat Completions."""

    kind: Literal["openai"]

    @property
    def url(self) -> str:
        return self.base_url or OPENAI_URL

    @property
    def key_variable(self) -> str | None:
        """Which variable holds the key; None where no key is wanted."""
        return self.api_key_env or ("OPENAI_API_KEY" if self.url == OPENAI_URL else None)

    @property
    def card(self) -> WorkerCard:
        return self._card("openai", OPENAI_URL)


class AnthropicEntry(HostedEntry):
    """A model at Anthropic or any address that speaks its Messages."""

    kind: Literal["anthropic"]

    @property
    def url(self) -> str:
        return self.base_url or ANTHROPIC_URL

    @property
    def key_variable(self) -> str | None:
        """Which variable holds the key; None where no key is wanted."""
        return self.api_key_env or ("ANTHROPIC_API_KEY" if self.url == ANTHROPIC_URL else None)

    @property
    def card(self) -> WorkerCard:
        return self._card("anthropic", ANTHROPIC_URL)


class LocalEntry(_ModelEntry):
    """A model that Podium runs itself on this machine."""

    kind: Literal["local"]
    gguf: str = Field(min_length=1)
    """A name that `podium models list` shows, or the path of a .gguf file; a relative one starts
    at the manifest's folder."""
    threads: int | None = Field(default=None, ge=1)
    """Processor threads; the setting `local_threads` when not given."""
    parallel: int = Field(default=2, ge=1)

    @property
    def card(self) -> WorkerCard:
        window = self.context_window or UNKNOWN_WINDOW
        return WorkerCard(
            name=self.name,
            kind="local",
            model=self.gguf,
            where="local",
            context_window=window,
            max_output_tokens=self._reply_limit(window, 1024),
            price=_FREE,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
        )


class ScriptedEntry(_Entry):
    """A worker that answers from a script: for dry runs of a pool, and tests."""

    kind: Literal["scripted"]
    replies: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Given in order; the last one repeats."""
    rules: Annotated[tuple[Rule, ...], Field(strict=False, alias="rule")] = ()
    """Tried before the replies: the first whose text stands in the prompt is given."""
    where: Where = "local"

    @model_validator(mode="after")
    def _has_something_to_say(self) -> Self:
        if not self.replies and not self.rules:
            raise ValueError("a scripted worker needs replies or a [[worker.rule]]")
        return self

    @property
    def card(self) -> WorkerCard:
        window = self.context_window or UNKNOWN_WINDOW
        return WorkerCard(
            name=self.name,
            kind="scripted",
            model="scripted",
            where=self.where,
            context_window=window,
            max_output_tokens=self._reply_limit(window, 2048),
            price=_FREE,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
        )


Entry = OpenAIEntry | AnthropicEntry | LocalEntry | ScriptedEntry


class PoolManifest(Frozen):
    """A pool as its manifest describes it."""

    model_config = ConfigDict(strict=True)

    workers: Annotated[
        tuple[Annotated[Entry, Field(discriminator="kind")], ...],
        Field(strict=False, min_length=1, alias="worker"),
    ]
    """In order of strength, the strongest first."""
    conductor: str | None = None
    """The worker that writes plans; the first one when not given."""
    conductor_form: Literal["json", "lists"] = "json"
    """How plans are written; a trained conductor writes lists."""
    conductor_shows: Literal["cards", "ordinals"] = "cards"
    """How workers are shown to it; a trained conductor knows only ordinals."""

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
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.workers)


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
    """*entry* with the path of its model taken from the manifest's own folder."""
    if not isinstance(entry, LocalEntry) or not entry.gguf.endswith(".gguf"):
        return entry
    gguf = path.parent.absolute() / Path(entry.gguf).expanduser()
    return entry.model_copy(update={"gguf": str(gguf)})


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
    """A manifest that comes with the package: `local`, `hosted`, `openrouter` or `mixed`."""
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
    "openai": _keys_of(OpenAIEntry),
    "anthropic": _keys_of(AnthropicEntry),
    "local": _keys_of(LocalEntry),
    "scripted": _keys_of(ScriptedEntry),
    "price": _keys_of(StatedPrice),
    "rule": _keys_of(Rule),
}
"""The keys that each table of a manifest may have."""
