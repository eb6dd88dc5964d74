"""What can go wrong in a training job beyond its configuration."""

from podium.errors import PodiumError


class TrainingError(PodiumError):
    """A job cannot be begun or gone on with; what it has saved so far is whole."""

    code = "training"
