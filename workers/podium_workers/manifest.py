"""Pool manifests: who may be in the pool, as strict TOML. Data only; `pool` opens what they say."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from podium_workers.errors import ManifestError
from podium_workers.explain import explain
from podium_workers.scripted import Rule
from podium_workers.vllm_options import OWN_WINDOW, VllmOptions
from podium_workers.wire import (
    ANTHROPIC_URL,
    OPENAI_URL,
    TimeLimits,
    is_loopback,
    is_openai,
    scrub,
)
from podium_workers.worker import Frozen, LongPrice, Price, RateLimits, WorkerCard

if TYPE_CHECKING:
    from podium_workers.prices import PriceTable

RESERVED = frozenset({"podium", "caller"})
"""Names that plans use for steps that no worker of a pool does."""
UNKNOWN_WINDOW = 8192
"""Tokens assumed for a model of which nothing is known: better a prompt that is cut and marked as
cut than one that an endpoint cuts in silence (user report T22)."""
LONGEST_REPLY = 16_384
"""Output tokens unless a manifest says otherwise: room for a model that reasons."""
ASSISTANT_WINDOW = 128_000
"""Tokens that a command-line assistant's model has at least, less what it needs for itself."""
PROGRAM_TOKENS = 800
"""Tokens that instructions and complaints add to the prompt of a worker that writes programs."""

_FREE = Price(input=0, output=0)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Where = Literal["local", "hosted"]


class StatedPrice(Price):
    """A price that a manifest states, in US dollars per million tokens."""

    model_config = ConfigDict(strict=True)


class _Named(Frozen):
    """What every kind of worker has."""

    model_config = ConfigDict(strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """As plans and arguments name it."""

    @field_validator("name")
    @classmethod
    def _is_not_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f"{name!r} has a meaning of its own in plans; choose another name")
        return name


class _Entry(_Named):
    """What every kind of worker has that is not recorded."""

    good_at: str = ""
    """One line for the conductor: what it does well, and what it does not."""
    role: str = ""
    """Standing instructions: the system message of every prompt."""
    context_window: int | None = Field(default=None, ge=256)
    """Tokens of prompt and reply together."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    parallel: int = Field(default=4, ge=1)
    """Calls at the same time."""

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

    account: str | None = Field(default=None, min_length=1)
    """Workers with the same account share its limits; the address, key and model when not given."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """What the account allows; every Podium process on this machine keeps to it."""

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

    def _card(
        self, kind: str, own_url: str, prices: "PriceTable | None", *, effort: str | None = None
    ) -> WorkerCard:
        from podium_workers.prices import row_of
        from podium_workers.quirks import quirks_of

        url = self.base_url or own_url
        known = row_of(self.model, base_url=url, table=prices)
        quirks = quirks_of(self.model, url)
        where = self.where or ("local" if is_loopback(url) else "hosted")
        window = self.context_window or (known and known.window) or quirks.window or UNKNOWN_WINDOW
        price: Price | None = _FREE if where == "local" else None
        if self.price:
            price = Price.model_validate(self.price.model_dump())
        elif known and window <= (known.priced_up_to or window):
            price = known.price
        most = (known and known.max_output) or quirks.max_output
        longest = min(LONGEST_REPLY, most or LONGEST_REPLY)
        return WorkerCard(
            name=self.name,
            kind=kind,
            model=self.model,
            where=where,
            context_window=window,
            max_output_tokens=self._reply_limit(window, longest),
            reasoning_floor=quirks.floor(effort),
            price=price,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
            rates=None if where == "local" and not self._has_rates else self._rates(url),
        )

    @property
    def _has_rates(self) -> bool:
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    def _rates(self, url: str) -> RateLimits:
        of_its_own = f"{urlsplit(url).hostname} {self.api_key_env or ''} {self.model}"
        return RateLimits(
            account=self.account or of_its_own,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )


class OpenAIEntry(HostedEntry):
    """A model at OpenAI or any address that speaks its Chat Completions or Responses."""

    kind: Literal["openai"]
    api: Literal["responses", "chat"] | None = None
    """Which of the two it is asked by: Responses at OpenAI itself, Chat Completions at every other
    address, unless this says otherwise."""
    background: bool = False
    """Whether replies are made in the background at the provider, so that a process that died can
    take up a reply that is paid for. Needs Responses, and has the provider store each reply."""
    effort: str | None = Field(default=None, min_length=1)
    """How much it reasons before it replies, by the model's own name for it, such as "low"; the
    model's own measure when not given."""

    @model_validator(mode="after")
    def _can_do_that(self) -> Self:
        from podium_workers.quirks import quirks_of

        if self.background and self.interface == "chat":
            raise ValueError(
                'background = true needs the Responses interface; add api = "responses" if the '
                "address has it"
            )
        efforts = quirks_of(self.model, self.url).family.efforts
        if self.effort is not None and efforts and self.effort not in efforts:
            raise ValueError(
                f"{self.model!r} knows no effort {self.effort!r}; choose one of "
                f"{', '.join(efforts)}"
            )
        return self

    @property
    def interface(self) -> Literal["responses", "chat"]:
        return self.api or ("responses" if is_openai(self.url) else "chat")

    @property
    def url(self) -> str:
        return self.base_url or OPENAI_URL

    @property
    def key_variable(self) -> str | None:
        """Which variable holds the key; None where no key is wanted."""
        return self.api_key_env or ("OPENAI_API_KEY" if self.url == OPENAI_URL else None)

    @property
    def card(self) -> WorkerCard:
        return self.card_by(None)

    def card_by(self, prices: "PriceTable | None") -> WorkerCard:
        """The card, with a price that the manifest leaves open from *prices*."""
        return self._card("openai", OPENAI_URL, prices, effort=self.effort)


class AnthropicEntry(HostedEntry):
    """A model at Anthropic or any address that speaks its Messages."""

    kind: Literal["anthropic"]
    thinking: Literal["off", "adaptive"] | Annotated[int, Field(ge=1024)] | None = None
    """Whether it thinks before it replies: "off", "adaptive" (as much as it finds right), or at
    most so many tokens on models that take a number; the model's own way when not given."""
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How much it puts into thinking and reply; the model's own measure when not given."""

    @property
    def url(self) -> str:
        return self.base_url or ANTHROPIC_URL

    @property
    def key_variable(self) -> str | None:
        """Which variable holds the key; None where no key is wanted."""
        return self.api_key_env or ("ANTHROPIC_API_KEY" if self.url == ANTHROPIC_URL else None)

    @property
    def card(self) -> WorkerCard:
        return self.card_by(None)

    def card_by(self, prices: "PriceTable | None") -> WorkerCard:
        """The card, with a price that the manifest leaves open from *prices*."""
        # With thinking switched off, no reply needs room for it.
        effort = "none" if self.thinking == "off" else None
        return self._card("anthropic", ANTHROPIC_URL, prices, effort=effort)


class VllmEntry(VllmOptions, HostedEntry):
    """A model on vLLM: of the server at `base_url`, or of one that Podium runs itself."""

    kind: Literal["vllm"]
    parallel: int = Field(default=16, ge=1)
    first_byte_s: float = Field(default=600, gt=0)

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Self:
        if self.base_url is not None and self.given:
            raise ValueError(
                f"{self.given[0]} is for a server that Podium starts, and base_url names one that "
                "runs already; leave out one of the two"
            )
        if self.base_url is None and (self.api_key_env or self.where):
            raise ValueError("api_key_env and where belong to a server at base_url; leave them out")
        return self

    @property
    def is_own(self) -> bool:
        """Whether Podium runs the server."""
        return self.base_url is None

    @property
    def card(self) -> WorkerCard:
        if not self.is_own:
            return self._card("vllm", "", None)
        window = self.context_window or OWN_WINDOW
        own = self.model_copy(update={"context_window": window})
        return HostedEntry._card(own, "vllm", "http://127.0.0.1", None)


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


class CassetteEntry(_Named):
    """A worker that gives again what was recorded of one."""

    kind: Literal["cassette"]
    file: str = Field(min_length=1)
    """The cassette's path; a relative one starts at the manifest's folder."""
    worker: str | None = None
    """Its name when it was recorded, if that was another."""

    @property
    def card(self) -> WorkerCard:
        """The card that was recorded.

        Raises:
            ManifestError: the file is no cassette, or none of that worker.
        """
        from podium_workers.replay import ReplayWorker

        return ReplayWorker.of(self).card


class CommandEntry(_Entry):
    """A program on this machine, mostly a command-line assistant as the user is logged in."""

    kind: Literal["command"]
    preset: Literal["claude", "codex", "gemini"] | None = None
    """An assistant that Podium knows how to call."""
    command: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Any other program and its arguments; the prompt is its standard input. A path that begins
    with a dot starts at the manifest's folder."""
    output: Literal["text", "claude", "codex", "gemini"] | None = None
    """What it prints: its reply, or the JSON of an assistant; that of the preset, else text."""
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Arguments behind those of the preset."""
    model: str = ""
    """The model to use; the assistant's own choice when not given."""
    env: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of environment variables that it gets beside what everybody gets."""
    folder: str | None = None
    """Where it works, then with its own tools; else an empty folder, and without tools where the
    preset can. A relative one starts at the manifest's folder."""
    where: Where = "hosted"
    """Whether prompts stay on this machine."""
    price: StatedPrice | None = None
    """Of its tokens, where it reports tokens but no cost."""
    first_byte_s: float = Field(default=600, gt=0)
    """Seconds of silence before the model's first words."""
    idle_s: float = Field(default=300, gt=0)
    """Seconds of silence after them."""
    parallel: int = Field(default=2, ge=1)

    @field_validator("env")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _VARIABLE.fullmatch(name) or scrub(name) != name:
                raise ValueError(
                    'these must be names of environment variables, such as "MY_TOKEN", never '
                    "their values"
                )
        return names

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if bool(self.preset) == bool(self.command):
            raise ValueError(
                'name either a preset ("claude", "codex" or "gemini") or a command, such as '
                'command = ["my-assistant", "--quiet"]'
            )
        if self.command and self.args:
            raise ValueError("args belong to a preset; put them into command")
        return self

    @property
    def card(self) -> WorkerCard:
        window = self.context_window or (ASSISTANT_WINDOW if self.preset else UNKNOWN_WINDOW)
        price: Price | None = _FREE if self.where == "local" else None
        if self.price:
            price = Price.model_validate(self.price.model_dump())
        return WorkerCard(
            name=self.name,
            kind="command",
            model=self.model or self.preset or Path(self.command[0]).name,
            where=self.where,
            context_window=window,
            max_output_tokens=self._reply_limit(window, LONGEST_REPLY),
            price=price,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
        )


class ProgramEntry(_Named):
    """A worker that lets another one write a program, and runs it in a sandbox."""

    kind: Literal["program"]
    by: str
    """Name of the worker that writes the programs."""
    seconds: int = Field(default=10, ge=1, le=600)
    """Processor time that a program may take."""
    good_at: str = "arithmetic, counting and searching: writes a Python program and runs it"
    """One line for the conductor: what it does well, and what it does not."""
    role: str = ""
    """Standing instructions: the system message of every prompt."""

    @property
    def card(self) -> WorkerCard:
        """The card, without what only the worker that writes the programs knows."""
        return WorkerCard(
            name=self.name,
            kind="program",
            model=self.by,
            where="hosted",
            context_window=UNKNOWN_WINDOW,
            good_at=self.good_at,
            role=self.role,
        )

    def card_over(self, writer: WorkerCard) -> WorkerCard:
        """The card, with what is that of *writer*; its window leaves room for repairs."""
        room = writer.context_window - writer.max_output_tokens - PROGRAM_TOKENS
        update = {
            "name": self.name,
            "kind": "program",
            "good_at": self.good_at,
            "role": self.role or writer.role,
            "context_window": max(room, writer.context_window // 2),
        }
        return writer.model_copy(update=update)


Direct = (
    OpenAIEntry
    | AnthropicEntry
    | VllmEntry
    | LocalEntry
    | ScriptedEntry
    | CassetteEntry
    | CommandEntry
)
"""Workers that ask no other one of the pool."""
Entry = Direct | ProgramEntry


def card_of(entry: Entry, prices: "PriceTable | None" = None) -> WorkerCard:
    """The entry's card: its price is the manifest's, else that of *prices*, else unknown.

    *prices* is the shipped table unless given.
    """
    if isinstance(entry, OpenAIEntry | AnthropicEntry):
        return entry.card_by(prices)
    return entry.card


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
        self._check_programs()
        return self

    def _check_programs(self) -> None:
        writers = [it.name for it in self.workers if not isinstance(it, ProgramEntry)]
        for entry in self.workers:
            if not isinstance(entry, ProgramEntry):
                continue
            if entry.by not in writers:
                raise ValueError(
                    f"{entry.name!r} lets {entry.by!r} write its programs, which is no other "
                    f"worker of this pool; choose one of {', '.join(writers) or 'none'}"
                )
            if self.conductor == entry.name:
                raise ValueError(
                    f"the conductor {entry.name!r} writes programs, not plans; choose {entry.by!r}"
                )

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
