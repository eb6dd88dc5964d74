"""Conductors that are given by their paths: what they become, and how they are asked."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.gguf_writer import write_gguf

from podium_workers.asked import Asked
from podium_workers.entries.hosted import VllmEntry
from podium_workers.entries.named import LocalEntry
from podium_workers.errors import ManifestError
from podium_workers.manifest import PoolManifest, parse_manifest
from podium_workers.trained import (
    TRAINING,
    Training,
    conductor_at,
    is_path,
    need_vllm,
    read_training,
    with_conductor,
)

HOW = Training(
    asked=Asked(form="lists", shows="ordinals", prompt="brief", max_steps=2, team=("b", "a")),
    context_window=1024,
    max_tokens=64,
)
POOL = """
[[worker]]
name = "a"
kind = "scripted"
replies = ["a's"]
[[worker]]
name = "b"
kind = "scripted"
replies = ["b's"]
"""
PLANNER = '[[worker]]\nname = "old"\nkind = "scripted"\nreplies = ["x"]\nsteps = false\n'


def pool(top: str = "", more: str = "") -> PoolManifest:
    return parse_manifest(top + POOL + more, "pool.toml")


def export(folder: Path, **files: object) -> Path:
    """A folder as an export leaves it, with these JSON files beside how it was asked."""
    folder.mkdir()
    (folder / TRAINING).write_text(HOW.model_dump_json())
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def refusal(path: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        conductor_at(path)
    return str(caught.value)


@pytest.mark.parametrize("by_file", [True, False])
def test_an_exported_gguf_is_asked_as_it_was_trained(tmp_path: Path, by_file: bool):
    file = write_gguf(export(tmp_path / "mine") / "model.gguf")
    given = conductor_at(file if by_file else file.parent)
    assert isinstance(given.entry, LocalEntry)
    assert (given.entry.name, given.entry.gguf, given.entry.steps) == ("mine", str(file), False)
    assert (given.entry.context_window, given.entry.max_output_tokens) == (1024, 64)
    led = given.leading(pool())
    assert (led.conductor, led.planner) == ("mine", given.entry)
    assert (led.asked.form, led.asked.shows) == ("lists", "ordinals")
    assert (led.asked.prompt, led.asked.max_steps) == ("brief", 2)
    assert led.asked.team == ("b", "a")
    assert [entry.name for entry in led.doers] == ["a", "b"], "the order of strength stays"
    assert given.told.endswith("asked as in its training with b, a")


def test_any_other_gguf_is_prompted_within_the_window_it_was_made_for(tmp_path: Path):
    given = conductor_at(write_gguf(tmp_path / "some model.gguf"))
    assert (given.entry.name, given.training) == ("some-model", None)
    assert given.entry.context_window == 4096, "as the file says"
    led = given.leading(pool('asked.form = "lists"\nasked.shows = "ordinals"\n'))
    assert (led.asked.form, led.asked.shows, led.asked.team) == ("json", "cards", ())


def test_a_window_of_training_is_never_wider_than_the_models(tmp_path: Path):
    folder = export(tmp_path / "mine", config={"max_position_embeddings": 512})
    entry = conductor_at(folder).entry
    assert isinstance(entry, VllmEntry)
    assert (entry.model, entry.context_window, entry.is_own) == (str(folder), 512, True)


@pytest.mark.parametrize(("rank", "flags"), [(16, ()), (24, ("--max-lora-rank", "32"))])
def test_adapters_are_served_beside_their_base(tmp_path: Path, rank: int, flags: tuple[str, ...]):
    said = {"base_model_name_or_path": "maker/model", "r": rank}
    folder = export(tmp_path / "mine", adapter_config=said)
    entry = conductor_at(folder).entry
    assert isinstance(entry, VllmEntry)
    assert (entry.model, entry.served_name) == ("maker/model", "mine")
    assert (entry.lora, entry.flags) == ({"mine": str(folder)}, flags)
    assert entry.context_window == 1024


def test_adapters_without_their_base_are_refused(tmp_path: Path):
    gone = {"base_model_name_or_path": str(tmp_path / "gone")}
    assert "gone, which is not on this machine" in refusal(
        export(tmp_path / "one", adapter_config=gone)
    )
    assert "names no base model" in refusal(export(tmp_path / "two", adapter_config={}))


def test_what_is_no_conductor_is_refused_with_what_to_do(tmp_path: Path):
    assert "there is no such file or folder" in refusal(tmp_path / "gone")
    assert "name what `podium train export` made" in refusal(tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"no model")
    assert "this is not a GGUF file" in refusal(tmp_path / "x.gguf")
    write_gguf(tmp_path / "y.gguf")
    assert "has several models; name one: x.gguf, y.gguf" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "conductor.json: the file: invalid json"),
        (HOW.model_dump_json().replace("brief", "curt"), "asked.prompt: input should be 'full'"),
        (HOW.model_dump_json().replace('"asked"', '"ask"'), "asked: field required"),
    ],
)
def test_a_damaged_account_of_the_training_is_refused(tmp_path: Path, text: str, says: str):
    (tmp_path / TRAINING).write_text(text)
    with pytest.raises(ManifestError) as caught:
        read_training(tmp_path)
    assert says in str(caught.value)
    assert "export the conductor again" in str(caught.value)


def test_its_name_is_nobody_elses(tmp_path: Path):
    file = write_gguf(tmp_path / "podium.gguf")
    assert conductor_at(file).entry.name == "podium-2"
    assert conductor_at(file, taken=["podium-2"]).entry.name == "podium-3"
    assert conductor_at(write_gguf(tmp_path / "..a b.gguf")).entry.name == "a-b"
    assert conductor_at(write_gguf(tmp_path / "模型.gguf")).entry.name == "conductor"


@pytest.mark.parametrize("text", ["./a", "a/b", "~/a", "a.gguf", ".", "/x", "c:\\x"])
def test_a_slash_makes_a_path(text: str):
    assert is_path(text)


@pytest.mark.parametrize("text", ["a", "gpt-4.1", "gguf"])
def test_a_word_is_a_name_first(text: str):
    assert not is_path(text)


def test_a_word_is_a_worker_of_the_pool_before_it_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write_gguf(export(Path("b")) / "model.gguf")
    led, told = with_conductor(pool(), "b")
    assert (led.conductor, led.planner, told) == ("b", None, "b")
    led, told = with_conductor(pool(), "./b")
    assert (led.conductor, led.planner and led.planner.name) == ("b-2", "b-2")
    os.rename("b", "mine")
    assert with_conductor(pool(), "mine")[0].conductor == "mine"
    with pytest.raises(ManifestError, match="'b2' is no worker of this pool, which has a, b, and"):
        with_conductor(pool(), "b2")


def test_a_conductor_by_path_takes_the_place_of_the_manifests_own(tmp_path: Path):
    file = write_gguf(tmp_path / "new.gguf")
    led, _ = with_conductor(pool(more=PLANNER), str(file))
    assert led.names == ("a", "b", "new")


def test_a_worker_by_name_is_not_asked_as_the_trained_one_was(tmp_path: Path):
    trained = pool('asked.form = "lists"\nasked.prompt = "brief"\n', PLANNER)
    led, _ = with_conductor(trained, "b")
    assert (led.names, led.conductor) == (("a", "b"), "b")
    assert (led.asked.form, led.asked.prompt) == ("json", "full")
    assert with_conductor(trained, "old")[0].asked.form == "lists"


def test_a_worker_for_programs_writes_no_plans():
    programs = '[[worker]]\nname = "p"\nkind = "program"\nby = "a"\n'
    with pytest.raises(ManifestError, match="'p' writes programs, not plans"):
        with_conductor(pool(more=programs), "p")


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_it_is_said_what_to_type(tmp_path: Path):
    with pytest.raises(ManifestError) as caught:
        need_vllm(tmp_path / "mine", tmp_path, None)
    assert "mine is a folder for vLLM. vLLM is not installed: make an environment" in str(
        caught.value
    )
    assert "podium train export --gguf" in str(caught.value)


def test_with_vllm_at_most_a_missing_gpu_is_remarked_on(tmp_path: Path):
    python = tmp_path / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert need_vllm(tmp_path, tmp_path, None) in ("", *_NO_GPU)


_NO_GPU = (
    "No GPU is seen on this machine: vLLM may be slow here or not start; a GGUF file (podium "
    "train export --gguf) runs without.",
)
