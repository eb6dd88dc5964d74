"""What every command was given before its own arguments: environment, settings, files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import click

from podium.config import Loaded, Settings, config_file, load_settings
from podium.errors import SettingsError


@dataclass(frozen=True)
class Invocation:
    """Held by click for all commands; settings are read when a command first wants them."""

    environment: Mapping[str, str]
    given: Mapping[str, object]
    """Settings from the command line, by name."""
    config_given: bool = False
    """Whether the settings' file was named on the command line, and so has to be there."""

    def with_given(self, **settings: object) -> "Invocation":
        """This one with further settings from the command line; None is none."""
        given = {name: value for name, value in settings.items() if value is not None}
        return replace(self, given={**self.given, **given})

    @property
    def file(self) -> Path:
        """The settings' file, whether it exists or not."""
        return config_file(self.environment)

    @cached_property
    def loaded(self) -> Loaded:
        """The settings and where each came from.

        Raises:
            SettingsError: a value is wrong, or a file was named that does not exist.
        """
        if self.config_given and not self.file.exists():
            raise SettingsError(
                f"--config: {self.file} does not exist; check the path, or make the file with "
                f"`podium --config {self.file} config set NAME VALUE`."
            )
        return load_settings(self.environment, **self.given)

    @property
    def settings(self) -> Settings:
        return self.loaded.settings


pass_invocation = click.make_pass_decorator(Invocation)
"""Gives a command the `Invocation` as its first argument."""
