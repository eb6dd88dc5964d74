"""What needs torch: models, GRPO on TRL, the warm start. Runs in an environment of its own.

The rest of `train` knows nothing of this folder; it is imported when a job is begun.
"""
