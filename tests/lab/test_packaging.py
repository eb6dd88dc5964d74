"""What is handed out beside the package: made from it, and never older than it."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from podium import __version__
from podium.cli.installing.clients import CLIENTS
from podium_lab.packaging import mcpb, registry, snippets
from podium_lab.packaging.__main__ import made
from podium_workers.manifest import KEY_VARIABLES

ROOT = Path(__file__).parents[2]
Data = dict[str, JsonValue]


def data_of(text: str) -> Data:
    return cast("Data", json.loads(text))


@pytest.mark.parametrize("name", made())
def test_manifests_are_what_would_be_made_now(name: str):
    told = "run: python -m podium_lab.packaging"
    assert (ROOT / "manifests" / name).read_text(encoding="utf-8") == made()[name], told


def test_nothing_else_lies_among_them():
    for folder in ("clients", "mcpb", "registry"):
        files = {f"{folder}/{file.name}" for file in (ROOT / "manifests" / folder).iterdir()}
        assert files == {name for name in made() if name.startswith(f"{folder}/")}


def test_all_of_them_name_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = data_of(made()["registry/server.json"])
    (package,) = cast("list[Data]", page["packages"])
    bundle = data_of(made()["mcpb/manifest.json"])
    versions = [page["version"], package["version"], bundle["version"], project["version"]]
    assert versions == [__version__] * 4


def test_the_readme_tells_the_registry_whose_server_it_is():
    found = re.findall(r"<!-- mcp-name: (\S+) -->", (ROOT / "README.md").read_text())
    assert found == [registry.SERVER_NAME]


def test_the_registrys_page_keeps_its_rules():
    page = data_of(made()["registry/server.json"])
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", str(page["name"]))
    assert len(str(page["description"])) <= 100
    (package,) = cast("list[Data]", page["packages"])
    variables = cast("list[Data]", package["environmentVariables"])
    secret = [one["name"] for one in variables if one.get("isSecret")]
    assert secret == list(KEY_VARIABLES) == list(registry.PROVIDERS)


def test_snippets_hold_no_key_and_no_path_of_this_machine():
    for client in CLIENTS:
        text = snippets.snippet(client)
        assert snippets.COMMAND in text
        assert str(Path.home()) not in text
        parsed = tomllib.loads(text) if client.syntax == "toml" else json.loads(text)
        assert list(parsed)[-1] == client.place[0]


def test_the_bundle_asks_for_keys_as_secrets_and_runs_with_nothing_given():
    manifest = data_of(made()["mcpb/manifest.json"])
    asked = cast("dict[str, Data]", manifest["user_config"])
    for name in KEY_VARIABLES:
        assert asked[name.lower()]["sensitive"] is True
    for one in asked.values():
        assert (one["required"], one["default"]) == (False, "")
    server = cast("Data", manifest["server"])
    started = cast("Data", server["mcp_config"])
    variables = cast("dict[str, str]", started["env"])
    named = {value.removeprefix("${user_config.").removesuffix("}") for value in variables.values()}
    assert named == set(asked)
    assert manifest["privacy_policies"]


def test_the_bundle_is_a_project_that_runs_from_its_own_folder(tmp_path: Path):
    folder = tmp_path / "bundle"
    command = [sys.executable, "-m", "podium_lab.packaging.mcpb", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(folder)
    wanted = {".mcpbignore", "LICENSE", "NOTICE", "manifest.json", "pyproject.toml"}
    assert {file.name for file in folder.iterdir()} == {*wanted, "server", "workers"}
    assert not list(folder.rglob("__pycache__"))
    manifest = data_of((folder / "manifest.json").read_text())
    assert (folder / str(cast("Data", manifest["server"])["entry_point"])).is_file()

    sources = [folder / "server", folder / "workers"]
    code = (
        f"import sys; sys.path[:0] = {list(map(str, sources))}; import podium.cli as c; "
        "assert c.__file__.startswith(sys.path[0]), c.__file__; c.main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout.strip() == f"podium, version {__version__}"
    with pytest.raises(FileExistsError):
        mcpb.build(folder)


def test_the_bundle_depends_on_all_that_the_package_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {*map(bare, project["dependencies"])}
    wanted |= {*map(bare, project["optional-dependencies"]["local"])}
    bundle = tomllib.loads(mcpb.pyproject())["project"]
    told = "the installed package is older than pyproject.toml: pip install -e ."
    assert {*map(bare, bundle["dependencies"])} == wanted, told
    assert bundle["requires-python"] == project["requires-python"]


def bare(requirement: str) -> str:
    """The name of a package, as it is compared."""
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None
    return found[0].replace("_", "-").lower()
