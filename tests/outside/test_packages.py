"""What is published besides the Python package, as the tools of those who take it see it."""

import shutil
import zipfile
from pathlib import Path

import pytest
from tests.outside.programs import program

from podium_lab.packaging import mcpb

pytestmark = pytest.mark.outside
MANIFESTS = Path(__file__).parents[2] / "manifests"
BUNDLE = MANIFESTS / "mcpb"
REGISTRY = MANIFESTS / "registry" / "server.json"


async def test_mcpb_takes_the_manifest_of_the_bundle(tmp_path: Path) -> None:
    ended = await program("mcpb", tmp_path)("validate", str(BUNDLE / "manifest.json"))
    assert ended.code == 0, ended


async def test_mcpb_packs_the_bundle(tmp_path: Path) -> None:
    packer = program("mcpb", tmp_path)
    mcpb.build(tmp_path / "bundle")
    packed = tmp_path / "podium.mcpb"
    ended = await packer("pack", str(tmp_path / "bundle"), str(packed))
    assert ended.code == 0, ended
    told = await packer("info", str(packed))
    assert told.code == 0, told
    with zipfile.ZipFile(packed) as bundle:
        held = set(bundle.namelist())
    assert {"manifest.json", "pyproject.toml", "LICENSE", "server/podium/__main__.py"} <= held
    assert not [name for name in held if name.endswith((".pyc", ".db"))]


async def test_skillsaw_finds_nothing_wrong_with_the_registry_entry(tmp_path: Path) -> None:
    shutil.copy(REGISTRY, tmp_path / "server.json")
    skillsaw = program("skillsaw", tmp_path)
    ended = await skillsaw("lint", "--strict", "--type", "mcp-registry", str(tmp_path))
    assert ended.code == 0, ended


async def test_skillsaw_sees_when_the_registry_entry_is_wrong(tmp_path: Path) -> None:
    """So that the test above is known to look at it."""
    text = REGISTRY.read_text()
    broken = text.replace('"version": "', '"version": "latest ', 1)
    (tmp_path / "server.json").write_text(broken)
    skillsaw = program("skillsaw", tmp_path)
    ended = await skillsaw("lint", "--strict", "--type", "mcp-registry", str(tmp_path))
    assert ended.code != 0, ended
