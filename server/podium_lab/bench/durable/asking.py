"""What is asked of a Podium under test, such that its provider knows which step a call is for."""

from pydantic import JsonValue


def asking(name: str, parts: int) -> dict[str, JsonValue]:
    """Arguments of a call that asks for a run of so many steps, each of which reads the last."""
    plan: list[JsonValue] = [
        {"worker": "solver", "subtask": f"Do part {part}.", "access": [part - 1] if part else []}
        for part in range(parts)
    ]
    return {"question": f"Work on [{name}].", "plan": plan}


def name_in(question: str) -> str:
    """The name that `asking` gave to a question."""
    return question.partition("[")[2].partition("]")[0]
