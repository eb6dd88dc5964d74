"""Builds the folder of Podium's bundle for Claude Desktop and other hosts of MCPB.

    python -m podium_lab.packaging.mcpb FOLDER
    mcpb validate FOLDER/manifest.json && mcpb pack FOLDER podium.mcpb

The host brings uv, which makes an environment from the bundle's pyproject.toml when it is first
started.
"""

import argparse
import importlib.metadata
import importlib.resources
import json
import shutil
from pathlib import Path

from podium import __version__
from podium_lab.packaging.registry import DESCRIPTION, PROVIDERS, TITLE

PACKAGES = {"podium": "server", "podium_workers": "workers"}
"""What the bundle holds, and the folder of each."""
NOTICES = ("LICENSE", "NOTICE")
IGNORED = """\
__pycache__/
*.py[cod]
.venv/
.env
*.db
"""
POLICIES = (
    "https://openai.com/policies/privacy-policy/",
    "https://www.anthropic.com/legal/privacy",
    "https://policies.google.com/privacy",
    "https://openrouter.ai/privacy",
)
"""Of those to whom questions go where their key is given; without keys none goes anywhere."""

_HAS_ENGINE = "platform_machine in 'x86_64 AMD64 arm64'"
"""Where there is a ready-built engine of local models: elsewhere the bundle does without."""

_LONG = (
    "Hand a hard question to a team of models, and see who did what. A conductor model writes a "
    "small plan: which worker gets which subtask, and which earlier steps it may read. Podium runs "
    "it over the models whose keys you give, keeps every paid step on this machine, and answers "
    "with a receipt. Without a key it uses small models that it runs here (fetched when they are "
    "first used)."
)


def manifest() -> dict[str, object]:
    """The bundle's manifest."""
    return {
        "manifest_version": "0.4",
        "name": "podium",
        "display_name": TITLE,
        "version": __version__,
        "description": DESCRIPTION,
        "long_description": _LONG,
        "author": {"name": "The Podium developers"},
        "license": "Apache-2.0",
        "keywords": ["orchestration", "conductor", "multi-agent", "delegation"],
        "server": {
            "type": "uv",
            "entry_point": "server/podium/__main__.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--project", "${__dirname}", "podium", "serve"],
                "env": _environment(),
            },
        },
        "tools_generated": True,
        "prompts_generated": True,
        "user_config": _user_config(),
        "privacy_policies": list(POLICIES),
        "compatibility": {
            "platforms": ["darwin", "win32", "linux"],
            "runtimes": {"python": _about()["Requires-Python"]},
        },
    }


def _environment() -> dict[str, str]:
    settings = {name: f"${{user_config.{name.lower()}}}" for name in PROVIDERS}
    return settings | {
        "PODIUM_POOL": "${user_config.pool}",
        "PODIUM_DAY_USD": "${user_config.day_usd}",
    }


def _user_config() -> dict[str, object]:
    """What the host asks its user; an empty default makes an answer that is not given empty."""
    keys: dict[str, object] = {
        name.lower(): {
            "type": "string",
            "title": f"Key of {title}",
            "description": f"Its models become workers, paid by you. The same as {name}.",
            "sensitive": True,
            "required": False,
            "default": "",
        }
        for name, title in PROVIDERS.items()
    }
    pool = {
        "type": "file",
        "title": "Pool",
        "description": "A manifest (TOML) that names your own workers; optional.",
        "required": False,
        "default": "",
    }
    day_usd = {
        "type": "string",
        "title": "US dollars a day",
        "description": "What all questions of one day may cost, such as 2.50; optional.",
        "required": False,
        "default": "",
    }
    return keys | {"pool": pool, "day_usd": day_usd}


def _about() -> "importlib.metadata.PackageMetadata":
    return importlib.metadata.metadata("podium")


def pyproject() -> str:
    """What uv makes the environment from: Podium with the engine of its local models."""
    asked = importlib.metadata.requires("podium") or []
    wanted = [line for line in asked if "extra ==" not in line]
    local = [line.split(";")[0].strip() for line in asked if _is_for_local(line)]
    wanted += [f"{line}; {_HAS_ENGINE}" for line in local]
    dependencies = "".join(f"    {json.dumps(line)},\n" for line in wanted)
    folders = json.dumps([f"{folder}/{name}" for name, folder in PACKAGES.items()])
    return f"""\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "podium"
version = "{__version__}"
requires-python = "{_about()["Requires-Python"]}"
dependencies = [
{dependencies}]

[project.scripts]
podium = "podium.cli:main"

[tool.hatch.build.targets.wheel]
packages = {folders}
"""


def _is_for_local(requirement: str) -> bool:
    """Whether the extra `local` asks for it."""
    condition = requirement.partition(";")[2].replace('"', "'")
    return "extra == 'local'" in condition


def build(folder: Path) -> None:
    """Make the bundle's folder, which has to be new or empty.

    Raises:
        FileExistsError: there is something in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name a new folder.")
    for name, within in PACKAGES.items():
        with importlib.resources.as_file(importlib.resources.files(name)) as package:
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(package, folder / within / name, ignore=ignored)
    for name in NOTICES:
        (folder / name).write_text(_notice(name), encoding="utf-8")
    (folder / "manifest.json").write_text(as_json(manifest()), encoding="utf-8")
    (folder / "pyproject.toml").write_text(pyproject(), encoding="utf-8")
    (folder / ".mcpbignore").write_text(IGNORED, encoding="utf-8")


def as_json(data: dict[str, object]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _notice(name: str) -> str:
    """A text of the licence, as it was installed with the package."""
    for file in importlib.metadata.files("podium") or []:
        if file.name == name and ".dist-info" in str(file):
            return file.read_text(encoding="utf-8")
    raise FileNotFoundError(f"the installed package podium has no {name}")


def main() -> None:
    """Make the folder that the argument names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder.absolute()
    build(folder)
    print(folder)


if __name__ == "__main__":
    main()
