"""A dry run: reads all that a job needs, shows what it will do, and carries one rollout out.

No model is loaded, and no worker is asked that costs anything, unless that is wished.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from podium.config import Settings
from podium.tokens import estimate_tokens
from podium_lab.train.config import Job, Workers
from podium_lab.train.draws import Draw
from podium_lab.train.environment import Score, shuffled
from podium_lab.train.errors import TrainingError
from podium_lab.train.generated import KINDS
from podium_lab.train.items import PARTS, fingerprint
from podium_lab.train.launching import launch_lines, most_at_once, on_one_device
from podium_lab.train.needs import (
    GB,
    Shape,
    calculates_in_bfloat16,
    check_room,
    lacks_bfloat16,
    needs,
    shape_of,
)
from podium_lab.train.opening import Ground, asked_rows, open_ground, training_draws
from podium_lab.train.random_plans import accepting, random_plan, rendered
from podium_lab.train.simulated import Skills
from podium_lab.train.tasksets import Taskset
from podium_workers.manifest import load_manifest
from podium_workers.scripted import ScriptedWorker

SAMPLED = 50
"""Prompts whose tokens are counted."""
STAND_INS = 400
Count = Callable[[str], int]
"""Tokens of a prompt, with all that a chat template adds."""


@dataclass(frozen=True)
class Checked:
    """What a dry run has found."""

    lines: tuple[str, ...]
    problems: tuple[str, ...]
    """What would keep the job from running; sentences."""


async def check(
    job: Job,
    file: Path,
    environment: Mapping[str, str],
    settings: Settings,
    *,
    scratch: Path,
    count: Count | None,
    ask: bool = False,
    here: bool = True,
) -> Checked:
    """Look through a job, leaving nothing but in the folder *scratch*.

    *count* None estimates tokens; with *ask* the rollout's workers are real. The disk counts only
    where the job is to run *here*.

    Raises:
        SettingsError, ManifestError, StoreError, PoolSelectionError: something cannot be used.
    """
    tried = job.model_copy(update={"folder": scratch})
    async with open_ground(tried, environment, settings) as ground:
        drawn = training_draws(ground)
        score, second = await _rollout(ground, drawn[0], ask=ask)
        slow = _slow() if here and calculates_in_bfloat16(job) else ()
        lines = [*_model(job, settings), *slow, "", *_items(ground), "", *_pool(ground, drawn)]
        tokens, prompts = _tokens(ground, drawn, count)
        lines += ["", *prompts, "", *_memory(job, settings), "", "To begin it:"]
        lines += [f"  {line}" for line in launch_lines(job, file)]
        lines += ["", *_told(score, ask=ask)]
        if second:
            lines.append(f"  second round, which accepts: {_earned(second)}")
    problems = [*_too_long(job, tokens), *_no_room(job, settings, here=here)]
    return Checked(tuple(lines), tuple(problems))


def with_stand_ins(job: Job) -> tuple[Job, tuple[str, ...]]:
    """The job with generated items and simulated workers in the place of what lies elsewhere, and
    what was replaced."""
    told: list[str] = []
    changes: dict[str, object] = {}
    if away := [taskset for taskset in job.tasksets if taskset.source != "generated"]:
        own = tuple(taskset for taskset in job.tasksets if taskset.source == "generated")
        stand_in = Taskset(source="generated", count=STAND_INS)
        changes["tasksets"] = (*own, stand_in)
        told.append(f"{', '.join(it.source for it in away)}: {STAND_INS} generated items instead.")
    if names := _away(job):
        skills = tuple(Skills(name=name, by_kind=dict.fromkeys(KINDS, 0.5)) for name in names)
        shown, parallel = job.workers.shown, job.workers.parallel
        changes["workers"] = Workers(simulated=skills, shown=shown, parallel=parallel)
        told.append(f"{', '.join(names)}: simulated workers of these names instead.")
    return job.model_copy(update=changes), tuple(told)


def _away(job: Job) -> tuple[str, ...]:
    """The workers that answer live, or have answered somewhere else."""
    if job.workers.manifest:
        doers = (entry.name for entry in load_manifest(job.workers.manifest).doers)
        return job.workers.only or tuple(doers)
    return (job.workers.only or ("profiled",)) if job.workers.profiled else ()


async def _rollout(ground: Ground, draw: Draw, *, ask: bool) -> tuple[Score, Score | None]:
    """The first question's plan by a policy that draws lots, carried out and judged.

    In a job with second rounds also one that accepts, if there is anything to accept.
    """
    pool = shuffled(ground.pool, draw.workers)
    if ground.label == "live" and not ask:
        scripted = (ScriptedWorker(card, ["stand-in"]) for card in pool.cards)
        pool = replace(pool, workers=tuple(scripted))
    plan = random_plan(draw.workers, random.Random(ground.job.seed), two_steps=1.0)
    if ground.job.asked.plan_steps < len(plan.steps):
        plan = random_plan(draw.workers, random.Random(ground.job.seed), two_steps=0.0)
    text = rendered(plan, draw.workers, ground.job.asked.form)
    environment = ground.environment
    score = await environment.score(text, draw.item, pool)
    before = await environment.outcome(score) if ground.job.recursion else None
    if before is None:
        return score, None
    text = accepting(ground.job.asked.form)
    return score, await environment.score(text, draw.item, pool, before=before)


def _told(score: Score, *, ask: bool) -> Iterator[str]:
    yield "First rollout, its plan drawn by lot (a stand-in for the model):"
    steps = zip(score.workers, score.access, score.subtasks, strict=True)
    for number, (worker, access, subtask) in enumerate(steps):
        reads = f" reads {', '.join(map(str, access))}" if access else ""
        yield f"  step {number}: {worker}{reads}: {subtask}"
    yield f"  {_earned(score)}"


def _earned(score: Score) -> str:
    earned = "dropped" if score.reward is None else f"reward {score.reward:g}"
    return f"{earned}{f': {score.problem}' if score.problem else ''}"


def _model(job: Job, settings: Settings) -> Iterator[str]:
    shape = shape_of(job.model.base, settings.models_dir)
    if shape is None:
        yield f"Model: {job.model.base}; its size is not known here."
        return
    rank = job.model.lora_rank
    trained = shape.adapter_parameters(rank, job.model.lora_layers) if rank else shape.parameters
    how = (
        f"adapters of rank {rank}, {trained / 1e6:,.1f} million" if rank else "all of them trained"
    )
    yield (
        f"Model: {job.model.base}, {shape.parameters / 1e6:,.0f} million parameters "
        f"({shape.num_hidden_layers} layers of width {shape.hidden_size}), {how}"
    )


def _slow() -> Iterator[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if lacks_bfloat16(cpuinfo.read_text() if cpuinfo.exists() else ""):
        yield (
            "Note: this processor has no instructions for bfloat16, and is tens of times slower "
            'with it; set model.dtype = "float32", or launch.device_gb where a GPU will train.'
        )


def _items(ground: Ground) -> Iterator[str]:
    yield "Items:"
    kinds = sorted({item.kind for item in ground.items})
    for kind in kinds:
        counts = (sum(it.kind == kind for it in ground.part(part)) for part in PARTS)
        told = ", ".join(f"{count} {part}" for count, part in zip(counts, PARTS, strict=True))
        yield f"  {kind}: {told}"
    hashes = (f"{part} {fingerprint(ground.part(part))}" for part in PARTS)
    yield f"  hashes: {', '.join(hashes)}"


def _pool(ground: Ground, drawn: tuple[Draw, ...]) -> Iterator[str]:
    grpo = ground.job.grpo
    yield f"Pool ({ground.label}): {', '.join(ground.pool.names)}"
    shown = sorted({len(draw.workers) for draw in drawn})
    yield f"Workers that a question shows: {' or '.join(map(str, shown))}"
    rollouts = grpo.questions * grpo.rollouts
    halves = ", half of them second rounds" if ground.job.recursion else ""
    items = len({draw.item.id for draw in drawn})
    yield (
        f"Rollouts: {grpo.iterations} iterations x {grpo.questions} questions x {grpo.rollouts} "
        f"= {grpo.iterations * rollouts:,}{halves}; different items: {items}"
    )


def _tokens(ground: Ground, drawn: tuple[Draw, ...], count: Count | None) -> tuple[int, list[str]]:
    rows = asked_rows(ground, drawn[:SAMPLED])
    prompts = [row["prompt"][-1]["content"] for row in rows]
    lengths = [(count or estimate_tokens)(prompt) for prompt in prompts]
    how = "counted" if count else "estimated: there is no tokenizer here"
    told = [
        f"Prompts: {min(lengths)} to {max(lengths)} tokens ({how}); plans up to "
        f"{ground.job.grpo.max_tokens}, window {ground.job.asked.context_window}",
        "The first prompt:",
        *(f"  | {line}" for line in prompts[0].splitlines()),
    ]
    return max(lengths), told


def _too_long(job: Job, tokens: int) -> Iterator[str]:
    if tokens + job.grpo.max_tokens > job.asked.context_window:
        yield (
            f"asked.context_window: prompts of {tokens} tokens and plans of {job.grpo.max_tokens} "
            f"do not fit into {job.asked.context_window}; raise it, or lower grpo.max_tokens."
        )


def _memory(job: Job, settings: Settings) -> Iterator[str]:
    shape = shape_of(job.model.base, settings.models_dir)
    if shape is None:
        yield "Memory: not reckoned, since the model's size is not known here."
        return
    reckoned = needs(job, shape)
    parts = on_one_device(job, reckoned)
    yield f"Memory of each of {job.launch.devices} devices, estimated:"
    yield from (f"  {name}: {gb:.1f} GB" for name, gb in parts.items())
    has = f" of {job.launch.device_gb:g} GB" if job.launch.device_gb else ""
    yield f"  most at once: {most_at_once(parts):.1f} GB{has}"
    yield f"Disk: up to {reckoned.disk / GB:.1f} GB in {job.folder}"


def _no_room(job: Job, settings: Settings, *, here: bool) -> Iterator[str]:
    shape: Shape | None = shape_of(job.model.base, settings.models_dir)
    if shape is None:
        return
    most = most_at_once(on_one_device(job, needs(job, shape)))
    if job.launch.device_gb and most > job.launch.device_gb:
        yield (
            f"launch.device_gb: about {most:.0f} GB are needed on each device, and it has "
            f"{job.launch.device_gb:g}; lower grpo.batch or grpo.vllm_memory, spread the job over "
            "more devices, or train adapters only (model.lora_rank)."
        )
    if not here:
        return
    try:
        check_room(job, shape)
    except TrainingError as error:
        yield str(error)
