"""Writes a proof as Markdown that can be kept as it is: what was run, and what came of it."""

from collections.abc import Iterator, Sequence

from podium_lab.bench.scoring import sign_test, wilson
from podium_lab.train.alone import against, routed
from podium_lab.train.card import LIMITS
from podium_lab.train.config import Job
from podium_lab.train.proof import MODELS, Looked, Proof, Ran, only
from podium_lab.train.records import Seen
from podium_lab.train.simulated import Simulation

PARTS_OF_WORK = ("warm start", "iteration", "look")


def table(proof: Proof, command: str) -> str:
    """The whole of it; *command* is what was typed."""
    return "\n".join(
        (
            *_about(proof, command), "", "**Sealed test part, all workers shown**", "",
            *_main(proof), "", *_paired(proof), "", "**By kind of question**", "",
            *_kinds(proof), "", *_pools(proof), *_second(proof), "**What training took**", "",
            *_times(proof.ran), "", *_words(proof), "",
        )
    )  # fmt: skip


def _about(proof: Proof, command: str) -> Iterator[str]:
    begun, job = proof.begun, proof.begun.job
    grpo = job.grpo
    how = f"adapters of rank {job.model.lora_rank}" if job.model.lora_rank else "all weights"
    warm = (
        f"{job.warm_start.iterations} steps that teach the form of a plan, workers named at "
        "random; then "
        if job.warm_start
        else ""
    )
    yield f"**Workers: {begun.label}.** {LIMITS[begun.label]}"
    yield ""
    yield (
        f"`{command}`: {job.model.base}, {how}; {warm}GRPO for up to {grpo.iterations} iterations "
        f"of {grpo.questions} questions x {grpo.rollouts} rollouts"
        f"{', decoding held to the grammar of plans' if grpo.held else ''}. Seeds "
        f"{', '.join(str(ran.seed) for ran in proof.ran)}; items and workers are the same for all."
    )
    yield ""
    yield f"Workers: {_workers(job)}. Items: {_counted(proof)}; test part `{begun.data['test']}`."


def _workers(job: Job) -> str:
    if not job.workers.simulated:
        return ", ".join(job.workers.only) or "all of the pool"
    told = (
        f"{it.name} ({', '.join(f'{kind} {share:g}' for kind, share in it.by_kind.items())})"
        for it in job.workers.simulated
    )
    return "; ".join(told)


def _counted(proof: Proof) -> str:
    counts = proof.begun.counts
    told = (f"{sum(counts[part].values())} {part}" for part in ("train", "validation"))
    return f"{', '.join(told)}, {len(proof.items)} of {sum(counts['test'].values())} test"


def _main(proof: Proof) -> Iterator[str]:
    yield (
        "| seed | model | answers | readable | right, 95 % | right of the readable | routed right "
        "| steps | two steps or more where two skills are needed | where one is | regret | gain |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for ran in proof.ran:
        for name in MODELS:
            own = [it for it in proof.of(name) if it.seed == ran.seed]
            yield _row(proof, str(ran.seed), name, own)
    if len(proof.ran) > 1:
        for name in MODELS:
            yield _row(proof, "all", name, proof.of(name))
    for name, right in _others(proof):
        yield f"| | {name} | {len(right)} | | {_share(right)} | | | | | | | |"


def _row(proof: Proof, seed: str, name: str, looked: Sequence[Looked]) -> str:
    scores = _scores(looked)
    valid = [score for score in scores if score.valid]
    both = {item.id for item in proof.items if len(item.goals) > 1}
    one = {item.id for item in proof.items if len(item.goals) == 1}
    reference = proof.reference
    measured = against(scores, reference) if reference else None
    cells = (
        seed, name, str(len(scores)), _plain([score.valid for score in scores]),
        _share([bool(score.right) for score in scores]),
        _plain([bool(score.right) for score in valid]),
        _number(routed(scores, reference) if reference else None),
        _number(_mean([len(score.workers) for score in valid]), 2),
        _plain([len(score.workers) > 1 for score in valid if score.item in both]),
        _plain([len(score.workers) > 1 for score in valid if score.item in one]),
        _number(measured.regret if measured else None),
        _number(measured.gain if measured else None),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _others(proof: Proof) -> Iterator[tuple[str, list[bool]]]:
    """What workers alone would be right on, and what any plan could be, by item."""
    if single := _single(proof):
        name, calls, right = single
        yield f"best single worker: {name}{f', asked {calls} x' if calls > 1 else ''}", right
    reference = proof.reference
    if reference and (known := [it.id for it in proof.items if it.id in reference.right]):
        yield "best worker alone of each item", [bool(reference.right[item]) for item in known]
    if possible := _possible(proof):
        yield "any plan (oracle)", possible


def _single(proof: Proof) -> tuple[str, int, list[bool]] | None:
    """The best single worker at equal spend with what was trained."""
    reference = proof.reference
    measured = against(_scores(proof.of("trained")), reference) if reference else None
    if reference is None or measured is None or not measured.single:
        return None
    name, calls = measured.single, measured.single_calls
    known = [item.id for item in proof.items if item.id in reference.right]
    return name, calls, [reference.is_right(item, name, calls) for item in known]


def _possible(proof: Proof) -> list[bool]:
    """Whether some worker can do each part of an item; known of simulated ones."""
    workers = proof.begun.job.workers
    simulation = Simulation.of(proof.items, seed=workers.seed)
    return [
        all(
            any(simulation.can(skills, item, place) for skills in workers.simulated)
            for place in range(len(item.goals))
        )
        for item in proof.items
        if workers.simulated and item.goals
    ]


def _paired(proof: Proof) -> Iterator[str]:
    """Sign tests over items; over all seeds, an item counts by its mean."""
    trained = _by_item(proof.of("trained"))
    yield f"- Trained against untrained: {_test(trained, _by_item(proof.of('untrained')))}"
    reference, single = proof.reference, _single(proof)
    if reference and single:
        name, calls, _ = single
        alone = {
            item: float(reference.is_right(item, name, calls))
            for item in trained
            if item in reference.right
        }
        yield f"- Trained against {name} alone: {_test(trained, alone)}"
        best = {item: float(bool(reference.right[item])) for item in alone}
        yield f"- Trained against the best worker alone of each item: {_test(trained, best)}"


def _test(one: dict[str, float], other: dict[str, float]) -> str:
    both = [item for item in one if item in other]
    better = sum(one[item] > other[item] for item in both)
    worse = sum(one[item] < other[item] for item in both)
    return (
        f"better on {better}, worse on {worse} of {len(both)} items; sign test p = "
        f"{sign_test(better, worse):.2g}."
    )


def _kinds(proof: Proof) -> Iterator[str]:
    single = _single(proof)
    names = ["untrained, 95 %", "trained, 95 %", "routed right, trained", "steps, trained"]
    names += [f"{single[0]} alone"] if single else []
    names += ["best worker alone"] if proof.reference else []
    yield f"| kind | items | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(names)}"
    for kind in sorted({item.kind for item in proof.items}):
        part = only(proof, kind)
        trained = _scores(part.of("trained"))
        reference = proof.reference
        cells = [_share([bool(it.right) for it in _scores(part.of(name))]) for name in MODELS]
        cells.append(_number(routed(trained, reference) if reference else None))
        cells.append(_number(_mean([len(it.workers) for it in trained if it.valid]), 2))
        known = [it.id for it in part.items if reference and it.id in reference.right]
        if reference and single:
            cells.append(_plain([reference.is_right(it, *single[:2]) for it in known]))
        if reference:
            cells.append(_plain([bool(reference.right[it]) for it in known]))
        yield f"| {kind} | {len(part.items)} | {' | '.join(cells)} |"


def _pools(proof: Proof) -> Iterator[str]:
    """Pools of fewer workers, such as training has shown and such as it has not."""
    kinds = {it.look.pools for it in proof.looked} - {"whole"}
    if not kinds or proof.reference is None:
        return
    yield "**Fewer workers shown: sets that training drew, and sets that were kept from it**"
    yield ""
    names = "pools | model | sets | answers | readable | right, 95 % | routed right | regret | gain"
    yield f"| {names} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for pools in ("whole", "seen", "unseen"):
        for name in MODELS:
            scores = _scores(proof.of(name, pools))
            measured = against(scores, proof.reference)
            if measured:
                yield (
                    f"| {pools} | {name} | {len({score.shown for score in scores})} | "
                    f"{len(scores)} | {_plain([it.valid for it in scores])} | "
                    f"{_share([bool(it.right) for it in scores])} | "
                    f"{_number(routed(scores, proof.reference))} | {_number(measured.regret)} | "
                    f"{_number(measured.gain)} |"
                )
    yield ""


def _second(proof: Proof) -> Iterator[str]:
    told = [(it, it.look.step.second) for it in proof.looked if it.look.step.second]
    if told:
        yield "**Second rounds**"
        yield ""
        for it, second in told:
            if second:
                yield f"- seed {it.seed}, {it.look.name}, {it.look.pools} pools: {second.told()}."
        yield ""


def _times(ran: Sequence[Ran]) -> Iterator[str]:
    parts = " | ".join(f"{part}, CPU s" for part in PARTS_OF_WORK)
    yield f"| seed | iterations | ended | {parts} | all, CPU s | all, wall minutes |"
    yield f"|---|---|---|{'---|' * len(PARTS_OF_WORK)}---|---|"
    for it in ran:
        cpu: dict[str, float] = dict.fromkeys(PARTS_OF_WORK, 0.0)
        for time in it.times:
            cpu[time.of] = cpu.get(time.of, 0.0) + time.cpu_s
        cells = " | ".join(f"{cpu[of]:.0f}" for of in PARTS_OF_WORK)
        wall = sum(time.wall_s for time in it.times) / 60
        yield (
            f"| {it.seed} | {it.ended.iterations} | {it.ended.stopped or 'as planned'} | {cells} | "
            f"{sum(cpu.values()):.0f} | {wall:.1f} |"
        )


def _words(proof: Proof) -> Iterator[str]:
    measured = against(_scores(proof.of("trained")), proof.reference) if proof.reference else None
    yield (
        "Untrained is the model after its warm start, if it has one. Intervals are Wilson's; those "
        "over all seeds count each seed's answer to the same item by itself, and are a little too "
        "narrow for it; the paired tests count items. Routed right: readable plans that give every "
        "skill an item takes to the worker that has most of it. Regret: how much less often right "
        "than some worker alone on each item. Gain: how much more often than the best single "
        "worker at equal spend."
    )
    if measured:
        yield (
            f"At equal spend here: the single worker was asked {measured.single_calls} x for each "
            f"item; a trained plan spends {measured.spend_ratio:.2f} times what one call of it "
            f"takes ({measured.unit})."
        )
    if dropped := sum(it.dropped for it in proof.looked):
        yield f"Answers that were dropped, since a worker or a judge failed: {dropped}."


def _scores(looked: Sequence[Looked]) -> list[Seen]:
    return [score for it in looked for score in it.scores]


def _by_item(looked: Sequence[Looked]) -> dict[str, float]:
    """How often an item was right, as a share of the seeds."""
    found: dict[str, list[bool]] = {}
    for score in _scores(looked):
        found.setdefault(score.item, []).append(bool(score.right))
    return {item: sum(right) / len(right) for item, right in found.items()}


def _share(flags: Sequence[bool]) -> str:
    if not flags:
        return ""
    low, high = wilson(sum(flags), len(flags))
    return f"{sum(flags) / len(flags):.3f} ({low:.3f} to {high:.3f})"


def _plain(flags: Sequence[bool]) -> str:
    return f"{sum(flags) / len(flags):.3f}" if flags else ""


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"
