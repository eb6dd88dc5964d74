"""What an export says of how its conductor was trained, and that the server asks it so."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.gguf_writer import write_gguf

from podium_lab.train.config import Job
from podium_lab.train.errors import TrainingError
from podium_lab.train.exporting import export
from podium_lab.train.records import Records
from podium_workers.asked import Asked
from podium_workers.cassette import Recorder
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker
from podium_workers.trained import TRAINING, Training, conductor_at

SKILLS = [{"name": name, "by_kind": {"facts": 0.5}} for name in ("second", "first")]


def trained(folder: Path, *, grpo: Mapping[str, object] = {}, **workers: object) -> Path:
    """The folder of a job that has come to its end, with something in the place of its model."""
    job = Job.model_validate(
        {
            "folder": folder,
            "model": {"base": "somebody/model"},
            "asked": {"prompt": "brief", "max_steps": 3, "context_window": 900},
            "workers": workers or {"simulated": SKILLS},
            "taskset": [{"source": "generated", "count": 10}],
            "grpo": {"max_tokens": 48, **grpo},
        }
    )
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text('{"max_position_embeddings": 2048}')
    Records(folder).begin(job, (), "live")
    return folder


def of_another_kind(folder: Path, file: Path) -> bool:
    return False


def exported(folder: Path, out: Path) -> Training:
    def no_merge(trained: Path, base: str, out: Path) -> None:
        raise AssertionError("all weights were trained")

    export(folder, out, "merged", merge=no_merge, to_gguf=of_another_kind)
    return Training.model_validate_json((out / TRAINING).read_bytes())


async def keep_replies(file: Path, *names: str) -> Path:
    """What a job on live workers keeps of these."""
    workers = tuple(ScriptedWorker.named(name, ["ok"]) for name in names)
    await Recorder(file, print).begin(Pool(workers=workers, conductor=names[0]))
    return file


def test_an_export_says_how_its_conductor_was_asked(tmp_path: Path) -> None:
    said = exported(trained(tmp_path / "job"), tmp_path / "out")
    assert said == Training(
        asked=Asked(
            form="lists",
            shows="ordinals",
            prompt="brief",
            max_steps=3,
            team=("second", "first"),
            prose=1999,
        ),
        context_window=900,
        max_tokens=48,
    )
    entry = conductor_at(tmp_path / "out").entry
    assert (entry.context_window, entry.max_output_tokens, entry.steps) == (900, 48, False)


@pytest.mark.parametrize("prose", [0, 700])
def test_a_held_one_has_as_much_room_for_reasoning_as_in_its_training(
    tmp_path: Path, prose: int
) -> None:
    folder = trained(tmp_path / "job", grpo={"held": True, "prose": prose})
    assert exported(folder, tmp_path / "out").asked.prose == prose


def test_simulated_workers_that_were_left_out_have_no_number(tmp_path: Path) -> None:
    folder = trained(tmp_path / "job", simulated=SKILLS, only=("first",))
    assert exported(folder, tmp_path / "out").asked.team == ("first",)


def test_the_card_shows_how_it_is_used(tmp_path: Path) -> None:
    exported(trained(tmp_path / "job"), tmp_path / "out")
    use = (tmp_path / "out" / "README.md").read_text().split("## Use")[1].split("## ")[0]
    assert 'podium ask --conductor THIS/FOLDER "…"' in use
    assert "podium config set conductor THIS/FOLDER" in use
    assert "plans of up to 3 steps" in use
    assert "in their order: second, first." in use


@pytest.mark.parametrize("only", [(), ("c", "a")])
async def test_live_workers_are_known_by_the_replies_that_were_kept(
    tmp_path: Path, only: tuple[str, ...]
) -> None:
    folder = trained(tmp_path / "job", manifest="gone.toml", only=only)
    with pytest.raises(
        TrainingError, match=r"replies\.jsonl: there is no such cassette\. Put that"
    ):
        exported(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    await keep_replies(folder / "replies.jsonl", "a", "b", "c")
    said = exported(folder, tmp_path / "out")
    assert said.asked.team == (("a", "c") if only else ("a", "b", "c"))


async def test_recorded_workers_are_known_by_their_cassette(tmp_path: Path) -> None:
    tape = await keep_replies(tmp_path / "tape.jsonl", "b", "a")
    said = exported(trained(tmp_path / "job", recorded=tape), tmp_path / "out")
    assert said.asked.team == ("b", "a")


def test_a_gguf_keeps_the_account_of_its_training(tmp_path: Path) -> None:
    folder = trained(tmp_path / "job")
    write_gguf(tmp_path / "some.gguf")
    converter = tmp_path / "converter.py"
    converter.write_text(
        "import shutil, sys\n"
        f"shutil.copy({str(tmp_path / 'some.gguf')!r}, sys.argv[sys.argv.index('--outfile') + 1])\n"
    )
    out = export(
        folder, tmp_path / "out", "gguf", merge=print, to_gguf=of_another_kind,
        converter=str(converter),
    )  # fmt: skip
    assert out == tmp_path / "out" / "model.gguf"
    assert {path.name for path in out.parent.iterdir()} == {"model.gguf", "README.md", TRAINING}
    given = conductor_at(out)
    assert given.training
    assert (given.entry.name, given.entry.context_window) == ("out", 900)


def test_a_model_of_another_kind_needs_a_converter(tmp_path: Path) -> None:
    folder = trained(tmp_path / "job")
    with pytest.raises(TrainingError, match=r"needs llama\.cpp's own; name its"):
        export(folder, tmp_path / "out", "gguf", merge=print, to_gguf=of_another_kind)
    assert [path.name for path in tmp_path.iterdir()] == ["job"]
