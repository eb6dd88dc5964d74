"""Arguments of the tools: names, limits and the words that a calling model reads about them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo


def untitled(schema: JsonDict) -> None:
    """Drop titles that only repeat names: every client pays for them with every list of tools."""
    schema.pop("title", None)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for described in properties.values():
            if isinstance(described, dict):
                described.pop("title", None)


def argument(
    description: str,
    *,
    ge: int | None = None,
    le: int | None = None,
    min_length: int | None = None,
    finite: bool | None = None,
) -> FieldInfo:
    """An argument of a tool, described for the model that fills it.

    A number that may have fractions has to be *finite*: some clients write NaN and Infinity.
    """
    described: FieldInfo = Field(
        description=description, ge=ge, le=le, min_length=min_length,
        allow_inf_nan=False if finite else None,
    )  # fmt: skip
    return described


class PlanStep(BaseModel):
    """One step of a plan of the caller's own."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=untitled)

    worker: Annotated[str, argument("From list_workers, or 'caller': yourself.", min_length=1)]
    subtask: Annotated[str, argument("What it has to do.", min_length=1)]
    access: Annotated[list[int], argument("Steps it may read; the run counts from 0.")] = []


class FileArgument(BaseModel):
    """A text file: its text, or on stdio its path."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=untitled)

    name: Annotated[str, argument("Empty: from the path.")] = ""
    text: Annotated[str, argument("The whole text.")] = ""
    path: Annotated[str, argument("Instead of text.")] = ""


Question = Annotated[str, argument("The whole question; workers see nothing else of you.")]
Files = Annotated[list[FileArgument], argument("Text files that belong to the question.")]
Strategy = Annotated[
    str,
    argument("'conductor' (a model plans), 'single', 'chain'; empty for the setting."),
]
Rounds = Annotated[
    int,
    argument("Plans at most: 2 lets the conductor correct once. 0: setting.", ge=0, le=10),
]
Depth = Annotated[
    int, argument("How deep 'podium' may be its own worker; -1: setting.", ge=-1, le=3)
]
Workers = Annotated[list[str], argument("The only workers allowed; [] for all.")]
Exclude = Annotated[list[str], argument("Workers not allowed.")]
LocalOnly = Annotated[bool, argument("Only workers that run on this machine.")]
ConductorName = Annotated[str, argument("Worker that writes the plan; empty: the pool's.")]
MaxSeconds = Annotated[
    float,
    argument("Limit in seconds of work; then the best answer so far. 0: none.", ge=0, finite=True),
]
MaxUsd = Annotated[float, argument("Limit in US dollars. 0: setting.", ge=0, finite=True)]
MaxTokens = Annotated[int, argument("Limit in tokens. 0: none.", ge=0)]
MaxSteps = Annotated[int, argument("Limit in steps. 0: none.", ge=0)]
AllowUnpriced = Annotated[bool, argument("Let workers of unknown price work under max_usd.")]
CallerJoins = Annotated[
    bool, argument("Let the plan give you steps that only you can do: run tests, look at files.")
]
Approve = Annotated[str, argument("'plan': the user approves plan and price first.")]
Fresh = Annotated[bool, argument("Do not attach to the same question still at work.")]
FollowUp = Annotated[str, argument("run_id of an earlier run that this question follows.")]
RunId = Annotated[str, argument("Id of a run, as results give it.")]
PlanArgument = Annotated[
    list[PlanStep],
    argument("A plan of your own, instead of the conductor's; [] for none."),
]
MaxWait = Annotated[
    float,
    argument("Seconds to wait before handing back a running run. 0: setting.", ge=0, finite=True),
]
