"""What a job's records show, for a terminal: curves, looks at other items, and how it ended."""

from collections.abc import Iterator, Sequence

from podium_lab.train.curves import WIDTH, curve
from podium_lab.train.records import Learned, Look, Records
from podium_lab.train.trinity import shown as trinity
from podium_lab.train.watch import Step


def status(records: Records, *, width: int = WIDTH) -> Iterator[str]:
    """The records of a job, line by line.

    Raises:
        TrainingError: there is no job in the folder.
    """
    begun, steps = records.begun(), records.steps()
    yield outcome(records)
    yield ""
    if begun.kind == "trinity":
        yield from trinity.shown(records, width)
        return
    if steps:
        yield from _curves(steps, records.lessons(), width)
        yield ""
        yield from _newest(steps[-1])
    for look in records.looks():
        yield _looked(look, records.of(look))
        if look.step.second:
            yield f"  {look.step.second.told()}"
    yield from _problems(records)


def outcome(records: Records) -> str:
    """How far a job is, or how it ended, in a line.

    Raises:
        TrainingError: there is no job in the folder.
    """
    begun, ended = records.begun(), records.ended()
    job = begun.job
    if begun.kind == "trinity":
        done = trinity.how_far(records)
    else:
        done = f"{len(records.steps())} of {job.grpo.iterations} iterations"
    if ended is None:
        how = f"not done: `podium train {begun.kind}` goes on with it"
    else:
        how = f"stopped: {ended.stopped}" if ended.stopped else "done"
    return f"{job.folder}: {job.model.base}, workers {begun.label}, {done}, {how}"


def _curves(steps: Sequence[Step], lessons: Sequence[Learned], width: int) -> Iterator[str]:
    longest = max((length for step in steps for length in step.lengths), default=1)
    rows: list[tuple[str, list[float | None], float, float]] = [
        ("reward", [step.reward for step in steps], 0, 1),
        ("readable", [step.valid for step in steps], 0, 1),
        ("right", [step.right for step in steps], 0, 1),
        ("right if readable", [step.right_if_valid for step in steps], 0, 1),
        ("routed right", [step.routed for step in steps], 0, 1),
        ("routing, bits", [step.entropy for step in steps], 0, _most(steps)),
        ("steps of a plan", [mean_length(step) for step in steps], 1, max(2, longest)),
        ("flat groups", [step.flat_groups for step in steps], 0, 1),
        ("regret", [step.regret for step in steps], -1, 1),
        ("gain", [step.gain for step in steps], -1, 1),
    ]
    taught = [it.entropy for it in lessons]
    rows.append(("policy, nats", taught, 0, max((it or 0 for it in taught), default=1) or 1))
    for name, values, low, high in rows:
        known = [value for value in values if value is not None]
        if known:
            drawn = curve(values, low, high, width)
            yield f"{name:>18}  {known[0]:6.3f} {drawn} {known[-1]:.3f}   ({low:g} to {high:.3g})"


def _most(steps: Sequence[Step]) -> float:
    return max(1.0, *(step.entropy for step in steps))


def mean_length(step: Step) -> float | None:
    """Steps of a plan on the mean; None where none could be read."""
    count = sum(step.lengths.values())
    return sum(n * often for n, often in step.lengths.items()) / count if count else None


def _newest(step: Step) -> Iterator[str]:
    routed = ", ".join(f"{name} {share:.0%}" for name, share in step.routing.items())
    lengths = ", ".join(f"{length}: {count}" for length, count in step.lengths.items())
    cost = "unknown" if step.cost_usd is None else f"${step.cost_usd:.4f}"
    yield f"iteration {step.iteration}: steps go to {routed or 'nobody'}"
    yield f"plans by their steps: {lengths or 'none'}; stock phrases {step.stock:.0%}"
    yield f"dropped {step.dropped} of {step.rollouts}; workers' tokens {step.tokens:,}, cost {cost}"
    if told := measured(step):
        yield f"of the readable plans and against workers alone: {told}"
    if step.second:
        yield step.second.told()


def line(step: Step) -> str:
    """One iteration in one line."""
    lengths = " ".join(f"{length}:{count}" for length, count in step.lengths.items())
    return (
        f"iteration {step.iteration}: reward {step.reward:.3f}, {share(step)}, steps "
        f"{lengths or 'none'}, routing {step.entropy:.2f} bits, {step.dropped} dropped"
    )


def share(step: Step) -> str:
    """What is readable and right, apart; and what is right after a second round."""
    routed = "" if step.routed is None else f", routed {step.routed:.0%}"
    second = f", after round two {step.second.second:.0%}" if step.second else ""
    return (
        f"readable {step.valid:.0%}, right {step.right:.0%} ({step.right_if_valid:.0%} of the "
        f"readable{routed}){second}"
    )


def measured(step: Step) -> str:
    """Routing, regret and gain, as far as they are known; with what a gain was measured at."""
    parts: list[str] = []
    if step.routed is not None:
        parts.append(f"routed right {step.routed:.0%}")
    if step.regret is not None:
        parts.append(f"regret {step.regret:+.3f}")
    if step.gain is not None:
        parts.append(f"gain {step.gain:+.3f} over {step.single or 'the best worker'}{_spend(step)}")
    return ", ".join(parts)


def _spend(step: Step) -> str:
    """How often the single worker was asked, and what plans spend beside it."""
    if step.spend_ratio is None:
        return ""
    times = "once" if step.single_calls == 1 else f"{step.single_calls} times"
    if step.spend_unit == "calls":
        return f" (asked {times}; a plan takes {step.spend_ratio:.1f} calls)"
    unit = "money" if step.spend_unit == "USD" else step.spend_unit
    return f" (asked {times}; a plan takes {step.spend_ratio:.1f} times the {unit} of one call)"


def _looked(look: Look, of: str) -> str:
    step = look.step
    low, high = look.right_between
    pools = "" if look.pools == "whole" else f", {look.pools} pools"
    told = measured(step)
    return (
        f"{look.part}, {of}{pools}: {step.right:.0%} right ({low:.0%} to {high:.0%}) of "
        f"{look.items} items{look.without}, {step.valid:.0%} readable, "
        f"{step.right_if_valid:.0%} of those right{f'; {told}' if told else ''}"
    )


def _problems(records: Records) -> Iterator[str]:
    """What was wrong most often in the newest iteration."""
    rollouts = records.rollouts()
    newest = [it for it in rollouts if it.iteration == rollouts[-1].iteration] if rollouts else []
    texts = [it.problem for it in newest if it.problem]
    for text in sorted(set(texts), key=texts.count, reverse=True)[:3]:
        yield f"{texts.count(text)} of {len(newest)} rollouts: {text[:160]}"
