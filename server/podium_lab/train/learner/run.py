"""A whole job: warm start, a look at held-out items, GRPO, another look, the trained model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState
from anyio.from_thread import start_blocking_portal

from podium.config import Settings
from podium_lab.train.config import TINY, Job
from podium_lab.train.errors import TrainingError
from podium_lab.train.exporting import MODEL
from podium_lab.train.learner import tiny
from podium_lab.train.learner.board import how_to_look, opened_board
from podium_lab.train.learner.evaluate import Looker
from podium_lab.train.learner.grpo import build, newest_checkpoint, score_completions_only
from podium_lab.train.learner.held import Grammars
from podium_lab.train.learner.models import load_model, load_tokenizer, whole_base
from podium_lab.train.learner.quiet import quiet
from podium_lab.train.learner.reward import PlanReward
from podium_lab.train.learner.warm_start import save_whole, warm_start
from podium_lab.train.learner.watching import Tell, Watching
from podium_lab.train.needs import check_room, shape_of
from podium_lab.train.opening import Ground, Place, open_ground
from podium_lab.train.purse import PurseEmptyError
from podium_lab.train.records import Ended, Records
from podium_lab.train.reference import known
from podium_lab.train.stopwatch import Stopwatch
from podium_lab.train.watch import Watch


@dataclass(frozen=True)
class Opened:
    """A job with what it needs before there is a model."""

    reward: PlanReward
    tokenizer: Any

    @property
    def ground(self) -> Ground:
        return self.reward.ground


@contextmanager
def opened(job: Job, environment: Mapping[str, str], settings: Settings) -> Iterator[Opened]:
    """A job's items, pool, ledger and tokenizer; its base is a folder or a name on the hub.

    Raises:
        SettingsError, ManifestError, StoreError: something cannot be used; nothing is half-written.
    """
    quiet()
    state = PartialState()
    place = Place(number=state.process_index, of=state.num_processes)
    opening = open_ground(job, environment, settings, place)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(opening) as found,
    ):
        own = job.model.base == TINY
        with state.main_process_first():
            base = str(tiny.make(found)) if own else whole_base(job, settings.models_dir)
        model = job.model.model_copy(update={"base": base})
        ground = replace(found, job=job.model_copy(update={"model": model}))
        yield Opened(PlanReward(ground, portal), load_tokenizer(base))


def run(job: Job, environment: Mapping[str, str], settings: Settings, tell: Tell) -> Ended:
    """Train, going on from the newest checkpoint if there is one.

    Raises:
        SettingsError, ManifestError, StoreError: something cannot be used; nothing is half-written.
        TrainingError: the job is done, or cannot go on; what was saved is whole.
    """
    records = Records(job.folder)
    records.see_kind("grpo")
    ended = records.ended()
    if ended is not None and not ended.stopped:
        raise TrainingError(
            f"{job.folder}: this job is done; see `podium train status {job.folder}`, or set "
            "another `folder` to begin anew."
        )
    clock = Stopwatch()
    with opened(job, environment, settings) as found:
        check_room(job, shape_of(found.ground.job.model.base, settings.models_dir))
        with PartialState().main_process_first():
            records.begin(job, found.ground.items, found.ground.label)
        with _told(records):
            return _trained(found, records, tell, clock)


@contextmanager
def _told(records: Records) -> Iterator[None]:
    """Failures that a user is told in a sentence."""
    try:
        yield
    except (PurseEmptyError, RuntimeError, OSError, ExceptionGroup) as error:
        if told := _explained(records, _cause(error)):
            raise TrainingError(told) from error
        raise


def _cause(error: BaseException) -> BaseException:
    return _cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _explained(records: Records, cause: BaseException) -> str:
    """What to do about a failure; empty when that is not known."""
    if isinstance(cause, PurseEmptyError):
        return str(cause)
    if isinstance(cause, OSError):
        return (
            f"{records.folder}: {cause}; what was saved before is whole, so see to it and begin "
            "the job again to go on."
        )
    if "probability tensor" in str(cause):
        return (
            "The model's chances are no finite numbers any more; lower grpo.learning_rate and set "
            "another `folder`, or begin the job again to go on from its newest checkpoint."
        )
    return ""


def _trained(found: Opened, records: Records, tell: Tell, clock: Stopwatch) -> Ended:
    ground, tokenizer, state = found.ground, found.tokenizer, PartialState()
    job, checkpoint = ground.job, newest_checkpoint(ground.job.folder)
    score_completions_only()
    model = load_model(job.model)
    vocabulary = model.config.get_text_config().vocab_size
    grammars = Grammars.of(job, tokenizer, vocabulary) if job.grpo.held else None
    watching = _watching(found, records, grammars, tell if state.is_main_process else _silent)
    watching.clock = clock
    watching.tell(how_to_look(job.folder))
    if checkpoint is None:
        watching.tell(f"workers are {ground.label}{', warm start' if job.warm_start else ''}")
        watching.took("opening")
        model = warm_start(found.reward, model, tokenizer)
        watching.took("warm start")
    own = grammars if job.grpo.vllm == "off" else None
    trainer = build(
        ground, model, tokenizer, found.reward, watching,
        grammars=own, processes=state.num_processes,
    )  # fmt: skip
    watching.model = trainer.model
    after = _iteration(checkpoint)
    with opened_board(job.folder, after=after, here=state.is_main_process) as watching.board:
        _go_on(watching, checkpoint)
        watching.took("opening")
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if watching.broken:
            raise TrainingError(f"{watching.broken}; {_how_to_go_on(job)}")
        watching.validate("after", trainer.state.global_step)
    save_whole(trainer, job.folder / MODEL)
    watching.took("saving")
    ended = Ended(iterations=trainer.state.global_step, stopped=watching.stopped)
    if state.is_main_process:
        records.end(ended)
    return ended


def _iteration(checkpoint: Path | None) -> int:
    """The last iteration that a checkpoint holds."""
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


def _watching(found: Opened, records: Records, grammars: Grammars | None, tell: Tell) -> Watching:
    ground = found.ground
    alone = PartialState().num_processes == 1 and ground.job.grpo.vllm == "off"
    return Watching(
        found.reward,
        records,
        Watch(ground.job.stop, workers=len(ground.pool.names)),
        known(ground),
        Looker(found.reward, found.tokenizer, grammars) if alone else None,
        tell,
    )


def _go_on(watching: Watching, checkpoint: Path | None) -> None:
    """Let records and watch be as they were at the checkpoint; without one, begin them."""
    records, state = watching.records, PartialState()
    done = _iteration(checkpoint)
    if state.is_main_process:
        records.cut_behind(done)
    state.wait_for_everyone()
    watching.watch.steps += records.steps()
    if checkpoint is None:
        watching.validate("before", 0)
    else:
        watching.tell(f"going on from iteration {done}")


def _silent(text: str) -> None:
    """For all processes but the first, which speaks for all."""


def _how_to_go_on(job: Job) -> str:
    kept = newest_checkpoint(job.folder)
    if kept is None:
        return "no checkpoint had been written: lower grpo.learning_rate and set another `folder`."
    return (
        f"{kept.name} is whole: begin the job again to go on from there, or lower "
        "grpo.learning_rate and set another `folder`."
    )
