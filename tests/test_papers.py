"""What the project says of itself is true: README's commands, packages, layout."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _commands() -> list[str]:
    return re.findall(r"^```sh\n(.*?)\n```$", README, re.MULTILINE | re.DOTALL)


def test_the_readme_begins_with_two_commands_of_one_line_each() -> None:
    main_job, tests = _commands()[:2]
    assert "\n" not in main_job + tests
    assert "podium ask" in main_job
    assert tests.endswith(".ci/check")


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert _commands()[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_tree_in_the_readme_names_files_that_exist() -> None:
    tree = README.rsplit("```text", 1)[1].split("```", 1)[0]
    named = re.findall(r"^ *([\w./-]+?\.(?:py|md|toml|jsonl))(?: |$)", tree, re.MULTILINE)
    known = {path.name for path in ROOT.rglob("*") if ".venv" not in path.parts}
    assert named
    assert {Path(name).name for name in named} <= known


def test_the_source_roots_are_no_packages() -> None:
    assert not (ROOT / "server" / "__init__.py").exists()
    assert not (ROOT / "workers" / "__init__.py").exists()


def test_the_wheel_holds_all_that_the_program_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*command, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("podium-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        packed.extractall(tmp_path / "site")
    assert "podium/prompts/conductor.md" in names
    assert "podium_workers/pools/local.toml" in names
    assert "podium_workers/prices.toml" in names
    assert not any(name.startswith(("server/", "workers/", "tests/")) for name in names)
    # The wheel's own code must run, not the checkout's.
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); "
    code += "import podium, podium.cli; print(podium.__file__)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert str(tmp_path) in done.stdout
