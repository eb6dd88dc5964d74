"""`podium train`: looks a job through, runs it, shows it, exports what it trained.

Found by its entry point, so that the server does without it. What needs torch is done in an
environment of its own: the command hands itself over.
"""

from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import cast

import anyio
import click

from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import put
from podium_lab.train.checking import Checked, Count, check, with_stand_ins
from podium_lab.train.config import TINY, Job, job_file, named_job
from podium_lab.train.draws import WHICH, Which
from podium_lab.train.errors import TrainingError
from podium_lab.train.exporting import Form, export
from podium_lab.train.handing_over import HANDED, hand_over, interpreter, is_here, see_learner
from podium_lab.train.items import PARTS, Part
from podium_lab.train.opening import open_ground
from podium_lab.train.records import TRAINED, UNTRAINED, Records
from podium_lab.train.reference import profile
from podium_lab.train.status import status

_FILE = click.Path(path_type=Path)


@click.group(
    epilog="""\b
Examples:
  podium train configs
  podium train check paper_7b_colocate.toml --offline
  podium train grpo tiny.toml
  podium train status runs/tiny
  podium train export runs/tiny trained-conductor"""
)
def train() -> None:
    """Train a conductor: by GRPO, on a pool that is live, recorded or simulated.

    Shipped configurations are listed by `podium train configs`; a name of theirs is taken where no
    such file is found.
    """


@train.command("configs")
def configs_() -> None:
    """List the shipped configurations, with where they lie."""
    folder = Path(str(files("podium_lab.train") / "configs"))
    for path in sorted(folder.glob("*.toml")):
        first = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        put(f"{path.name}: {first}\n    {path}")


@train.command("check")
@click.argument("config", type=_FILE)
@click.option(
    "--offline", is_flag=True,
    help="Take generated items and simulated workers for what lies elsewhere.",
)  # fmt: skip
@click.option("--ask", is_flag=True, help="Let the rollout's workers really be asked, which costs.")
@pass_invocation
@click.pass_context
def check_(
    ctx: click.Context, invocation: Invocation, config: Path, *, offline: bool, ask: bool
) -> None:
    """Look a job through without training: data, prompts, memory, launch line, a first rollout."""
    python = interpreter(invocation.settings)
    if not is_here() and python and HANDED not in invocation.environment:
        hand_over(python, invocation.environment)
    job, replaced = named_job(config), tuple[str, ...]()
    if offline:
        job, replaced = with_stand_ins(job)
    checked = anyio.run(_checked, job, job_file(config), invocation, ask, not offline)
    put("\n".join((*replaced, *checked.lines)))
    for problem in checked.problems:
        say(f"Problem: {problem}")
    if checked.problems:
        ctx.exit(1)


async def _checked(job: Job, file: Path, invocation: Invocation, ask: bool, here: bool) -> Checked:
    async with anyio.TemporaryDirectory(prefix="podium-check-") as folder:
        return await check(
            job, file, invocation.environment, invocation.settings, scratch=Path(folder),
            count=_counter(job, invocation), ask=ask, here=here,
        )  # fmt: skip


def _counter(job: Job, invocation: Invocation) -> Count | None:
    """Counts tokens by the model's own tokenizer, where that is on this machine."""
    if not is_here() or job.model.base == TINY:
        return None
    from podium_lab.train.learner.models import counter

    return counter(job.model.base, invocation.settings.models_dir)


@train.command("profile")
@click.argument("config", type=_FILE)
@click.option("--part", type=click.Choice(PARTS), default="train", show_default=True)
@click.option(
    "--repeats", type=click.IntRange(min=1, max=64), default=1, show_default=True,
    help="Times that each live worker is asked, so that plans meet it at equal spend.",
)  # fmt: skip
@pass_invocation
def profile_(invocation: Invocation, config: Path, *, part: str, repeats: int) -> None:
    """Ask each worker alone about each item, so that regret and gain can be told.

    Costs what the workers cost; replies are kept, and none is paid for twice.
    """
    put(anyio.run(_profiled, named_job(config), invocation, cast("Part", part), repeats))


async def _profiled(job: Job, invocation: Invocation, part: Part, repeats: int) -> str:
    if repeats > 1 and not job.workers.manifest:
        raise TrainingError(
            "--repeats: simulated and recorded workers give the same reply every time; leave it "
            "out, or give a live pool (workers.manifest)."
        )
    environment, settings = invocation.environment, invocation.settings
    async with open_ground(job, environment, settings, repeats=repeats) as ground:
        items = ground.part(part)
        found = await profile(ground, items)
        asked = [item.id for item in items if item.id in found.right]
        name, share = found.best_single(asked)
        any_right = sum(bool(found.right[item]) for item in asked)
    return (
        f"{len(asked)} items: {name or 'nobody'} alone is right on {share:.0%}, some worker on "
        f"{any_right / max(1, len(asked)):.0%} ({ground.label})"
    )


@train.command("grpo")
@click.argument("config", type=_FILE)
@pass_invocation
@click.pass_context
def grpo_(ctx: click.Context, invocation: Invocation, config: Path) -> None:
    """Train, or go on from the newest checkpoint. Exit code 4: a stop rule ended it."""
    job = named_job(config)
    see_learner(invocation.environment, invocation.settings)
    from podium_lab.train.learner.run import run

    ended = run(job, invocation.environment, invocation.settings, say)
    put("\n".join(status(Records(job.folder))))
    if ended.stopped:
        say(f"Stopped: {ended.stopped}")
        ctx.exit(4)


@train.command("trinity")
@click.argument("config", type=_FILE)
@click.option(
    "--compare", "seeds", type=click.IntRange(min=1), metavar="N",
    help="Evolve N heads, and compare them with other ways to one on held-out items.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Open the sealed test part once more.")
@pass_invocation
def trinity_(invocation: Invocation, config: Path, *, seeds: int | None, again: bool) -> None:
    """Evolve a head that chooses worker and role turn by turn, for the strategy trinity.

    Goes on from its checkpoint. Workers and the small model are asked first, each thing once; the
    sealed test part is opened once, at the end.
    """
    from podium_lab.train.trinity.command import evolve_head

    job, environment, settings = named_job(config), invocation.environment, invocation.settings
    here = partial(see_learner, environment, settings)
    put(evolve_head(job, environment, settings, say, learn_here=here, seeds=seeds, again=again))


@train.command("status")
@click.argument("folder", type=_FILE)
@click.option(
    "--follow", is_flag=True,
    help="Go on until the job has ended: redrawn in a terminal, else a line for each iteration.",
)  # fmt: skip
def status_(folder: Path, *, follow: bool) -> None:
    """Show the curves of a job, what it was looked at, and what stopped it."""
    if not follow:
        put("\n".join(status(Records(folder))))
        return
    from rich.console import Console

    from podium_lab.train.following import follow as follow_

    follow_(Records(folder), Console())


@train.command("evaluate")
@click.argument("config", type=_FILE)
@click.option("--part", type=click.Choice(PARTS[1:]), default="test", show_default=True)
@click.option("--untrained", is_flag=True, help="What the model was before any reinforcement.")
@click.option("--items", type=click.IntRange(min=1), help="Items at most; all when not given.")
@click.option("--temperature", type=click.FloatRange(min=0), default=0.0, show_default=True)
@click.option(
    "--pools", type=click.Choice(WHICH), default="whole", show_default=True,
    help="Workers that an item shows: all, fewer as in training, or sets that were kept from it.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Open the sealed test part once more.")
@pass_invocation
def evaluate_(
    invocation: Invocation, config: Path, *, part: str, untrained: bool, items: int | None,
    temperature: float, pools: str, again: bool,
) -> None:  # fmt: skip
    """Look at what a job has trained on the part that is sealed until then."""
    job = named_job(config)
    which = UNTRAINED if untrained else TRAINED
    records = Records(job.folder)
    records.conductor()
    if part == "test" and records.has_looked(which, cast("Which", pools)) and not again:
        raise TrainingError(
            f"{job.folder}: the sealed test part was opened already; use --part validation while "
            "anything is still chosen, or --again."
        )
    see_learner(invocation.environment, invocation.settings)
    from podium_lab.train.learner.testing import evaluate

    evaluate(
        job, invocation.environment, invocation.settings,
        part=cast("Part", part), which=which, items=items, temperature=temperature,
        pools=cast("Which", pools),
    )  # fmt: skip
    put("\n".join(status(records)))


@train.command("prove")
@click.argument("config", type=_FILE)
@click.argument("out", type=_FILE)
@click.option(
    "--seeds", default="0,1,2", show_default=True, metavar="N,N,…",
    help="Seeds of the training; items and workers stay the same.",
)  # fmt: skip
@click.option("--table", "only_table", is_flag=True, help="Run nothing; write what there is.")
@pass_invocation
def prove_(
    invocation: Invocation, config: Path, out: Path, *, seeds: str, only_table: bool
) -> None:
    """Train from several seeds, measure each once on the sealed test part, and write a table.

    OUT holds a job's folder for each seed, and table.md. Typed again it goes on: what is done is
    not done again, and no look at the test part is made twice.
    """
    from podium_lab.train.proof import TABLE, gather, prove
    from podium_lab.train.proof_table import table

    job, chosen = named_job(config), _numbers(seeds)
    if not only_table:
        see_learner(invocation.environment, invocation.settings)
        from podium_lab.train.learner.run import run
        from podium_lab.train.learner.testing import evaluate

        environment, settings = invocation.environment, invocation.settings

        def look(own: Job, which: str, pools: Which) -> None:
            evaluate(
                own, environment, settings,
                part="test", which=which, items=None, temperature=0.0, pools=pools,
            )  # fmt: skip

        prove(
            job, chosen, out,
            train=lambda own: run(own, environment, settings, say), evaluate=look, tell=say,
        )  # fmt: skip
    written = table(gather(job, out), f"podium train prove {config} {out} --seeds {seeds}")
    (out / TABLE).write_text(written, encoding="utf-8")
    put(written)


def _numbers(seeds: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    try:
        return tuple(dict.fromkeys(int(seed) for seed in seeds.split(",")))
    except ValueError:
        raise click.BadParameter(
            f"{seeds!r} is no list of whole numbers; type for example 0,1,2.", param_hint="--seeds"
        ) from None


@train.command("export")
@click.argument("folder", type=_FILE)
@click.argument("out", type=_FILE)
@click.option("--adapter", "form", flag_value="adapter", help="The adapters alone, for LoRA.")
@click.option("--gguf", "form", flag_value="gguf", help="A GGUF file, for the local engine.")
@click.option("--merged", "form", flag_value="merged", default="merged", help="The whole model.")
@click.option(
    "--converter", metavar="FILE",
    help="llama.cpp's convert_hf_to_gguf.py, which other models than Llama's kind need.",
)  # fmt: skip
@pass_invocation
def export_(
    invocation: Invocation, folder: Path, out: Path, *, form: str, converter: str | None
) -> None:
    """Make what a job has trained into a folder to serve, with a model card made from its records.

    FOLDER is the job's own; OUT must not be there yet.
    """

    def merge(trained: Path, base: str, into: Path) -> None:
        see_learner(invocation.environment, invocation.settings)
        from podium_lab.train.learner.export import merge
        from podium_lab.train.learner.models import find_base

        merge(trained, find_base(base, invocation.settings.models_dir), into)

    def to_gguf(trained: Path, file: Path) -> bool:
        see_learner(invocation.environment, invocation.settings)
        from podium_lab.train.learner.to_gguf import to_gguf

        return to_gguf(trained, file)

    done = export(
        folder, out, cast("Form", form), merge=merge, to_gguf=to_gguf, converter=converter
    )
    put(str(done))
