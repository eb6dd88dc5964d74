"""The model card of what a job has trained, made from its records alone."""

import json
from collections.abc import Iterator

from podium_lab.bench.scoring import wilson
from podium_lab.train.records import Begun, Records
from podium_lab.train.status import mean_length
from podium_lab.train.watch import Step

LIMITS = {
    "simulated": "Its workers were simulated: nothing here says how it does with real models.",
    "replay": "Its workers' replies were recorded once and given again; it has met no others.",
    "live": "Its workers answered live while it was trained; they may have changed since.",
}
SHOWN = 12
"""Rows of the table of curves."""


def card(records: Records, *, form: str) -> str:
    """The card, in Markdown; *form* says what was exported.

    Raises:
        TrainingError: there is no job in the folder.
    """
    begun = records.begun()
    return "\n".join(
        (
            *_front(begun), "", "# A conductor trained with Podium", "",
            *_about(records, begun, form), "",
            "## Evaluation", "", *_looks(records), "", "## Curves", "",
            *_curves(records.steps()), "", "## Data", "", *_data(begun), "", "## Limits", "",
            *_limits(records, begun), "", "## Use", "", *_use(begun), "", "## Configuration", "",
            "```json", json.dumps(begun.job.model_dump(mode="json"), indent=1), "```", "",
        )
    )  # fmt: skip


def _front(begun: Begun) -> Iterator[str]:
    yield from (
        "---",
        f"base_model: {json.dumps(begun.job.model.base)}",
        "library_name: transformers",
    )
    yield from ("tags: [podium, conductor, grpo]", "---")


def _about(records: Records, begun: Begun, form: str) -> Iterator[str]:
    job, steps, ended = begun.job, records.steps(), records.ended()
    how = (
        "all weights" if job.model.lora_rank is None else f"adapters of rank {job.model.lora_rank}"
    )
    yield (
        f"It writes plans over a pool of models. `{job.model.base}` was trained by GRPO ({how}) "
        f"for {len(steps)} of {job.grpo.iterations} iterations of {job.grpo.questions} questions x "
        f"{job.grpo.rollouts} rollouts, seed {job.seed}. **Workers: {begun.label}.** Here: {form}."
    )
    if job.warm_start:
        yield (
            f"\nBefore, {job.warm_start.iterations} steps taught it the form of a plan, with "
            "workers named at random."
        )
    if ended is None:
        yield "\nThe job was not done when this was exported."
    elif ended.stopped:
        yield f"\nThe job was stopped: {ended.stopped}"


def _looks(records: Records) -> Iterator[str]:
    looks = records.looks()
    if not looks:
        yield "None was made."
        return
    yield "| part | when | items | right, 95 % | readable | right of the readable | regret | gain |"
    yield "|---|---|---|---|---|---|---|---|"
    for look in looks:
        step = look.step
        low, high = wilson(round(step.right * look.items), look.items)
        yield (
            f"| {look.part} | {look.name} | {look.items} | {step.right:.3f} ({low:.3f} to "
            f"{high:.3f}) | {step.valid:.3f} | {step.right_if_valid:.3f} | "
            f"{_or_none(step.regret)} | {_or_none(step.gain)} |"
        )


def _curves(steps: tuple[Step, ...]) -> Iterator[str]:
    yield "| iteration | reward | readable | right | right of these | routing, bits | steps |"
    yield "|---|---|---|---|---|---|---|"
    every = max(1, len(steps) // SHOWN)
    for place in sorted({*range(0, len(steps), every), *range(len(steps))[-1:]}):
        step = steps[place]
        yield (
            f"| {step.iteration} | {step.reward:.3f} | {step.valid:.3f} | {step.right:.3f} | "
            f"{step.right_if_valid:.3f} | {step.entropy:.2f} | {_or_none(mean_length(step))} |"
        )


def _or_none(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _data(begun: Begun) -> Iterator[str]:
    for part, digest in begun.data.items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in begun.counts[part].items())
        yield f"- {part}: {kinds or 'nothing'}; hash `{digest}`"


def _limits(records: Records, begun: Begun) -> Iterator[str]:
    yield f"- {LIMITS[begun.label]}"
    yield "- It knows the workers of its training"
    if begun.job.asked.shows == "ordinals":
        yield "  by their numbers alone: with another pool, or another order, it chooses at random."
    else:
        yield "  by what was said of them; others have to be described likewise."
    if not any(look.part == "test" for look in records.looks()):
        yield "- It was not measured on its sealed test part."


def _use(begun: Begun) -> Iterator[str]:
    asked = begun.job.asked
    yield "In the pool's manifest, behind its workers in their order of training:"
    yield from ("", "```toml", 'conductor = "trained"', f'conductor_form = "{asked.form}"')
    yield from (f'conductor_shows = "{asked.shows}"', f'conductor_prompt = "{asked.prompt}"', "")
    yield from ("[[worker]]", 'name = "trained"', 'kind = "vllm"', 'model = "this folder"', "```")
