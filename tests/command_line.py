"""The command `podium` as a process of its own, with settings, ledger and pool of its own."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from click.testing import CliRunner
from pydantic import JsonValue

from podium.cli import commands

TIMEOUT_S = 60
PLAN = (
    '{"steps": [{"subtask": "List the facts.", "worker": "hand", "access": []}, '
    '{"subtask": "List the doubts.", "worker": "boss", "access": []}, '
    '{"subtask": "Weigh both.", "worker": "boss", "access": [0, 1]}]}'
)
FACTS = "The facts are these: the first, the second, and the third of them."
POOL = f"""
[[worker]]
name = "boss"
kind = "scripted"
replies = ["The answer is 42."]

[[worker.rule]]
when = "You lead a team"
reply = '{PLAN}'

[[worker.rule]]
when = "the secret word is swordfish"
reply = "The file was read."

[[worker]]
name = "hand"
kind = "scripted"
replies = ["{FACTS}"]
"""

HOSTED = """
[[worker]]
name = "far"
kind = "openai"
model = "some-model"
base_url = "{url}/v1"
"""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> JsonValue:
        return json.loads(self.out)

    @property
    def data(self) -> dict[str, JsonValue]:
        """The JSON object on stdout."""
        return cast("dict[str, JsonValue]", self.json)

    @property
    def rows(self) -> list[dict[str, JsonValue]]:
        """The list of JSON objects on stdout."""
        return cast("list[dict[str, JsonValue]]", self.json)


@dataclass(frozen=True)
class CommandLine:
    """`podium` at home in *folder*."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables beside those that keep it at home."""

    @classmethod
    def scripted(cls, folder: Path) -> "CommandLine":
        """With a pool that answers from a script."""
        made = cls(folder)
        made.pool.write_text(POOL)
        return made

    @property
    def pool(self) -> Path:
        return self.folder / "pool.toml"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def config(self) -> Path:
        return self.folder / "podium.toml"

    def __call__(
        self, *arguments: str, stdin: str | bytes | None = None, within_s: float = TIMEOUT_S
    ) -> Done:
        """Run a command to its end; without *stdin* it has none."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        return finish(self.start(*arguments, piped=given is not None), given, within_s)

    def inside(self, *arguments: str) -> Done:
        """As a call, in the test's own process: quicker, and without stdin."""
        with contextlib.chdir(self.folder):
            runner = CliRunner(env=self.environ)
            ended = runner.invoke(commands.podium, arguments, prog_name="podium")
        assert ended.exception is None or isinstance(ended.exception, SystemExit)
        return _checked(Done(ended.exit_code, ended.stdout, ended.stderr))

    def start(self, *arguments: str, piped: bool = False) -> "subprocess.Popen[bytes]":
        """Start a command that the test will end."""
        return subprocess.Popen(
            self.argv(*arguments),
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environ,
        )

    def redirected(self, redirection: str, *arguments: str) -> Done:
        """Run a command to its end with what a shell does to its streams, such as `>&-`."""
        run = ["sh", "-c", f'exec "$@" {redirection}', "sh", *self.argv(*arguments)]
        process = subprocess.Popen(
            run,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environ,
        )
        return finish(process)

    def write(self, name: str, content: str | bytes) -> str:
        """A file in the folder; its name."""
        (self.folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def newest_run(self) -> str:
        """The id of the run that was asked last."""
        return str(self.inside("runs", "--limit", "1", "--json").rows[0]["run_id"])

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "podium", *arguments]

    @property
    def environ(self) -> dict[str, str]:
        """All that the command sees of the environment."""
        kept = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "COVERAGE_PROCESS_START")
        own = {
            "HOME": str(self.folder),
            "PODIUM_CONFIG": str(self.config),
            "PODIUM_STORE": str(self.ledger),
            "PODIUM_POOL": str(self.pool),
            "PODIUM_MODELS_DIR": str(self.folder / "models"),
            "PODIUM_STATE_DIR": str(self.folder / "engine"),
        }
        return (
            {name: os.environ[name] for name in kept if name in os.environ}
            | own
            | dict(self.environment)
        )


def add_hosted(podium: CommandLine, url: str) -> None:
    """Give the pool a worker `far` behind the provider at *url*."""
    podium.pool.write_text(podium.pool.read_text() + HOSTED.format(url=url))


def use_hosted(podium: CommandLine, url: str) -> None:
    """Leave the pool nobody but that worker."""
    podium.pool.write_text(HOSTED.format(url=url))


def own_plan(*steps: tuple[str, str, list[int]]) -> str:
    """A plan as a user writes it: worker, subtask and access of each step."""
    named = [{"worker": w, "subtask": s, "access": a} for w, s, a in steps]
    return json.dumps({"steps": named})


def finish(
    process: "subprocess.Popen[bytes]", stdin: bytes | None = None, within_s: float = TIMEOUT_S
) -> Done:
    """Wait for a started command to end."""
    out, err = process.communicate(stdin, timeout=within_s)
    return _checked(Done(process.returncode, out.decode(), err.decode()))


def _checked(done: Done) -> Done:
    assert "Traceback" not in done.err, done.err
    assert "\x1b" not in done.out + done.err, "a pipe gets no escape sequences"
    return done
