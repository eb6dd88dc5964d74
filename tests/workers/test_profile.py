"""Profiles: what is measured of a worker, kept in files and told to the conductor."""

from datetime import date
from pathlib import Path

import pytest

from podium_workers.errors import AuthenticationError, ManifestError, RefusedError, WorkerError
from podium_workers.manifest import parse_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Pool
from podium_workers.probes import probes, probes_hash
from podium_workers.profile import (
    Profile,
    cost_of_profile,
    find_profile,
    measure,
    save_profile,
)
from podium_workers.scripted import Line, ScriptedWorker
from podium_workers.worker import Price, Prompt, Usage

DAY = date(2026, 11, 30)
FORMS = ("1, 2, 3, 4, 5", "- fig\n- plum\n- pear")


def asked(prompt: Prompt) -> str:
    return prompt.messages[-1].text


def knows(*skills: str, otherwise: Line = "No idea.") -> ScriptedWorker:
    """A worker that is right at everything that belongs to these skills."""

    def script(prompt: Prompt) -> Line:
        (item,) = [found for found in probes() if found.ask == asked(prompt)]
        right = next(a for a in (*item.answers, *FORMS) if item.is_right(a))
        return right if item.skill in skills else otherwise

    return ScriptedWorker.named("ann", script)


def look_away(done: int, used: Usage) -> None:
    """Nobody watches."""


async def measured(worker: ScriptedWorker, day: date = DAY) -> Profile:
    return await measure(worker, look_away, today=day)


async def described(folder: Path, text: str) -> Pool:
    async with open_pool(
        parse_manifest(text, "the test"),
        env={},
        models_dir=folder,
        state_dir=folder / "engine",
        memory_limit_bytes=2**30,
        notify=lambda text: None,
        profiles=folder,
    ) as pool:
        return pool


async def test_a_profile_says_how_many_of_each_skill_were_right():
    profile = await measured(knows("facts", "format"))
    assert profile.skills == {
        "arithmetic": 0, "facts": 1, "choice": 0, "code": 0, "extraction": 0, "format": 1,
    }  # fmt: skip
    assert (profile.right, len(profile.answered)) == (10, 30)
    assert (profile.measured, profile.probes) == (DAY, probes_hash())
    assert profile.usage.output_tokens > 30


async def test_a_worker_is_asked_each_item_once_by_its_role_and_within_limits():
    card = knows("facts").card.model_copy(update={"role": "Be brief.", "max_output_tokens": 99})
    worker = ScriptedWorker(card, ["Well."])
    await measured(worker)
    assert [asked(prompt) for prompt in worker.seen] == [item.ask for item in probes()]
    assert {prompt.messages[0].text for prompt in worker.seen} == {"Be brief."}
    assert {settings.max_output_tokens for settings in worker.asked} == {99}


async def test_a_refusal_is_a_wrong_answer_and_kept_as_what_it_was():
    profile = await measured(knows("facts", otherwise=RefusedError("I will not.")))
    assert profile.right == 5
    assert profile.answered[0].failure == "I will not."


async def test_a_worker_that_cannot_be_asked_has_no_profile():
    with pytest.raises(WorkerError, match="No key"):
        await measured(knows("facts", otherwise=AuthenticationError("No key.")))


async def test_whoever_watches_is_told_of_progress_and_can_end_it():
    seen: list[tuple[int, int]] = []

    def watch(done: int, used: Usage) -> None:
        seen.append((done, used.output_tokens))
        if done == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        await measure(knows("facts"), watch)
    assert [done for done, _ in seen] == [0, 1, 2, 3]
    assert seen[0][1] == 0 < seen[1][1] < seen[3][1]


async def test_the_line_for_the_conductor_says_strengths_speed_and_price():
    profile = await measured(knows("facts", "extraction"))
    line = profile.good_at(Price(input=3, output=15))
    assert line == (
        "strong at facts, finding things in a text; weak at calculation, multiple choice, "
        "reading code, keeping to a form; about a second or less a reply; "
        "$3 a million tokens read, $15 written"
    )
    assert profile.good_at(Price(input=0, output=0)).endswith("; free")
    assert profile.good_at(None).endswith("; price unknown")
    slow = [answered.model_copy(update={"seconds": 7.4}) for answered in profile.answered]
    assert "about 7 s a reply" in profile.model_copy(update={"answered": slow}).good_at(None)


def kept_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_profiles_are_kept_by_worker_model_and_day_and_the_newest_counts(tmp_path: Path):
    old, new = await measured(knows("facts")), await measured(knows("code"), date(2026, 12, 1))
    paths = {save_profile(tmp_path, profile) for profile in (new, old, old)}
    assert len(paths) == len(kept_in(tmp_path)) == 2
    card = knows("facts").card
    assert find_profile(tmp_path, card) == new
    for other in ({"name": "bob"}, {"model": "another"}, {"kind": "local"}):
        assert find_profile(tmp_path, card.model_copy(update=other)) is None


async def test_names_that_are_no_file_names_are_kept_apart(tmp_path: Path):
    profile = await measured(knows("facts"))
    for model in ("a/b:c*[x]", "a/b:c*[y]", "../../x", "." * 200):
        renamed = profile.model_copy(update={"model": model})
        assert save_profile(tmp_path, renamed).parent == tmp_path
        found = find_profile(tmp_path, knows("facts").card.model_copy(update={"model": model}))
        assert found == renamed


async def test_a_damaged_profile_is_an_error_that_says_what_to_do(tmp_path: Path):
    save_profile(tmp_path, await measured(knows("facts"))).write_text("{}")
    with pytest.raises(
        ManifestError, match=r"delete the file, then .*: podium workers profile ann"
    ):
        find_profile(tmp_path, knows("facts").card)


def test_a_folder_that_is_not_there_holds_no_profile(tmp_path: Path):
    assert find_profile(tmp_path / "none", knows("facts").card) is None


async def test_a_profile_describes_only_a_worker_whose_manifest_does_not(tmp_path: Path):
    profile = await measured(knows("facts"))
    save_profile(tmp_path, profile)
    plain = '[[worker]]\nname = "ann"\nkind = "scripted"\nreplies = ["x"]\n'
    mine = plain + 'good_at = "everything"\n'
    other = plain.replace("ann", "bob")
    assert (await described(tmp_path, plain)).cards[0].good_at == profile.good_at(
        Price(input=0, output=0)
    )
    assert (await described(tmp_path, mine)).cards[0].good_at == "everything"
    assert (await described(tmp_path, other)).cards[0].good_at == ""


def test_the_cost_of_a_profile_is_known_before():
    card = knows("facts").card
    free = cost_of_profile(card)
    assert free is not None
    assert (free.expected, free.worst) == (0, 0)
    assert cost_of_profile(card.model_copy(update={"price": None})) is None
    dear = card.model_copy(update={"price": Price(input=3, output=15), "where": "hosted"})
    cost = cost_of_profile(dear)
    assert cost is not None
    assert 0.02 < cost.expected < 0.06
    assert cost.expected < cost.worst < 1
