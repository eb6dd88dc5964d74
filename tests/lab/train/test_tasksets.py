"""Tasksets from files: what is read, what is refused and why, and what is never trained on."""

import base64
import gzip
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from podium.errors import SettingsError
from podium_lab.train.config import Job
from podium_lab.train.items import in_part
from podium_lab.train.judging import Judges
from podium_lab.train.opening import load_items
from podium_lab.train.tasksets import Taskset, kept_apart, load
from podium_workers.errors import NotInstalledError
from podium_workers.programs.sandbox import Sandbox


def _file(path: Path, rows: Sequence[Mapping[str, object]]) -> str:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def _sums(count: int) -> list[Mapping[str, object]]:
    return [
        {"id": f"sum/{n}", "problem": f"What is ${n}+{n}$?", "answer": str(2 * n)}
        for n in range(count)
    ]


async def test_math_is_read_from_plain_and_packed_files(tmp_path: Path) -> None:
    for name in ("math.jsonl", "math.jsonl.gz"):
        items = load(Taskset(source="math", path=_file(tmp_path / name, _sums(3))))
        assert [item.id for item in items] == ["math:sum/0", "math:sum/1", "math:sum/2"]
        assert await Judges().is_right(items[2], "So it is \\boxed{4}.")


async def test_choices_are_shuffled_by_a_seed_and_the_letter_follows(tmp_path: Path) -> None:
    rows: list[Mapping[str, object]] = [
        {"id": str(n), "question": f"Q{n}?", "choices": ["right", "b", "c", "d"], "answer": "A"}
        for n in range(40)
    ]
    path = _file(tmp_path / "mmlu.jsonl", rows)
    items = load(Taskset(source="mmlu", path=path))
    assert len({item.answer for item in items}) == 4
    for item in items:
        assert f"({item.answer}) right" in item.question
        assert await Judges().is_right(item, f"The answer is ({item.answer}).")
    assert load(Taskset(source="mmlu", path=path)) == items
    assert load(Taskset(source="mmlu", path=path, seed=1)) != items


def test_free_form_answers_are_judged_as_what_they_are(tmp_path: Path) -> None:
    rows = [{"question": "How many?", "answer": "-1,200.5"}, {"question": "Who?", "answer": "Ada"}]
    items = load(Taskset(source="freeform", path=_file(tmp_path / "f.jsonl", rows)))
    assert [item.judge for item in items] == ["number", "text"]


FREE = '{"question": "How many?", "answer": "1"}'
CHOICES = '{{"question": "Which?", "choices": ["{}", "b"], "answer": "A"}}'


def test_a_row_without_an_id_is_known_by_its_question_and_choices(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text(f"{FREE}\n")
    (alone,) = load(Taskset(source="freeform", path=str(file)))
    file.write_text(FREE.replace("many", "much") + f"\n{FREE}\n{FREE}\n")
    _, again = load(Taskset(source="freeform", path=str(file)))
    assert again == alone
    file.write_text("\n".join(map(CHOICES.format, "acd")))
    items = load(Taskset(source="mmlu", path=str(file)))
    assert len({item.id for item in items}) == 3


def test_the_ids_of_rows_have_several_names(tmp_path: Path) -> None:
    for name in ("id", "unique_id", "task_id", "question_id"):
        rows: list[Mapping[str, object]] = [{name: "a", "question": "?", "answer": "1"}]
        (item,) = load(Taskset(source="math", path=_file(tmp_path / "f.jsonl", rows)))
        assert item.id == "math:a"


def test_tasksets_share_no_id_and_no_item_is_there_twice(tmp_path: Path) -> None:
    rows: list[Mapping[str, object]] = [{"id": "1", "question": "How many?", "answer": "1"}]
    path = _file(tmp_path / "f.jsonl", rows)
    sources = ("math", "freeform", "freeform")
    items = load_items(_job([{"source": source, "path": path} for source in sources]))
    assert {item.id for item in items} == {"math:1", "freeform:1"}
    assert len(items) == 2
    facts = {"source": "generated", "count": 60, "kinds": ["facts"]}
    items = load_items(_job([facts, facts | {"seed": 1}]))
    assert len({item.id for item in items}) == len(items) < 120


def test_an_id_of_two_questions_is_refused(tmp_path: Path) -> None:
    rows: list[Mapping[str, object]] = [
        {"id": "1", "question": question, "answer": "1"} for question in ("How many?", "Who?")
    ]
    paths = [_file(tmp_path / f"{n}.jsonl", [row]) for n, row in enumerate(rows)]
    said = r"'freeform:1' is the id of two questions, 'How many\?' and 'Who\?'; give"
    with pytest.raises(SettingsError, match=said):
        load(Taskset(source="freeform", path=_file(tmp_path / "both.jsonl", rows)))
    with pytest.raises(SettingsError, match=said):
        load_items(_job([{"source": "freeform", "path": path} for path in paths]))


def _job(tasksets: Sequence[Mapping[str, object]]) -> Job:
    values: Mapping[str, object] = {
        "folder": "out",
        "model": {"base": "tiny"},
        "workers": {"simulated": [{"name": "one", "by_kind": {"facts": 1.0}}]},
        "taskset": tasksets,
    }
    return Job.model_validate(values)


def _packed(tests: Sequence[Mapping[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


async def test_programs_are_judged_by_public_and_private_tests(tmp_path: Path) -> None:
    try:
        await Sandbox().check()
    except NotInstalledError as error:
        pytest.skip(str(error))
    public = [{"input": "3\n", "output": "9\n", "testtype": "stdin"}]
    private = [{"input": "5\n", "output": "25\n", "testtype": "stdin"}]
    square = [{"input": "3", "output": "9", "testtype": "functional"}]
    rows: list[Mapping[str, object]] = [
        {"question_id": "a", "question_content": "Square it.",
         "public_test_cases": json.dumps(public), "private_test_cases": _packed(private)},
        {"question_id": "b", "question_content": "Square it.", "starter_code": "class Solution:",
         "public_test_cases": json.dumps(square), "metadata": '{"func_name": "square"}'},
    ]  # fmt: skip
    program, method = load(
        Taskset(source="livecodebench", path=_file(tmp_path / "lcb.jsonl", rows))
    )
    judges = Judges()
    assert await judges.is_right(program, "```python\nprint(int(input()) ** 2)\n```")
    assert not await judges.is_right(program, "```python\nprint(9)\n```")
    solution = "```python\nclass Solution:\n    def square(self, n):\n        return {}\n```"
    assert await judges.is_right(method, solution.format("n * n"))
    assert not await judges.is_right(method, solution.format("n + n"))


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run!",))


def test_packed_tests_cannot_run_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = base64.b64encode(zlib.compress(pickle.dumps(_Evil()))).decode()
    rows = [{"question_content": "?", "private_test_cases": packed}]
    with pytest.raises(SettingsError, match=r"line 1: private_test_cases: cannot be unpacked"):
        load(Taskset(source="livecodebench", path=_file(tmp_path / "l.jsonl", rows)))
    assert capsys.readouterr().out == ""


def test_questions_of_a_held_out_file_are_left_out_by_their_text(tmp_path: Path) -> None:
    held_out = [{"problem": "what is  $3+3$?", "answer": "6"}]
    taskset = Taskset(
        source="math",
        path=_file(tmp_path / "math.jsonl", _sums(5)),
        held_out=(_file(tmp_path / "held.jsonl", held_out),),
    )
    assert [item.id for item in load(taskset)] == [f"math:sum/{n}" for n in (0, 1, 2, 4)]


def test_a_question_that_is_evaluated_is_not_trained_on_under_another_id(tmp_path: Path) -> None:
    items = load(Taskset(source="math", path=_file(tmp_path / "math.jsonl", _sums(50))))
    tested = in_part(items, "test")
    again = tested[0].model_copy(
        update={"id": "again", "part": "train", "question": tested[0].question.upper()}
    )
    assert kept_apart(items) == items
    assert kept_apart([*items, again]) == items


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ('{"question": "?", "answer": "1"}\nnot json\n', r"f.jsonl, line 2: is no JSON"),
        ('{"question": "?"}\n', r"f.jsonl, line 1: answer: Field required"),
        ("", r"f.jsonl: no item is left"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(
    tmp_path: Path, rows: str, problem: str
) -> None:
    (tmp_path / "f.jsonl").write_text(rows)
    with pytest.raises(SettingsError, match=problem):
        load(Taskset(source="freeform", path=str(tmp_path / "f.jsonl")))


def test_a_missing_file_and_a_missing_path_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file; check `path`"):
        load(Taskset(source="math", path=str(tmp_path / "nowhere.jsonl")))
    with pytest.raises(SettingsError, match="'math': `path` is missing"):
        load(Taskset(source="math"))
    with pytest.raises(SettingsError, match="write hub:OWNER/DATASET/FILE"):
        load(Taskset(source="math", path="hub:somebody"))
