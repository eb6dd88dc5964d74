"""The configuration of a training job: strict TOML; an unknown key is an error that names it."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from podium.errors import SettingsError
from podium.policy.conductor import TRAINED_PROSE
from podium_lab.train.draws import Pools
from podium_lab.train.environment import Rewards
from podium_lab.train.recursion import Recursion
from podium_lab.train.simulated import Skills
from podium_lab.train.tasksets import Taskset
from podium_lab.train.trinity.config import Evolution
from podium_lab.train.watch import StopRules
from podium_workers.asked import MOST_PROSE, Asked, Form, Shows
from podium_workers.worker import Frozen

Dtype = Literal["float32", "bfloat16"]
TINY = "tiny"
"""Base of the model that a job makes itself."""


class Model(Frozen):
    """What is trained."""

    base: str
    """A folder, a name on the hub, one of `podium models list`, or "tiny": a model of under a
    million parameters that is made from the job's own questions, for tests and quick proofs."""
    dtype: Dtype = "float32"
    """What the weights are kept in. Full training at a rate of 1e-6 needs float32: such steps are
    smaller than what bfloat16 can tell apart. So does a processor that has no instructions for
    bfloat16, where it is tens of times slower. On a GPU, bfloat16 halves what adapters stand on."""
    compute: Dtype | None = None
    """What is calculated in; as the weights are kept when not given. On a processor plans are then
    written by a copy of the model that is rounded to it, as a server of its own would."""
    lora_rank: int | None = Field(default=None, ge=1)
    """Rank of LoRA adapters; None trains all weights."""
    lora_alpha: int | None = Field(default=None, gt=0)
    """Twice the rank when not given."""
    lora_layers: int | None = Field(default=None, ge=1)
    """Topmost layers that get adapters; the backward pass ends below them. None means all."""


class PolicyAsked(Asked):
    """How the policy is asked: as a pool's conductor, and in how many tokens."""

    form: Form = "lists"
    shows: Shows = "ordinals"
    max_steps: int | None = Field(default=5, ge=1, le=20)
    context_window: int = Field(default=8192, ge=256)
    """Tokens that the policy's prompt and plan may have together."""

    @property
    def plan_steps(self) -> int:
        """Steps at most in one plan."""
        assert self.max_steps is not None, "a job's file cannot say None"
        return self.max_steps

    @model_validator(mode="after")
    def _shows_the_pools_order(self) -> Self:
        if self.team:
            raise ValueError("team: a training shows the workers in the pool's order; take it out")
        return self

    @model_validator(mode="after")
    def _leaves_prose_to_grpo(self) -> Self:
        if self.prose is not None:
            raise ValueError("prose: a training has it from grpo.prose; take it out")
        return self


class Workers(Frozen):
    """The pool that plans are carried out on: one of manifest, profiled, recorded, simulated."""

    manifest: Path | None = None
    """A pool as it is served, its models answering live: a file, or the name of a shipped one."""
    only: tuple[str, ...] = ()
    """Workers of that pool that may be planned for; all of them when empty."""
    profiled: Path | None = None
    """The folder of a job for which `podium train profile` was run: whatever a step asks, its
    worker answers the item as it did there."""
    recorded: Path | None = None
    """A cassette: its replies are given again."""
    simulated: tuple[Skills, ...] = ()
    """Workers whose skill is set for each kind of item."""
    seed: int = 0
    """Which of their items simulated workers can do."""
    shown: Pools = Field(default_factory=Pools)
    """Which of them each item's policy is shown."""
    parallel: int = Field(default=64, ge=1)
    """Rollouts that are carried out at the same time."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        kinds = ("manifest", "profiled", "recorded", "simulated")
        if len([name for name in kinds if getattr(self, name)]) != 1:
            raise ValueError("give one of manifest, profiled, recorded and simulated")
        return self


class WarmStart(Frozen):
    """Teaches the form of a plan, never the choice: every plan names workers at random."""

    iterations: int = Field(default=30, ge=1)
    batch: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    two_steps: float = Field(default=0.5, ge=0, le=1)
    """Share of plans with two steps; the others have one."""
    second_rounds: float = Field(default=0.5, ge=0, le=1)
    """Share of examples that are second rounds, in a job with [recursion]: half of these accept,
    by lot as well. Their first rounds are carried out, which costs what the workers cost."""
    prompts_too: bool = False
    """Whether the prompts are learned as texts too: a model that cannot read needs it, or it
    collapses to one worker."""


class Grpo(Frozen):
    """GRPO (papers.md 1.6); the defaults are the paper's."""

    iterations: int = Field(default=200, ge=1)
    questions: int = Field(default=4, ge=1)
    """Questions of one iteration."""
    rollouts: int = Field(default=64, ge=2)
    """Plans for each question: a group."""
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=1024, ge=8)
    """Tokens of a plan with its reasoning."""
    learning_rate: float = Field(default=1e-6, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warm_up: float = Field(default=0.03, ge=0, lt=1)
    """Share of the iterations in which the rate rises."""
    clip: float = Field(default=0.2, gt=0)
    kl: float = Field(default=0.0, ge=0)
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo"] = "grpo"
    """How the loss is normalised; unknown for the paper, `grpo` was the library's default then."""
    held: bool = False
    """Whether decoding is held to the grammar of plans, so that only content is learned."""
    prose: int = Field(default=TRAINED_PROSE, ge=0, le=MOST_PROSE)
    """Characters of reasoning that held decoding allows before the lists; the server's number. JSON
    has none before it."""
    batch: int = Field(default=4, ge=1)
    """Rollouts that one device takes at once in the backward pass."""
    vllm: Literal["off", "colocate", "server"] = "off"
    """Where plans are written: by the trainer itself, by vLLM beside it, or by a vLLM server."""
    vllm_url: str = "http://127.0.0.1:8000"
    vllm_memory: float = Field(default=0.35, gt=0, lt=1)
    """Share of each GPU's memory that vLLM takes in `colocate`."""
    vllm_parallel: int = Field(default=1, ge=1)
    """GPUs over which vLLM splits the model in `colocate`."""

    @model_validator(mode="after")
    def _fills_iterations(self) -> Self:
        if (
            self.batch < self.questions * self.rollouts
            and self.questions * self.rollouts % self.batch
        ):
            raise ValueError(
                f"batch: {self.batch} does not divide the {self.questions * self.rollouts} "
                "rollouts of an iteration (questions times rollouts)"
            )
        return self


class Launch(Frozen):
    """On what a job is meant to run: for its launch line and the estimates, nothing else."""

    devices: int = Field(default=1, ge=1)
    """GPUs that train, on all machines together."""
    machines: int = Field(default=1, ge=1)
    device_gb: float | None = Field(default=None, gt=0)
    """Memory of one GPU; None on a processor."""
    spread: Literal["", "fsdp2", "zero3", "zero3_offload"] = ""
    """How weights and optimizer are spread over the devices; the launch file's name."""


class Job(Frozen):
    """A training job."""

    model_config = ConfigDict(populate_by_name=True)

    folder: Path
    """Where checkpoints, records and the trained model are kept."""
    seed: int = 0
    model: Model
    asked: PolicyAsked = Field(default_factory=PolicyAsked)
    workers: Workers
    tasksets: tuple[Taskset, ...] = Field(min_length=1, alias="taskset")
    warm_start: WarmStart | None = None
    grpo: Grpo = Field(default_factory=Grpo)
    launch: Launch = Field(default_factory=Launch)
    trinity: Evolution | None = None
    """Evolves a head for the strategy `trinity` instead; `model.base` then stays as it is."""
    recursion: Recursion | None = None
    """Trains second rounds too. `model.base` is then a conductor that was trained before: the
    folder `model` of its job, or what `podium train export` made of it."""
    rewards: Rewards = Field(default_factory=Rewards)
    stop: StopRules = Field(default_factory=StopRules)
    max_usd: float | None = Field(default=None, gt=0)
    """What the workers of the whole job may cost."""
    rollout_seconds: float = Field(default=600, gt=0)
    """Time for one rollout; then it is dropped."""
    judge_seconds: float = Field(default=60, gt=0)
    """Time for judging one answer; then its rollout is dropped."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Iterations between checkpoints."""
    validate_every: int | None = Field(default=None, ge=1)
    """Iterations between looks at the validation part; None looks at the start and the end."""
    validation_items: int = Field(default=60, ge=1)

    @property
    def group(self) -> int:
        """Rollouts that are measured against each other: of one question, and of one round."""
        return self.grpo.rollouts // 2 if self.recursion else self.grpo.rollouts

    @model_validator(mode="after")
    def _splits_by_round(self) -> Self:
        rollouts = self.grpo.rollouts
        if self.recursion and (rollouts % 2 or rollouts < 4):
            raise ValueError(
                f"grpo.rollouts: with [recursion] half of a group are second rounds; {rollouts} "
                "cannot be split so, give an even number from 4 on"
            )
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.workers.shown.shuffled and self.asked.shows == "ordinals":
            raise ValueError(
                'workers.shown.shuffled needs asked.shows = "cards": where workers are mere '
                "numbers, a number has to stay the same worker"
            )
        if self.grpo.held and self.grpo.vllm != "off" and self.workers.shown.fewest is not None:
            raise ValueError(
                "grpo.held: with grpo.vllm one grammar counts for all questions, so that all must "
                "show the same workers; take out workers.shown.fewest, or set grpo.held = false"
            )
        if self.workers.shown.fewest is not None and self.asked.shows == "ordinals":
            raise ValueError(
                'workers.shown.fewest needs asked.shows = "cards": of fewer workers than all, mere '
                "numbers do not say which ones they are"
            )
        return self


def job_file(named: Path) -> Path:
    """The file that is meant: one that is there, or the shipped one of that name."""
    shipped = Path(str(files("podium_lab.train") / "configs" / named.name))
    plain = not named.exists() and named.parent == Path()
    return shipped if plain and shipped.is_file() else named


def named_job(named: Path) -> Job:
    """The job that a user names; paths of a shipped one count from the working folder.

    Raises:
        SettingsError: the file cannot be read, or something in it is wrong; the text names it.
    """
    file = job_file(named)
    return read_job(file, beside=None if file == named else Path.cwd())


def read_job(path: Path, *, beside: Path | None = None) -> Job:
    """The job that a file describes; its relative paths count from the file's folder, or *beside*.

    Raises:
        SettingsError: the file cannot be read, or something in it is wrong; the text names it.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}.") from None
    try:
        job = Job.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{path}: {_explain(error)}") from None
    return _placed(job, beside or path.parent)


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"{where}: there is no such key; take it out."
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}." if where else f"{message}."


def _placed(job: Job, folder: Path) -> Job:
    """The job with its paths from *folder*, where they are relative."""

    def at(path: Path | None) -> Path | None:
        return path and folder / path.expanduser()

    workers = job.workers.model_copy(
        update={
            "manifest": _pool_at(job.workers.manifest, folder),
            "profiled": at(job.workers.profiled),
            "recorded": at(job.workers.recorded),
        }
    )
    tasksets = tuple(_taskset_at(taskset, folder) for taskset in job.tasksets)
    changes: dict[str, object] = {"workers": workers, "tasksets": tasksets}
    changes["folder"] = folder / job.folder.expanduser()
    beside = folder / job.model.base
    if "/" in job.model.base and beside.is_dir():  # else it counts from the working folder
        changes["model"] = job.model.model_copy(update={"base": str(beside)})
    return job.model_copy(update=changes)


def _pool_at(path: Path | None, folder: Path) -> Path | None:
    """A pool's file from *folder*; a name without a suffix is that of a shipped pool."""
    if path is None or path.suffix:
        return path and folder / path.expanduser()
    file = Path(str(files("podium_workers"))) / "pools" / f"{path}.toml"
    if not file.is_file():
        known = ", ".join(sorted(other.stem for other in file.parent.glob("*.toml")))
        raise SettingsError(
            f"workers.manifest: no pool {str(path)!r} is shipped; there are {known}."
        )
    return file


def _taskset_at(taskset: Taskset, folder: Path) -> Taskset:
    def at(path: str) -> str:
        plain = not path or path.startswith("hub:")
        return path if plain else str(folder / Path(path).expanduser())

    held_out = tuple(map(at, taskset.held_out))
    return taskset.model_copy(update={"path": at(taskset.path), "held_out": held_out})
