"""How a job is begun on the machines that it is meant for, and what it takes there."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from podium_lab.train.config import Job
from podium_lab.train.needs import GB, Needs

WORKSPACE = 2.0
"""GB that a GPU needs beside what is reckoned: the driver's own, and what is in flight."""


def launch_file(name: str) -> str:
    """Where the file for accelerate lies that is shipped under *name*."""
    return str(files("podium_lab.train") / "launch" / f"{name}.yaml")


def launch_lines(job: Job, config: Path) -> Iterator[str]:
    """What to type, machine by machine."""
    launch, grpo = job.launch, job.grpo
    if grpo.vllm == "server":
        yield (
            f"VLLM_SERVER_DEV_MODE=1 vllm serve {job.model.base} --max-model-len "
            f'{job.asked.context_window} --weight-transfer-config \'{{"backend":"nccl"}}\' '
            "--logprobs-mode processed_logprobs --max-logprobs -1   # on GPUs of its own, first"
        )
    if launch.devices == 1 and not launch.spread:
        yield f"podium train grpo {config}"
        return
    each = f" --config_file {launch_file(launch.spread)}" if launch.spread else ""
    if launch.machines > 1:
        each += (
            f" --num_machines {launch.machines} --machine_rank RANK --main_process_ip FIRST "
            "--main_process_port 29500"
        )
    where = "   # on each machine, with its RANK from 0" if launch.machines > 1 else ""
    yield (
        f"accelerate launch{each} --num_processes {launch.devices} -m podium train grpo "
        f"{config}{where}"
    )


def on_one_device(job: Job, needs: Needs) -> dict[str, float]:
    """GB that each GPU needs, by what it needs them for; an estimate."""
    launch, grpo = job.launch, job.grpo
    parts = launch.devices if launch.spread else 1
    weights, gradients, optimizer = needs.weights, needs.gradients, needs.optimizer
    if launch.spread == "zero3_offload":  # what is kept in float32 stays in the machine's memory
        weights, gradients, optimizer = weights // 2, gradients // 2, 0
    found = {
        "weights": weights / parts / GB,
        "gradients": gradients / parts / GB,
        "optimizer": optimizer / parts / GB,
        "activations": needs.activations / GB,
        "workspace": WORKSPACE,
    }
    if grpo.vllm == "colocate" and launch.device_gb:
        # It sleeps while the trainer works, and gives its memory back.
        found["vLLM, while plans are written"] = grpo.vllm_memory * launch.device_gb
    elif grpo.vllm == "off":
        found["plans being written"] = needs.writing / parts / GB
    return found


def most_at_once(parts: dict[str, float]) -> float:
    """GB at the worse of the two moments: while plans are written, and while they are learned."""
    writing = sum(gb for name, gb in parts.items() if "plans" in name)
    learning = parts["gradients"] + parts["activations"]
    return parts["weights"] + parts["optimizer"] + parts["workspace"] + max(writing, learning)
