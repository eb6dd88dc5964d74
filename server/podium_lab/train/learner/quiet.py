"""Keeps the libraries quiet: what a job says is one line an iteration, and what went wrong."""

import logging
import os
import warnings

import datasets
import transformers


def quiet() -> None:
    """Switch off progress bars, notes and warnings of the libraries in this process."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    for name in ("trl", "peft", "accelerate", "torch", "datasets", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate|datasets)\b")
