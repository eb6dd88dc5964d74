"""Settings of a Podium process: one frozen object, made once by the command line."""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import Field, ValidationError

from podium.errors import SettingsError
from podium_workers.worker import Frozen

Strategy = Literal["conductor", "single", "chain", "trinity"]
OnDisconnect = Literal["continue", "pause", "stop"]
"""The strategies that are shipped; whoever builds Podium gives each a policy."""

Address = Annotated[str, Field(pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$")]
"""Of a server, as it is typed."""
HOST = r"^(\[[0-9A-Fa-f:.]+\]|[^\s/:\[\]]+)(:\d+)?$"
Host = Annotated[str, Field(pattern=HOST)]
"""A name or number by which a server is reached, with its port or without."""
ORIGIN = r"^https?://[^/?#\s]+$"
Origin = Annotated[str, Field(pattern=ORIGIN)]
"""Where a web page comes from, as browsers say it."""

PREFIX = "PODIUM_"
"""Environment variables `PODIUM_<FIELD>` override the file."""


def _data_dir() -> Path:
    return Path(platformdirs.user_data_dir("podium", appauthor=False))


def _cache_dir() -> Path:
    return Path(platformdirs.user_cache_dir("podium", appauthor=False))


_ELEMENTS = {
    "http_hosts": "names, as podium.example.com or 10.0.0.5:8000",
    "http_origins": "origins, as https://app.example.com",
    "oauth_scopes": "scopes",
}
"""What the lists of texts among the settings are made of."""


class Settings(Frozen):
    """What a user may set, in the configuration file or as `PODIUM_<FIELD>`."""

    store: Path = Field(default_factory=lambda: _data_dir() / "podium.db")
    """The ledger's file."""
    pool: Path | None = None
    """Pool manifest; without one the keys in the environment decide, or the local pool."""
    conductor: str | None = Field(default=None, min_length=1)
    """Who writes the plans instead of the pool's own conductor: a worker of the pool, or the path
    of a model that does nothing else, a GGUF file or a folder that `podium train export` wrote."""
    strategy: Strategy = "conductor"
    """How questions are worked on unless a request says otherwise: conductor, single, chain, or
    trinity where `coordinator` is set."""
    coordinator: Path | None = None
    """An evolved head that chooses worker and role turn by turn: the strategy trinity."""
    rounds: int = Field(default=1, ge=1, le=10)
    """Plans at most for one question."""
    depth: int = Field(default=0, ge=0, le=3)
    """How deep the conductor may be its own worker."""
    plan_steps: int = Field(default=5, ge=1, le=20)
    """Steps at most in one plan of a conductor."""
    plan_tries: int = Field(default=5, ge=1, le=20)
    """Tries for a readable plan before the pool's first worker answers alone."""
    max_wait_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds that a tool call waits before it hands back the run's id; unset, as long as the
    client is known to wait, and 45 for one that is not known."""
    max_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Money that one run may cost, in US dollars, unless a request says otherwise."""
    day_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Money that all runs of a principal may cost on one day, over all processes."""
    approve: Literal["nothing", "plan"] = "nothing"
    """What you want to see before it is paid for: nothing, or plan: each plan with its price."""
    on_disconnect: OnDisconnect = "continue"
    """What becomes of a run whose client is gone: continue, pause or stop."""
    prices: Path | None = None
    """Your own price table; without one, `prices.toml` beside the configuration file, if there."""
    models_dir: Path = Field(default_factory=lambda: _cache_dir() / "models")
    """Where the weights of local models lie."""
    state_dir: Path = Field(default_factory=lambda: _data_dir() / "engine")
    """Where the engine of the local models keeps its address and log."""
    local_memory_gb: float = Field(default=8, gt=0, le=1_000_000)
    """Memory that all loaded local models may take together."""
    local_threads: int = Field(default=1, ge=1)
    """Threads of one local model; more than free cores make it slower, not faster."""
    file_roots: tuple[Path, ...] = ()
    """Folders from which a client may name files; empty means the working folder."""
    principal: str = "local"
    """The user that runs belong to."""
    record: Path | None = None
    """Cassette in which all replies of workers are recorded."""
    replay: Path | None = None
    """Cassette from which replies are given again, for nothing."""
    replay_misses: Literal["error", "live"] = "error"
    """What a prompt that the cassette lacks becomes: an error, or live: the worker is asked."""
    http_url: Address | None = None
    """Address of `podium serve --http` for its clients, when that is not where it listens."""
    http_hosts: tuple[Host, ...] = ()
    """Further names by which it is reached, as a proxy before it hands them on."""
    http_origins: tuple[Origin, ...] = ()
    """Web pages of elsewhere that may call it, as https://app.example.com."""
    http_max_bytes: int = Field(default=4 * 2**20, ge=1024)
    """Bytes of one request over HTTP at most."""
    oauth_issuer: Address | None = None
    """Issuer whose OAuth tokens are let in over HTTP, exactly as it names itself."""
    oauth_audience: str | None = None
    """Audience that these tokens have to be made for; without one it is `http_url`."""
    oauth_jwks: Address | None = None
    """Where the issuer's keys are; without it they are found through its metadata."""
    oauth_scopes: tuple[str, ...] = ()
    """Scopes that these tokens need, every one."""

    @property
    def tokens_file(self) -> Path:
        """Where the bearer tokens for HTTP are kept: they open runs of this very ledger."""
        return self.store.with_name(f"{self.store.stem}-tokens.json")

    @property
    def environments_dir(self) -> Path:
        """Where programs lie that need a Python environment of their own, vLLM among them."""
        return self.models_dir.parent / "environments"

    @property
    def profiles_dir(self) -> Path:
        """Where it is kept what workers were measured to be good at."""
        return self.state_dir.parent / "profiles"


def is_loopback(host: str) -> bool:
    """Whether a name or number is that of this machine for itself, which no other one reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Source = Literal["default", "file", "environment"]


class Loaded(Frozen):
    """Settings and where each one came from."""

    settings: Settings
    sources: dict[str, Source]
    file: Path
    """The configuration file, whether it exists or not."""


def config_file(environment: Mapping[str, str]) -> Path:
    """The configuration file: `PODIUM_CONFIG` or the user's own."""
    named = environment.get(PREFIX + "CONFIG")
    folder = Path(platformdirs.user_config_dir("podium", appauthor=False))
    return Path(named) if named else folder / "config.toml"


def load_settings(environment: Mapping[str, str], **given: object) -> Loaded:
    """Settings from *given* arguments, else the environment, else the file, else the defaults.

    Raises:
        SettingsError: a value is wrong; the text names the setting and where it was set.
    """
    file = config_file(environment)
    from_file = _read(file)
    from_environment = _from(environment)
    arguments = {name: value for name, value in given.items() if value is not None}
    values = from_file | from_environment | arguments
    sources: dict[str, Source] = {
        name: _source(name, from_file, from_environment) for name in Settings.model_fields
    }
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(error, file, from_environment, arguments)) from None
    if settings.strategy == "trinity" and settings.coordinator is None:
        raise SettingsError("strategy: 'trinity' needs `coordinator`, the file of an evolved head.")
    return Loaded(settings=settings, sources=sources, file=file)


def _source(
    name: str, from_file: Mapping[str, object], from_environment: Mapping[str, object]
) -> Source:
    if name in from_environment:
        return "environment"
    return "file" if name in from_file else "default"


def _from(environment: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in Settings.model_fields:
        value = environment.get(PREFIX + name.upper())
        if value:  # clients hand over what their user left empty as an empty variable
            found[name] = listed(name, value)
    return found


def listed(name: str, text: str) -> str | tuple[str, ...]:
    """What a setting is given by *text*, as a variable or a command line has it."""
    if name == "file_roots":
        return tuple(text.split(os.pathsep))
    return tuple(re.findall(r"[^\s,]+", text)) if name in _ELEMENTS else text


def _read(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read as TOML: {error}.") from None


def _explain(
    error: ValidationError,
    file: Path,
    environment: Mapping[str, object],
    arguments: Mapping[str, object],
) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0])
    where = f"{PREFIX}{name.upper()}" if name in environment else f"{file}, {name!r}"
    where = f"argument {name!r}" if name in arguments else where
    if first["type"] == "extra_forbidden":
        return f"{where}: there is no such setting; known are {', '.join(Settings.model_fields)}."
    return f"{where}: write {expected(name)} (found {first['input']!r})."


def expected(name: str) -> str:
    """What to write for a setting, in words."""
    match Settings.model_json_schema()["properties"][name]:
        case {"enum": [*words]}:
            return f"one of {', '.join(words)}"
        case {"type": "integer", "minimum": low, "maximum": high}:
            return f"a whole number from {low} to {high}"
        case {"type": "integer", "minimum": low}:
            return f"a whole number of {low} or more"
        case {"type": "number", "exclusiveMinimum": low, "maximum": high}:
            return f"a number above {low}, at most {high}"
        case {"type": "number", "exclusiveMinimum": low}:
            return f"a number above {low}"
        case {"anyOf": [{"type": "number"}, {"type": "null"}]}:
            return "a number above 0"
        case {"type": "array", "items": {"format": "path"}}:
            return "a list of folders"
        case {"type": "array"}:
            return f"a list of {_ELEMENTS[name]}"
        case {"anyOf": [{"pattern": _}, {"type": "null"}]}:
            return "an address, as https://podium.example.com/mcp"
        case {"type": "string", "format": "path"} | {"anyOf": [{"format": "path"}, _]}:
            return "a path"
        case _:
            return "a text"
