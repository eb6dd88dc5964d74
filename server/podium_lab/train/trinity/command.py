"""`podium train trinity`: gathers here, learns where numpy and cma are, says what came of it."""

from collections.abc import Callable, Mapping

import anyio

from podium.config import Settings
from podium.policy.head import load_head
from podium_lab.train.config import Job
from podium_lab.train.trinity.gathering import gather, served

COMPARISON = "comparison.json"
Tell = Callable[[str], None]


def evolve_head(
    job: Job,
    environment: Mapping[str, str],
    settings: Settings,
    tell: Tell,
    *,
    learn_here: Callable[[], None],
    seeds: int | None = None,
) -> str:
    """Evolve the head of a job, or with *seeds* compare so many with other ways; what to print.

    *learn_here* sees to it that what learns can be imported, or does not come back.

    Raises:
        SettingsError, ManifestError, TrainingError: the job cannot be done as it is.
        WorkerError, LimitError: something could not be asked; what was asked is kept.
    """
    gathered = anyio.run(gather, job, environment, settings, tell)
    learn_here()
    from podium_lab.train.learner.trinity_run import compare, run

    lines: list[str] = []
    if seeds is None:
        file = run(job, gathered, tell)
    else:
        found = compare(job, gathered, range(job.seed, job.seed + seeds), tell)
        kept = found.model_dump_json(indent=1)
        (job.folder / COMPARISON).write_text(kept, encoding="utf-8")
        lines += [found.table, ""]
        file = job.folder / f"head-{job.seed}.json"
    played = anyio.run(served, job, environment, settings, load_head(file))
    judged = [one.right for one in played if one.right is not None]
    share = sum(judged) / max(1, len(judged))
    lines += [
        f"Through the server, on {len(judged)} held-out items: {share:.3f} right, "
        f"{len(played) - len(judged)} dropped ({gathered.label}).",
        f"The head is {file}. To serve it: podium config set coordinator {file}",
        'and then: podium ask --strategy trinity "…"',
    ]
    return "\n".join(lines)
