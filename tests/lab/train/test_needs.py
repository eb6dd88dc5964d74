"""What jobs need, reckoned; a disk that is too small is found before anything is trained."""

import json
from pathlib import Path

import pytest

from podium_lab.train.config import Job, read_job
from podium_lab.train.errors import TrainingError
from podium_lab.train.launching import launch_lines, most_at_once, on_one_device
from podium_lab.train.needs import (
    calculates_in_bfloat16,
    check_room,
    lacks_bfloat16,
    needs,
    shape_of,
)

CONFIGS = Path(__file__).parents[3] / "server" / "podium_lab" / "train" / "configs"
NOWHERE = Path("/nowhere")


def _job(name: str) -> Job:
    return read_job(CONFIGS / f"{name}.toml")


def test_the_parameters_of_a_7b_follow_from_its_shape() -> None:
    shape = shape_of("Qwen/Qwen2.5-7B-Instruct", NOWHERE)
    assert shape is not None
    assert shape.parameters == pytest.approx(7.616e9, rel=0.001)
    small = shape_of("Qwen/Qwen2.5-3B-Instruct", NOWHERE)
    assert small is not None
    assert small.parameters == pytest.approx(3.086e9, rel=0.001)


def test_a_shape_is_read_from_a_models_folder(tmp_path: Path) -> None:
    values = {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "tie_word_embeddings": True, "model_type": "llama",
    }  # fmt: skip
    folder = tmp_path / "unpacked" / "small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(values))
    shape = shape_of("small", tmp_path)
    assert shape is not None
    assert shape.parameters == pytest.approx(134.5e6, rel=0.001)
    assert shape.adapter_parameters(16, 8) == 16 * 8 * (2 * (2 * 576 + 768) + 3 * (576 + 1536))
    assert shape_of("other", tmp_path) is None


@pytest.mark.parametrize(
    "name", ["paper_7b_colocate", "paper_7b_server", "eight_gpus", "two_nodes", "lora_24gb"]
)
def test_a_shipped_job_fits_on_the_gpus_that_it_is_for(name: str) -> None:
    job = _job(name)
    shape = shape_of(job.model.base, NOWHERE)
    assert shape is not None
    assert job.launch.device_gb is not None
    assert most_at_once(on_one_device(job, needs(job, shape))) < job.launch.device_gb


def test_bfloat16_is_for_processors_that_have_it() -> None:
    assert lacks_bfloat16("flags : fpu sse2 avx2 avx512f")
    assert not lacks_bfloat16("flags : fpu avx512_bf16 avx2")
    assert not lacks_bfloat16("")
    job = _job("tiny")
    assert not calculates_in_bfloat16(job)
    model = job.model.model_copy(update={"compute": "bfloat16"})
    assert calculates_in_bfloat16(job.model_copy(update={"model": model}))
    assert not calculates_in_bfloat16(_job("lora_24gb")), "a GPU does it there"


def test_launch_lines_name_processes_machines_and_vllm() -> None:
    path = Path("job.toml")
    (one,) = launch_lines(_job("tiny"), path)
    assert one == "podium train grpo job.toml"
    (eight,) = launch_lines(_job("eight_gpus"), path)
    assert "launch/fsdp2.yaml --num_processes 8 -m podium train grpo job.toml" in eight
    vllm, two = launch_lines(_job("two_nodes"), path)
    assert vllm.startswith("VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen2.5-7B-Instruct")
    assert "--num_machines 2 --machine_rank RANK" in two
    assert Path(two.split("--config_file ")[1].split()[0]).is_file()


def test_a_disk_that_is_too_small_for_checkpoints_is_named(tmp_path: Path) -> None:
    shape = shape_of("Qwen/Qwen2.5-7B-Instruct", NOWHERE)
    assert shape is not None
    huge = shape.model_copy(update={"num_hidden_layers": 10_000_000})
    job = _job("paper_7b_colocate").model_copy(update={"folder": tmp_path / "not" / "there"})
    with pytest.raises(TrainingError, match=r"GB free.*make room.*model\.lora_rank"):
        check_room(job, huge)
    assert not (tmp_path / "not").exists()
