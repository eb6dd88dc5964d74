"""The tables of plans and speeds on vLLM."""

from pathlib import Path
from typing import Literal

from podium_lab.bench.vllm_results import Fault, Speed, Written, questions, read, tables


def plan(fault: str = "", *, steps: int = 2, cut_off: bool = False) -> Written:
    return Written(
        model="smollm2",
        form="lists",
        question="Why?",
        text="model_id = [0]",
        readable=not cut_off,
        fault=fault,
        steps=steps,
        cut_off=cut_off,
        seconds=2,
        input_tokens=100,
        cached_tokens=80,
        output_tokens=50,
    )


def speed(by: Literal["http", "podium"], seconds: float) -> Speed:
    return Speed(model="smollm2", form="lists", by=by, seconds=seconds, output_tokens=100)


def test_the_tables_say_what_the_file_holds(tmp_path: Path) -> None:
    measured = (
        plan(),
        plan("access"),
        plan("decode", steps=0, cut_off=True),
        *(speed("http", it) for it in (1, 2, 4)),
        *(speed("podium", it) for it in (2, 2.5, 8)),
        Fault(model="smollm2", what="cancel", seconds=0.2, seen="nothing runs"),
    )
    file = tmp_path / "results.jsonl"
    file.write_text("".join(it.model_dump_json() + "\n" for it in measured))

    told = list(tables(read(file)))

    assert "| smollm2 | lists | 3 | 2 | 1 (access, decode) | 1 | 0, 2, 0, 0, 0 | 50 | 80% |" in told
    assert "| smollm2 | lists | 50.0 | 40.0 | 0.800 |" in told
    assert "- smollm2, cancel: 0.20 s; nothing runs" in told


def test_there_are_fifty_questions_all_of_them_different() -> None:
    assert len(set(questions())) == 50
