"""Merges adapters into their base, for export."""

from pathlib import Path

from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from podium_lab.train.learner.quiet import quiet


def merge(trained: Path, base: str, out: Path) -> None:
    """Write *base* with the adapters in *trained* merged into it to the new folder *out*."""
    quiet()
    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    merged = PeftModel.from_pretrained(model, trained).merge_and_unload()
    merged.save_pretrained(out)
    AutoTokenizer.from_pretrained(trained).save_pretrained(out)
