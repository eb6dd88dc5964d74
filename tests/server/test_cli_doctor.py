"""`podium doctor` and `podium workers`: what there is, and what to type next."""

from collections.abc import Mapping
from typing import cast

from tests.command_line import CommandLine, Done
from tests.provider_simulator import Answer, Provider

Check = Mapping[str, str]


def checks(done: Done) -> dict[str, Check]:
    found = cast("list[Check]", done.data["checks"])
    return {check["area"]: check for check in found}


def test_a_doctor_sees_what_is_there_and_makes_nothing(podium: CommandLine):
    done = podium("doctor", "--json")

    assert (done.code, done.data["ok"]) == (0, True)
    found = checks(done)
    assert "mcp 2." in found["libraries"]["found"]
    assert found["ledger"]["level"] == "ok"
    assert "made when the first question is asked" in found["ledger"]["found"]
    assert found["workers"]["found"] == "2 workers of 2: boss, hand"
    assert found["model smollm2"]["remedy"] == "podium models pull smollm2"
    assert {path.name for path in podium.folder.iterdir()} == {"pool.toml"}


def test_a_doctor_names_what_is_missing_but_never_a_secret(podium: CommandLine):
    podium.pool.write_text(
        '[[worker]]\nname = "far"\nkind = "openai"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"\n'
        '[[worker]]\nname = "near"\nkind = "local"\ngguf = "/no/such.gguf"\n'
    )
    podium.write("ledger.db", "no database")
    podium.write("podium.toml", "rounds = 99\n")
    sick = CommandLine(podium.folder, {"OPENAI_API_KEY": "sk-very-secret"})

    done = sick("doctor")

    assert done.code == 1
    assert "very-secret" not in done.out + done.err
    assert "keys: OPENAI_API_KEY" in done.out
    for line in (
        "FAIL  worker far: its key is missing: NO_SUCH_KEY is not set",
        "-> export NO_SUCH_KEY=…",
        "FAIL  workers: no worker of the pool can be used",
    ):
        assert line in done.out
    assert "is not a ledger of Podium" in done.out
    assert "'rounds': write a whole number from 1 to 10 (found 99)" in done.out


def test_a_doctor_says_of_the_ledger_what_a_question_would_be_told(podium: CommandLine):
    sentence = f"{podium.folder} is a folder; name a file in it with --store FILE."
    sick = CommandLine(podium.folder, {"PODIUM_STORE": str(podium.folder)})
    assert checks(sick.inside("doctor", "--json"))["ledger"]["found"] == sentence
    assert f"Error: {sentence}" in sick.inside("ask", "q").err


def test_a_doctor_names_a_strategy_that_there_is_not(podium: CommandLine):
    sick = CommandLine(podium.folder, {"PODIUM_STRATEGY": "swarm"})
    done = sick.inside("doctor", "--json")
    assert done.code == 1
    assert "PODIUM_STRATEGY: write one of" in checks(done)["settings"]["found"]


def test_workers_are_listed_with_price_and_health(podium: CommandLine, provider: Provider):
    provider.answers(Answer(document={"data": [{"id": "some-model"}]}))
    podium.pool.write_text(
        f'[[worker]]\nname = "near"\nkind = "openai"\nmodel = "some-model"\n'
        f'base_url = "{provider.url}/v1"\nprice = {{ input = 1.0, output = 2.5 }}\n'
        '[[worker]]\nname = "far"\nkind = "openai"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"\n'
    )

    text = podium("workers")
    assert (text.code, len(text.out.splitlines())) == (0, 5)
    assert "$1 in, $2.5 out" in text.out
    assert "not usable: NO_SUCH_KEY is not set" in text.out

    near, far = podium.inside("workers", "--json").rows
    assert (near["name"], near["healthy"], near["conductor"]) == ("near", True, True)
    assert (far["name"], far["healthy"], far["price"]) == ("far", False, None)
    assert podium.inside("workers", "--no-check", "--json").rows[0]["healthy"] is None


def test_a_doctor_looks_for_the_programs_that_workers_start(podium: CommandLine):
    podium.pool.write_text(
        '[[worker]]\nname = "helper"\nkind = "command"\npreset = "claude"\n'
        '[[worker]]\nname = "shell"\nkind = "command"\ncommand = ["sh"]\n'
        '[[worker]]\nname = "sums"\nkind = "program"\nby = "shell"\n'
    )
    programs = podium.folder / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    bare = CommandLine(podium.folder, {"PATH": str(programs)})

    found = checks(bare.inside("doctor", "--json"))

    assert "Claude Code is not installed" in found["worker helper"]["found"]
    assert "bubblewrap" in found["worker sums"]["found"]
    assert found["workers"]["found"] == "1 worker of 3: shell"
