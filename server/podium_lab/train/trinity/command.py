"""`podium train trinity`: gathers here, learns where numpy and cma are, says what came of it."""

from collections.abc import Callable, Mapping, Sequence

import anyio

from podium.config import Settings
from podium.policy.head import load_head
from podium_lab.train.config import Job
from podium_lab.train.environment import Score
from podium_lab.train.errors import TrainingError
from podium_lab.train.records import Ended, Look, Records
from podium_lab.train.trinity.episodes import Episode
from podium_lab.train.trinity.gathering import gather, served, settings_of
from podium_lab.train.trinity.results import COMPARISON
from podium_lab.train.watch import summed

LOOK = "trinity"
"""Under which name a look at the sealed test part is noted."""
Tell = Callable[[str], None]


def evolve_head(
    job: Job,
    environment: Mapping[str, str],
    settings: Settings,
    tell: Tell,
    *,
    learn_here: Callable[[], None],
    seeds: int | None = None,
    again: bool = False,
) -> str:
    """Evolve the head of a job, or with *seeds* compare so many with other ways; what to print.

    The head is tried on the sealed test part, but only the first time, or *again*. *learn_here*
    sees to it that what learns can be imported, or does not come back.

    Raises:
        SettingsError, ManifestError, TrainingError: the job cannot be done as it is, or the test
            part would have to be opened once more.
        WorkerError, LimitError: something could not be asked; what was asked is kept.
    """
    records = Records(job.folder)
    opened = "" if again else _opened(records)
    if opened and seeds is not None:
        raise TrainingError(f"{job.folder}: {opened}")
    gathered = anyio.run(gather, job, environment, settings, tell)
    learn_here()
    from podium_lab.train.learner.trinity_run import compare, run

    found = None
    if seeds is None:
        file = run(job, gathered, tell, models_dir=settings.models_dir)
    else:
        found = compare(
            job, gathered, range(job.seed, job.seed + seeds), tell, models_dir=settings.models_dir
        )
        file = job.folder / f"head-{job.seed}.json"
    lines = [
        f"The head is {file}. To serve it: podium config set coordinator {file}",
        'and then: podium ask --strategy trinity "…"',
    ]
    ended = Ended(iterations=settings_of(job).generations)
    if opened:
        records.end(ended)
        return "\n".join((f"The head was not tried again: {opened}", *lines))
    played = anyio.run(served, job, environment, settings, load_head(file))
    # Noted before anything is shown.
    look = _noted(records, played, settings_of(job).generations)
    told = (
        f"Through the server, on {look.items - look.step.dropped} held-out items: "
        f"{look.step.right:.3f} right, {look.step.dropped} dropped ({gathered.label})."
    )
    if found:
        kept = found.model_dump_json(indent=1)
        (job.folder / COMPARISON).write_text(kept, encoding="utf-8")
        told = f"{found.table}\n\n{told}"
    records.end(ended)
    return "\n".join((told, *lines))


def _opened(records: Records) -> str:
    """That the sealed test part was opened already, and what to type; empty where it was not."""
    looks = [it for it in records.looks() if (it.name, it.part) == (LOOK, "test")]
    if not looks:
        return ""
    return (
        f"the sealed test part was opened already, after {looks[-1].iterations} generations "
        f"({looks[-1].step.right:.3f} right then); type --again to open it once more."
    )


def _noted(records: Records, played: Sequence[Episode], generations: int) -> Look:
    """The look that these episodes are, noted with what became of each."""
    scores = [
        Score(
            item=one.item,
            reward=None if one.right is None else float(one.right),
            valid=bool(one.turns),
            right=one.right,
            workers=tuple(name for name, _ in one.turns),
            problem=one.problem,
            usage=one.usage,
            run_id=one.run_id,
        )
        for one in played
    ]
    step = summed(0, [[score] for score in scores])
    look = Look(
        name=LOOK, part="test", temperature=0.0, items=len(scores), iterations=generations,
        step=step,
    )  # fmt: skip
    records.look(look, scores)
    return look
