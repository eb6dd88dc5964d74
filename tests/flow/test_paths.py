"""What looks like a path is none, or stays below the folders that were allowed."""

import os
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest
from mcp import MCPError
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.flow.client import Era, Transport, connected, data, text

BOUND_S = 60
SECRET = "the secret of the other folder"


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in a folder that nobody allowed."""
    file = tmp_path_factory.mktemp("outside") / "secret.txt"
    file.write_text(SECRET)
    return file


def ways_out(folder: Path, secret: Path) -> list[str]:
    """Ways to write a path out of *folder* to that file, and paths that are none at all."""
    (folder / "link.txt").symlink_to(secret)
    (folder / "linked").symlink_to(secret.parent)
    relative = os.path.relpath(secret, folder)
    return [
        str(secret), relative, f"./{relative}", f"linked/{secret.name}", "link.txt",
        f"{folder}/../{os.path.relpath(secret, folder.parent)}", f"file://{secret}",
        quote(relative, safe=""), f"{secret}\0.md", "~root/.profile", "~/../../etc/passwd",
        "/etc/passwd", "/proc/self/environ", "/dev/stdin", ".", "..", "//etc/passwd",
    ]  # fmt: skip


async def test_no_path_of_a_file_leads_out_of_the_working_folder(
    podium: CommandLine, outside: Path
) -> None:
    (podium.folder / "notes.txt").write_text("the secret word is swordfish")
    with anyio.fail_after(BOUND_S):
        async with connected(podium) as client:

            async def ask(path: str, name: str = "") -> tuple[bool, str]:
                file: dict[str, JsonValue] = {"path": path, "name": name}
                asking: dict[str, JsonValue] = {"question": "Q", "strategy": "single"}
                result = await client.call_tool("orchestrate", {**asking, "files": [file]})
                return result.is_error, result.model_dump_json()

            for path in ways_out(podium.folder, outside):
                is_error, told = await ask(path)
                assert is_error, path
                assert SECRET not in told
                assert "root:" not in told
            is_error, told = await ask("./linked/../notes.txt")
            assert is_error
            is_error, told = await ask(str(podium.folder / "notes.txt"))
            assert not is_error
            is_error, told = await ask("notes.txt", name="../../../etc/cron.d/x")
            assert not is_error
    assert sorted(found.name for found in outside.parent.iterdir()) == [outside.name]


def resources(secret: Path) -> list[str]:
    """Addresses of resources with a path where an id or a number belongs."""
    places = [
        "..", "../..", "../../../../etc/passwd", str(secret), f"~/{secret.name}", "%00", "*", " ",
        f"..%2f..%2f..{secret}", quote(str(secret), safe=""), "..\\..\\etc", "%2e%2e", "",
    ]  # fmt: skip
    return [
        template % place
        for template in ("podium://runs/%s", "podium://runs/%s/best", "podium://runs/%s/steps/0")
        for place in places
    ]


@pytest.mark.parametrize(("transport", "era"), [("stdio", "legacy"), ("http", "2026-07-28")])
async def test_no_address_of_a_resource_leads_to_a_file(
    podium: CommandLine, outside: Path, transport: Transport, era: Era
) -> None:
    with anyio.fail_after(BOUND_S):
        async with connected(podium, transport, era) as client:
            run = data(await client.call_tool("orchestrate", {"question": "Q"}))["run_id"]
            steps = [f"podium://runs/{run}/steps/{step}" for step in ("-1", "9", "..%2f0", "0%00")]
            for address in [*resources(outside), *steps]:
                try:
                    read = (await client.read_resource(address)).model_dump_json()
                except MCPError as error:
                    read = error.message
                assert SECRET not in read
                assert "root:" not in read
            for run_id in ("..", "../x", "%", "_", "*", "a" * 5000, "\0"):
                looked = await client.call_tool("get_run", {"run_id": run_id})
                assert looked.is_error, run_id
                assert text(looked)
