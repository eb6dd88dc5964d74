"""The model card of what a job has trained, made from its records alone."""

import json
from collections.abc import Iterator, Sequence

from podium_lab.train.records import TRAINED, Begun, Records
from podium_lab.train.status import mean_length
from podium_lab.train.watch import Step
from podium_workers.trained import TRAINING

LIMITS = {
    "profiled": "Its workers' answers were what they had said when asked alone: it learned whom to "
    "ask, and has seen no step read another.",
    "simulated": "Its workers were simulated: nothing here says how it does with real models.",
    "replay": "Its workers' replies were recorded once and given again; it has met no others.",
    "live": "Its workers answered live while it was trained; they may have changed since.",
}
MEASURES = (
    "Routed right: readable plans that give every skill an item takes to a worker for it. Regret: "
    "how much less often it is right than some worker alone. Gain: how much more often than the "
    "best single worker, asked as often as what plans spend pays for; spend: of a plan, as a "
    "multiple of one such call. All count the workers shown, no others."
)
SHOWN = 12
"""Rows of the table of curves."""


def card(records: Records, *, form: str, workers: Sequence[str]) -> str:
    """The card, in Markdown; *form* says what was exported, *workers* who was planned for.

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
            *_limits(records, begun), "", "## Use", "", *_use(begun, workers), "",
            "## Configuration", "",
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
    yield (
        "| part | when | pools | items | right, 95 % | readable | right of the readable | "
        "routed right | regret | gain | over, asked | spend |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for look in looks:
        step = look.step
        low, high = look.right_between
        yield (
            f"| {look.part} | {records.of(look)} | {look.pools} | {look.items}{look.without} | "
            f"{step.right:.3f} ({low:.3f} to {high:.3f}) | {step.valid:.3f} | "
            f"{step.right_if_valid:.3f} | "
            f"{_or_none(step.routed)} | {_or_none(step.regret)} | {_or_none(step.gain)} | "
            f"{_over(step)} |"
        )
    yield f"\n{MEASURES}"
    for look in looks:
        if look.step.second:
            yield f"\n{look.part}, {records.of(look)}: {look.step.second.told()}."


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


def _over(step: Step) -> str:
    """The single worker that a gain is over, how often it was asked, and what plans spend."""
    if step.spend_ratio is None:
        return " | "
    return f"{step.single}, {step.single_calls} x | {step.spend_ratio:.2f} ({step.spend_unit})"


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
    if not any((it.part, records.of(it)) == ("test", TRAINED) for it in records.looks()):
        yield "- Its records have no look at the sealed test part that is known to be its own."


def _use(begun: Begun, workers: Sequence[str]) -> Iterator[str]:
    asked = begun.job.asked
    rounds = " --rounds 2" if begun.job.recursion else ""
    yield from ("```sh", f'podium ask --conductor THIS/FOLDER{rounds} "…"')
    yield from ("podium config set conductor THIS/FOLDER    # for MCP clients too", "```", "")
    yield (
        f"It writes plans of up to {asked.max_steps} steps and does none of them. `{TRAINING}`, "
        "which Podium reads, says how it is asked, and who its workers were, in their order: "
        f"{', '.join(workers)}. Where a pool has others, each answer says so. A GGUF file is "
        "served by the engine of the local models, any other folder by vLLM."
    )
