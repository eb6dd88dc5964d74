import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest
from tests.carried_weights import CONTENT, PARTS, Carried, make_carried
from tests.hub_simulator import SimulatedHub, run_hub

from podium_workers.errors import ModelFileError
from podium_workers.weights.catalogue import CATALOGUE, Weights, lookup
from podium_workers.weights.package_index import PackageIndex
from podium_workers.weights.pulling import find, is_present, path_of, pull
from podium_workers.weights.sources import CarrierSource, FileSource, HubSource, Progress, Source

NO_PIP = PackageIndex(pip=("this-pip-does-not-exist",))
PULL_AND_WAIT = """
import sys
from pathlib import Path
from podium_workers.weights.catalogue import Weights
from podium_workers.weights.sources import CarrierSource
from podium_workers.weights.pulling import pull

def tell(done, total, source):
    print(done, flush=True)
    if done:
        sys.stdin.read()

weights = Weights.model_validate_json(sys.argv[1])
pull(weights, Path(sys.argv[2]), sources=[CarrierSource()], progress=tell)
"""
DOWNLOAD = """
import sys
from pathlib import Path
from podium_workers.weights.package_index import PackageIndex

PackageIndex(pip=(sys.executable, sys.argv[1])).download("a", "1", Path(sys.argv[2]), print)
"""


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Carried:
    """A fake model, and pip set up for the folder that carries it."""
    made = make_carried(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.index))
    return made


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def hub() -> Generator[SimulatedHub]:
    with run_hub(CONTENT) as simulated:
        yield simulated


@dataclass
class Giving:
    """A source that gives what the test says."""

    contents: list[bytes]
    name: str = "a test"
    needs: int = 0
    fetched: int = 0
    arrived: Event = field(default_factory=Event)
    go_on: Event | None = None

    def offers(self, weights: Weights) -> bool:
        return True

    def space(self, weights: Weights, work: Path) -> int:
        return self.needs

    def fetch(self, weights: Weights, work: Path, progress: Progress) -> Path:
        self.arrived.set()
        if self.go_on is not None:
            assert self.go_on.wait(10)
        content = self.contents[min(self.fetched, len(self.contents) - 1)]
        self.fetched += 1
        (work / "candidate").write_bytes(content)
        return work / "candidate"


class Stopped(Exception):
    pass


def stop_at(share: float) -> Progress:
    def stop(done: int, total: int, source: str) -> None:
        if done >= share * total:
            raise Stopped

    return stop


def test_parts_are_downloaded_and_put_together_but_never_run(
    carried: Carried, models: Path
) -> None:
    seen: list[int] = []

    path = pull(
        carried.weights,
        models,
        sources=[CarrierSource()],
        progress=lambda done, total, source: seen.append(done),
    )

    assert path == models / "fake.gguf"
    assert path.read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)
    assert not (models / ".parts" / "fake").exists()


def test_a_stopped_pull_goes_on_with_the_parts_that_it_has(carried: Carried, models: Path) -> None:
    with pytest.raises(Stopped):
        pull(
            carried.weights,
            models,
            sources=[CarrierSource()],
            progress=stop_at((PARTS - 1) / PARTS),
        )
    assert not path_of(carried.weights, models).exists()
    # What is here already is not asked for again.
    for number in range(PARTS - 1):
        carried.wheel(number).unlink()

    path = pull(carried.weights, models, sources=[CarrierSource()])

    assert path.read_bytes() == CONTENT


def test_a_killed_pull_leaves_parts_and_no_model(carried: Carried, models: Path) -> None:
    weights = carried.weights.model_dump_json()
    command = [sys.executable, "-c", PULL_AND_WAIT, weights, str(models)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as pulling:
        assert pulling.stdout is not None
        assert any(int(line) > 0 for line in pulling.stdout)
        pulling.kill()

    assert list(models.glob("*.gguf")) == []
    assert [part.name for part in (models / ".parts" / "fake").glob("*.whl")] == [
        "fake-part0-1.0.whl"
    ]
    pull(carried.weights, models, sources=[CarrierSource()])
    assert is_present(carried.weights, models)


def test_a_kept_part_that_was_damaged_is_downloaded_again(carried: Carried, models: Path) -> None:
    kept = models / ".parts" / "fake"
    kept.mkdir(parents=True)
    (kept / "fake-part0-1.0.whl").write_bytes(b"rubbish")

    assert pull(carried.weights, models, sources=[CarrierSource()]).read_bytes() == CONTENT


def test_another_wheel_of_that_name_is_refused(carried: Carried, models: Path) -> None:
    carried.wheel(1).write_bytes(carried.wheel(1).read_bytes() + b"more")
    notes: list[str] = []

    with pytest.raises(ModelFileError, match=r"fake-part1 1\.0"):
        pull(carried.weights, models, sources=[CarrierSource()], notify=notes.append)

    assert len(notes) == 2  # asked for twice
    assert not path_of(carried.weights, models).exists()


def test_a_part_that_the_index_lacks_is_named(carried: Carried, models: Path) -> None:
    carried.wheel(2).unlink()

    with pytest.raises(ModelFileError, match="fake-part2"):
        pull(carried.weights, models, sources=[CarrierSource()])


def test_what_arrives_damaged_is_asked_for_once_more(carried: Carried, models: Path) -> None:
    source = Giving([b"damaged", CONTENT])

    assert pull(carried.weights, models, sources=[source]).read_bytes() == CONTENT
    assert source.fetched == 2


def test_after_two_damaged_files_the_next_source_is_tried(carried: Carried, models: Path) -> None:
    bad, good = Giving([b"damaged"], name="the bad one"), Giving([CONTENT])
    notes: list[str] = []

    pull(carried.weights, models, sources=[bad, good], notify=notes.append)

    assert (bad.fetched, good.fetched) == (2, 1)
    assert all("the bad one" in note for note in notes)


def test_without_a_right_file_nothing_gets_the_models_name(carried: Carried, models: Path) -> None:
    with pytest.raises(ModelFileError, match="'fake' could not be pulled"):
        pull(carried.weights, models, sources=[Giving([b"damaged"])])

    assert list(models.glob("*")) == [models / ".parts"]
    assert list((models / ".parts" / "fake").glob("*")) == []


def test_a_damaged_model_is_replaced(carried: Carried, models: Path) -> None:
    models.mkdir()
    path_of(carried.weights, models).write_bytes(bytes(len(CONTENT)))

    assert pull(carried.weights, models, sources=[Giving([CONTENT])]).read_bytes() == CONTENT


def test_a_model_that_is_here_is_not_fetched(carried: Carried, models: Path) -> None:
    source = Giving([CONTENT])
    pull(carried.weights, models, sources=[source])
    pull(carried.weights, models, sources=[source])

    assert source.fetched == 1


def test_a_full_disk_is_told_before_anything_is_fetched(carried: Carried, models: Path) -> None:
    source: Source = CarrierSource(NO_PIP)

    with pytest.raises(ModelFileError, match="models_dir") as caught:
        pull(
            carried.weights,
            models,
            sources=[source],
            free_space=lambda folder: 2 * len(CONTENT) - 1,
        )

    assert str(models) in str(caught.value)


def test_parts_and_whole_file_both_count_as_needed_space(carried: Carried, tmp_path: Path) -> None:
    source = CarrierSource(NO_PIP)
    assert source.space(carried.weights, tmp_path) == 2 * len(CONTENT)

    (tmp_path / "fake-part0-1.0.whl").write_bytes(b"1234")
    assert source.space(carried.weights, tmp_path) == 2 * len(CONTENT) - 4


def test_two_pulls_at_once_fetch_the_file_once(carried: Carried, models: Path) -> None:
    source = Giving([CONTENT], go_on=Event())
    notes: list[str] = []
    paths: list[Path] = []

    def first() -> None:
        paths.append(pull(carried.weights, models, sources=[source]))

    def wait_for_it(note: str) -> None:
        notes.append(note)
        assert source.go_on is not None
        source.go_on.set()

    thread = Thread(target=first)
    thread.start()
    assert source.arrived.wait(10)
    paths.append(pull(carried.weights, models, sources=[source], notify=wait_for_it))
    thread.join()

    assert paths == [models / "fake.gguf"] * 2
    assert source.fetched == 1
    assert len(notes) == 1


def test_the_hub_is_asked_first_and_its_library_downloads(
    carried: Carried, models: Path, hub: SimulatedHub
) -> None:
    seen: list[tuple[int, str]] = []

    path = pull(
        carried.weights,
        models,
        sources=[HubSource(endpoint=hub.url), CarrierSource(NO_PIP)],
        progress=lambda done, total, source: seen.append((done, source)),
    )

    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), "the publisher's repository")
    assert any(request.startswith("GET /nobody/fake/resolve/") for request in hub.requests)


def test_a_hub_with_another_file_is_passed_over(
    carried: Carried, models: Path, hub: SimulatedHub
) -> None:
    hub.content += b"more"

    pull(carried.weights, models, sources=[HubSource(endpoint=hub.url), Giving([CONTENT])])

    assert not any(request.startswith("GET") for request in hub.requests)


def test_a_hub_out_of_reach_is_passed_over_after_one_short_try(
    carried: Carried, models: Path
) -> None:
    source = HubSource(endpoint="http://127.0.0.1:9", reach_within_s=1)
    notes: list[str] = []

    pull(carried.weights, models, sources=[source, Giving([CONTENT])], notify=notes.append)

    assert len(notes) == 1
    assert "cannot be reached" in notes[0]


def test_a_model_without_a_repository_is_not_looked_for_there(carried: Carried) -> None:
    assert not HubSource().offers(carried.weights.model_copy(update={"hub": None}))
    assert not CarrierSource().offers(carried.weights.model_copy(update={"carriers": ()}))


def test_a_file_of_the_users_own_is_taken(carried: Carried, models: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(CONTENT)

    assert pull(carried.weights, models, file=own).read_bytes() == CONTENT
    assert own.exists()


@pytest.mark.parametrize("content", [None, b"too short", bytes(len(CONTENT))])
def test_a_wrong_file_of_the_users_own_is_refused_and_left_alone(
    carried: Carried, models: Path, tmp_path: Path, content: bytes | None
) -> None:
    own = tmp_path / "own.gguf"
    if content is not None:
        own.write_bytes(content)

    with pytest.raises(ModelFileError, match=r"own\.gguf"):
        pull(carried.weights, models, file=own)

    assert own.exists() == (content is not None)
    assert FileSource(own).space(carried.weights, models) == len(CONTENT)


def test_a_folder_that_cannot_be_made_is_named(carried: Carried, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(ModelFileError, match="models_dir"):
        pull(carried.weights, tmp_path / "file" / "models", sources=[Giving([CONTENT])])


def fake_pip(tmp_path: Path, body: str) -> PackageIndex:
    script = tmp_path / "fake_pip.py"
    answer = "import sys\nif '--version' in sys.argv: print('pip 26.0 from here'); sys.exit()\n"
    script.write_text(answer + body)
    return PackageIndex(pip=(sys.executable, str(script)))


def test_a_password_in_the_index_address_is_not_repeated(tmp_path: Path) -> None:
    line = "ERROR: HTTP error 403 while getting https://me:hunter2@index.example/x.whl"
    index = fake_pip(tmp_path, f"print({line!r}); sys.exit(1)")

    with pytest.raises(ModelFileError, match="403") as caught:
        index.download("fake", "1.0", tmp_path / "in", lambda share: None)

    assert "hunter2" not in str(caught.value)


def test_a_silent_pip_can_be_stopped(tmp_path: Path) -> None:
    def stop(share: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        fake_pip(tmp_path, "import signal; signal.pause()").download(
            "fake", "1.0", tmp_path / "in", stop
        )


def test_a_pip_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="this-pip-does-not-exist"):
        NO_PIP.download("fake", "1.0", tmp_path / "in", lambda share: None)


def test_a_pip_that_delivers_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="0 files"):
        fake_pip(tmp_path, "").download("fake", "1.0", tmp_path / "in", lambda share: None)


def test_a_pulled_model_is_found_by_name(tmp_path: Path) -> None:
    weights = lookup("smollm2")
    with path_of(weights, tmp_path).open("wb") as file:
        file.truncate(weights.size)

    assert find("smollm2", tmp_path) == tmp_path / weights.file_name


def test_a_missing_model_is_told_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="podium models pull smollm2"):
        find("smollm2", tmp_path)


def test_a_model_of_the_wrong_size_is_told_with_its_remedy(tmp_path: Path) -> None:
    path_of(lookup("smollm2"), tmp_path).write_bytes(b"GGUF")

    with pytest.raises(ModelFileError, match="podium models pull smollm2"):
        find("smollm2", tmp_path)


def test_any_gguf_file_is_found_by_its_path(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(CONTENT)

    assert find(str(own), tmp_path / "elsewhere") == own


def test_a_file_in_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("GGML is an older form")

    with pytest.raises(ModelFileError, match="GGUF"):
        find(str(tmp_path / "notes.txt"), tmp_path)


def test_neither_name_nor_file_lists_the_names(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"qwen-1\.5b, qwen-0\.5b, smollm2"):
        find(str(tmp_path / "absent.gguf"), tmp_path)
    with pytest.raises(ModelFileError, match=r"qwen-1\.5b, qwen-0\.5b, smollm2"):
        lookup("gpt-4")


def test_pip_cannot_read_what_a_client_says_to_podium(tmp_path: Path) -> None:
    pip = tmp_path / "pip.py"
    pip.write_text("import sys; open(__file__ + '.read', 'a').write(sys.stdin.read())")
    command = [sys.executable, "-c", DOWNLOAD, str(pip), str(tmp_path / "incoming")]

    subprocess.run(command, input=b"a message of the client", capture_output=True, check=False)

    assert (tmp_path / "pip.py.read").read_text() == ""


def test_the_catalogue_is_consistent() -> None:
    assert [len(weights.carriers) for weights in CATALOGUE] == [22, 6, 1]
    assert len({weights.name for weights in CATALOGUE}) == len(CATALOGUE)
    digests = [carrier.sha256 for weights in CATALOGUE for carrier in weights.carriers]
    assert len(set(digests)) == len(digests)
    assert all(weights.hub and weights.notice for weights in CATALOGUE)
