from pathlib import Path

import pytest
from tests.command_line import CommandLine

from podium_workers.weights.catalogue import CATALOGUE, lookup
from podium_workers.weights.pulling import path_of


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """The folder of the models, with a file of SmolLM2's name and size in it."""
    folder = tmp_path / "models"
    folder.mkdir()
    weights = lookup("smollm2")
    with path_of(weights, folder).open("wb") as file:
        file.truncate(weights.size)
    return folder


@pytest.fixture
def with_models(podium: CommandLine, models: Path) -> CommandLine:
    return CommandLine(podium.folder, {"PODIUM_MODELS_DIR": str(models)})


def test_the_list_says_what_is_here_and_under_which_licence(
    with_models: CommandLine, models: Path
) -> None:
    rows = with_models.inside("models", "list", "--json").rows

    assert [row["name"] for row in rows] == [weights.name for weights in CATALOGUE]
    assert [row["present"] for row in rows] == [False, False, True]
    assert all(row["licence"] == "Apache-2.0" for row in rows)
    assert rows[2]["path"] == str(path_of(lookup("smollm2"), models))

    told = with_models.inside("models", "list").out
    assert "1,117 MB" in told
    assert "Apache-2.0" in told


def test_a_path_is_all_that_is_printed(with_models: CommandLine, models: Path) -> None:
    done = with_models.inside("models", "path", "smollm2")

    assert (done.code, done.err) == (0, "")
    assert done.out.strip() == str(path_of(lookup("smollm2"), models))


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("path", "qwen-0.5b"), 1, "podium models pull qwen-0.5b"),
        (("path", "gpt-4"), 1, "qwen-1.5b, qwen-0.5b, smollm2"),
        (("pull", "gpt-4"), 1, "qwen-1.5b, qwen-0.5b, smollm2"),
        (("pull", "qwen-0.5b", "--from", "absent.gguf"), 1, "absent.gguf does not exist"),
        (("pull",), 2, "--all"),
        (("pull", "--all", "--from", "some.gguf"), 2, "one model"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    with_models: CommandLine, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = with_models.inside("models", *arguments)

    assert (done.code, done.out) == (code, "")
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_file_that_is_another_one_is_refused(with_models: CommandLine) -> None:
    other = with_models.write("other.gguf", b"GGUF")

    done = with_models.inside("models", "pull", "qwen-0.5b", "--from", other)

    assert done.code == 1
    assert "Apache" in done.err
    assert "other.gguf is not the file of this model" in done.err


@pytest.mark.local
def test_a_pull_shows_licence_and_progress_and_ends_with_path_and_digest(
    podium: CommandLine, local_models_dir: Path, tmp_path: Path
) -> None:
    weights = lookup("smollm2")
    command = CommandLine(podium.folder, {"PODIUM_MODELS_DIR": str(tmp_path / "fresh")})

    done = command("models", "pull", "smollm2", "--from", str(path_of(weights, local_models_dir)))

    assert done.code == 0
    assert "Apache License 2.0" in done.err
    assert "98 MB of 98 MB from file" in done.err
    assert done.out.strip() == (
        f"{path_of(weights, tmp_path / 'fresh')}  SHA-256 ok: {weights.sha256}"
    )
