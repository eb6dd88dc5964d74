"""What `podium doctor` looks at: the program, its files, the pool, the machine. Changes nothing."""

import contextlib
import importlib.metadata
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import anyio

from podium import __version__
from podium.cli.check import Check, Level
from podium.cli.compose import find_manifest
from podium.cli.http_checks import http_checks
from podium.cli.invocation import Invocation
from podium.cli.ledger_checks import ledger_checks, nearest_folder
from podium.cli.wording import count, size
from podium.config import Settings, load_settings
from podium.errors import SettingsError
from podium_workers.command import open_command
from podium_workers.engine.client import EngineSettings, open_engine
from podium_workers.engine.state import EngineStatus
from podium_workers.entries.hosted import VllmEntry
from podium_workers.entries.named import (
    CassetteEntry,
    CommandEntry,
    Entry,
    LocalEntry,
    ProgramEntry,
    ScriptedEntry,
)
from podium_workers.entries.vllm_options import find_python
from podium_workers.errors import ManifestError, NotInstalledError
from podium_workers.manifest import KEY_VARIABLES, PoolManifest
from podium_workers.programs.sandbox import Sandbox
from podium_workers.weights.catalogue import CATALOGUE, Weights, weights_named
from podium_workers.weights.pulling import is_present, path_of

LIBRARIES = ("mcp", "openai", "anthropic")
ENGINE = "xllamacpp"
HUB = "huggingface_hub"
NEEDED_FLAGS = ("avx2", "fma", "bmi2")
"""What the engine's x86 build needs of a processor."""
_CPU_FILE = Path("/proc/cpuinfo")


def examine(invocation: Invocation) -> Iterator[Check]:
    """Every check, in the order in which a person would ask."""
    yield _program()
    yield _libraries()
    yield _settings_check(invocation)
    settings = _settings(invocation)
    yield from ledger_checks(settings.store)
    yield from http_checks(settings)
    yield _keys(invocation.environment)
    yield from _pool(settings, invocation.environment)
    yield from _models(settings)
    yield _engine(settings)
    yield _machine()


def _program() -> Check:
    found = f"Podium {__version__}, Python {platform.python_version()}, {platform.platform()}"
    return Check(area="program", level="ok", found=found)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _install() -> str:
    """What to type for the engine of the local models, in the versions that Podium asks for."""
    asked = importlib.metadata.requires("podium") or []
    wanted = [line.split(";")[0].strip() for line in asked if "local" in line.partition(";")[2]]
    return f"pip install {' '.join(shlex.quote(requirement) for requirement in wanted)}"


def _libraries() -> Check:
    found = {name: _version(name) for name in (*LIBRARIES, ENGINE, HUB)}
    told = ", ".join(f"{name} {version or 'not installed'}" for name, version in found.items())
    missing = [name for name in LIBRARIES if found[name] is None]
    if missing:
        remedy = f"pip install {' '.join(missing)}"
        return Check(area="libraries", level="problem", found=told, remedy=remedy)
    partial = found[ENGINE] is None or found[HUB] is None
    remedy = f"for local models: {_install()}" if partial else ""
    return Check(area="libraries", level="note" if partial else "ok", found=told, remedy=remedy)


def _settings(invocation: Invocation) -> Settings:
    """The settings; without the file, or all at their defaults, where they are wrong.

    So the other checks still have something to say.
    """
    with contextlib.suppress(SettingsError):
        return invocation.settings
    without_file = dict(invocation.environment) | {"PODIUM_CONFIG": os.devnull}
    with contextlib.suppress(SettingsError):
        return load_settings(without_file, **invocation.given).settings
    return Settings()


def _settings_check(invocation: Invocation) -> Check:
    file = invocation.file
    try:
        sources = invocation.loaded.sources
    except SettingsError as error:
        remedy = f"mend {file}, or: podium config unset NAME"
        return Check(area="settings", level="problem", found=str(error), remedy=remedy)
    state = "" if file.exists() else " (does not exist; defaults count)"
    from_elsewhere = [name for name, source in sources.items() if source == "environment"]
    told = f"; from the environment: {', '.join(from_elsewhere)}" if from_elsewhere else ""
    return Check(area="settings", level="ok", found=f"{file}{state}{told}")


def _keys(environment: Mapping[str, str]) -> Check:
    names = (*KEY_VARIABLES, "GOOGLE_API_KEY")
    found = [name for name in names if environment.get(name)]
    told = ", ".join(found) or f"none of {', '.join(names)}; hosted models need one"
    return Check(area="keys", level="ok", found=told)


def _pool(settings: Settings, environment: Mapping[str, str]) -> Iterator[Check]:
    try:
        manifest, why = find_manifest(settings, environment)
    except ManifestError as error:
        remedy = "mend the file, or: podium config unset pool"
        yield Check(area="pool", level="problem", found=str(error), remedy=remedy)
        return
    yield Check(area="pool", level="ok", found=why.removeprefix("Pool: "))
    lacks = {entry.name: _lacks(entry, settings, environment) for entry in manifest.workers}
    usable = [entry.name for entry in manifest.doers if not lacks[entry.name]]
    level: Level = "note" if usable else "problem"
    for name, lack in lacks.items():
        if lack:
            found, remedy = lack
            yield Check(area=f"worker {name}", level=level, found=found, remedy=remedy)
    yield _usable(manifest, usable)


def _usable(manifest: PoolManifest, names: list[str]) -> Check:
    if not names:
        found, remedy = "no worker of the pool can be used", "see the lines above"
        return Check(area="workers", level="problem", found=found, remedy=remedy)
    told = f"{count(len(names), 'worker')} of {len(manifest.doers)}: {', '.join(names)}"
    if manifest.planner:
        told += f"; {manifest.planner.name} writes the plans"
    remedy = "whether they answer: podium workers --ask"
    return Check(area="workers", level="ok", found=told, remedy=remedy)


def _lacks(
    entry: Entry, settings: Settings, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """What a worker lacks and what to do about it; None when it can be asked."""
    if isinstance(entry, ScriptedEntry):
        return None
    if isinstance(entry, LocalEntry):
        return _lacks_locally(entry, settings)
    if isinstance(entry, CassetteEntry):
        remedy = "mend `file` in the manifest, or record again"
        return None if Path(entry.file).is_file() else (f"{entry.file} does not exist", remedy)
    if isinstance(entry, CommandEntry | ProgramEntry):
        return _lacks_a_program(entry, environment)
    if isinstance(entry, VllmEntry) and entry.is_own:
        return _lacks_vllm(entry, settings, environment)
    variable = entry.api_key_env if isinstance(entry, VllmEntry) else entry.key_variable
    if variable and not environment.get(variable):
        return f"its key is missing: {variable} is not set", f"export {variable}=…"
    return None


def _lacks_a_program(
    entry: CommandEntry | ProgramEntry, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """Whether what such a worker starts is on this machine; of a login nothing is asked."""
    try:
        if isinstance(entry, CommandEntry):
            open_command(entry, environment).program()
        else:
            anyio.run(Sandbox(environment.get("PATH")).check)
    except NotInstalledError as error:
        return error.message, "install it, then: podium workers"
    return None


def _lacks_vllm(
    entry: VllmEntry, settings: Settings, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    try:
        find_python(entry.python, settings.environments_dir, environment.get("PATH"))
    except NotInstalledError as error:
        return error.message, "then: podium workers"
    return None


def _lacks_locally(entry: LocalEntry, settings: Settings) -> tuple[str, str] | None:
    fault = _fault_of_engine()
    if fault:
        return fault
    known = weights_named(entry.gguf)
    if known is None:
        path = Path(entry.gguf).expanduser()
        return None if path.is_file() else (f"{path} does not exist", "mend `gguf` in the manifest")
    free = shutil.disk_usage(nearest_folder(settings.models_dir)).free
    if not is_present(known, settings.models_dir) and free < known.size:
        need = f"{size(known.size)} are needed, {size(free)} are free in {settings.models_dir}"
        return need, "make room, or: podium config set models_dir FOLDER"
    return None


def _models(settings: Settings) -> Iterator[Check]:
    for weights in CATALOGUE:
        yield _model(weights, settings.models_dir)


def _model(weights: Weights, models_dir: Path) -> Check:
    area = f"model {weights.name}"
    if is_present(weights, models_dir):
        found = f"{path_of(weights, models_dir)}, {size(weights.size)}"
        return Check(area=area, level="ok", found=found)
    found = f"not on this machine; {size(weights.size)}, fetched when it is first used"
    return Check(area=area, level="ok", found=found, remedy=f"podium models pull {weights.name}")


def _engine(settings: Settings) -> Check:
    fault = _fault_of_engine()
    if fault:
        found, remedy = fault
        return Check(area="engine", level="note", found=found, remedy=remedy)
    status = anyio.run(_engine_status, settings)
    if status is None:
        found = "not running; it starts with the first question to a local model"
        return Check(area="engine", level="ok", found=found)
    models = [
        f"{model.spec.path.name} {model.state}, {size(model.resident_bytes)}"
        for model in status.models
    ]
    loaded = "; ".join(models) or "no model loaded"
    found = f"runs as process {status.pid} for {count(status.clients, 'user')}: {loaded}"
    level: Level = "note" if status.warning else "ok"
    return Check(area="engine", level=level, found=found, remedy=status.warning)


async def _engine_status(settings: Settings) -> EngineStatus | None:
    memory = int(settings.local_memory_gb * 2**30)
    wanted = EngineSettings(state_dir=settings.state_dir, memory_limit_bytes=memory)
    async with open_engine(wanted) as engine:
        return await engine.status()


@cache
def _fault_of_engine() -> tuple[str, str] | None:
    """Why the engine cannot run on this machine, and what to do; None when it can."""
    if _version(ENGINE) is None:
        return f"the engine of local models ({ENGINE}) is not installed", _install()
    missing = _missing_flags()
    if missing:
        return f"this processor lacks {', '.join(missing)}", "use hosted models: set a key"
    # In a process of its own, since a library that does not fit may end its process.
    command = [sys.executable, "-P", "-c", f"import {ENGINE}"]
    tried = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        return None
    why = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
    remedy = "install libgomp (Debian, Ubuntu: apt-get install libgomp1)"
    return f"{ENGINE} cannot be loaded: {why}", remedy if "libgomp" in why else _install()


def _machine() -> Check:
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    told = [f"{count(usable, 'processor')}", platform.machine()]
    if sys.platform != "win32":
        told.append(f"{size(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))} memory")
    missing = _missing_flags()
    told.append(f"lacks {', '.join(missing)}" if missing else _flags_told())
    remedy = "local models need a newer processor; set a key for hosted ones" if missing else ""
    level: Level = "note" if missing else "ok"
    return Check(area="machine", level=level, found=", ".join(filter(None, told)), remedy=remedy)


def _flags_told() -> str:
    return "has AVX2, FMA and BMI2" if _flags() else ""


def _missing_flags() -> tuple[str, ...]:
    """Processor features that the engine needs and this machine lacks, as far as can be told."""
    flags = _flags()
    return tuple(flag for flag in NEEDED_FLAGS if flag not in flags) if flags else ()


def _flags() -> frozenset[str]:
    """The features of an x86 processor; empty where they cannot be told or are not needed."""
    if platform.machine().lower() not in ("x86_64", "amd64") or not _CPU_FILE.exists():
        return frozenset()
    for line in _CPU_FILE.read_text("utf-8", "replace").splitlines():
        if line.startswith("flags"):
            return frozenset(line.split())
    return frozenset()
