"""The command `podium` as a process: how it ends when something ends it."""

import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.command_line import CommandLine

from podium.cli.commands import Commands
from podium.cli.signals import Stopped

INTERRUPTED = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "podium.cli.commands":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from podium.cli import main
main()
"""


def test_ctrl_c_while_the_program_is_loaded_is_no_failure(podium: CommandLine):
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=podium.environ,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"Stopped.\n")


class Ending(Commands):
    """Has one command, which ends in *error*."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(name="ending")
        self.error = error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        return click.Command(cmd_name, callback=self._end)

    def _end(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (SystemExit(7), 7, ""),
        (Stopped(signal.SIGTERM), 143, "Stopped.\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (OSError("a\x1b[2Jb"), 1, "Error: a\ufffd[2Jb\n"),
    ],
)
def test_an_end_within_the_groups_of_tasks_is_the_end_of_the_process(
    error: BaseException, code: int, told: str
):
    within = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [error])])
    ended = CliRunner().invoke(Ending(within), ["go"])
    assert (ended.exit_code, ended.stdout, ended.stderr) == (code, "", told)


def test_what_nobody_expected_is_not_hidden():
    within = BaseExceptionGroup("outer", [ValueError("a fault")])
    assert CliRunner().invoke(Ending(within), ["go"]).exception is within
