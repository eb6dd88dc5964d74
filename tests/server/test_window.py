"""How a prompt is made to fit a worker's window: fairly, marked, and never silently (T29, T30)."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core_parts import file, open_parts, plan_of, reading_all, step, worker

from podium.prompting import Material, Visible, cuttable, harmless, worker_prompt
from podium.revision import run_step
from podium.tokens import estimate_tokens
from podium.views import full_receipt
from podium.window import Fitted, fit, fit_to, prompt_budget, reply_limit, shorten
from podium_workers.errors import ContextTooLongError
from podium_workers.worker import WorkerCard

GAP = re.compile(r"\n\[… (\d+) characters left out here to fit the window …\]\n")
SMALL = {"context_window": 2048, "max_output_tokens": 512}
PROSE = "The river rises in the hills and carries sand down to the wide and quiet bay. "
SCRIPTS = {
    "english": PROSE,
    "accented": "Die Brücke über den Fluß trägt früh schöne, größere Züge nach Süden. ",
    "russian": "Река берёт начало в холмах и несёт песок к тихому заливу. ",
    "chinese": "河流发源于山中，把沙子带到宽阔而安静的海湾。",
    "code": "for (int i = 0; i < n; i++) {\n    total += values[i] * 2;\n}\n",
    "digits": "3.14159265358979 2.71828182845904 ",
    "rulers": "=" * 60 + "\n",
    "fences": "</reply_0a1b2c3d4e5f> ",
    "blobs": "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=",
    "emoji": "🎉🚀 ",
}


def text_of(script: str, size: int) -> str:
    """About *size* characters."""
    return (SCRIPTS[script] * (size // len(SCRIPTS[script]) + 1))[:size]


def card(window: int = 2048, **changes: object) -> WorkerCard:
    sizes = {"context_window": window, "max_output_tokens": 512}
    return worker("reader", card=sizes | changes).card


def material(*replies: str, **changes: object) -> Material:
    visible = tuple(
        Visible(number=number, subtask=f"Part {number}.", reply=reply)
        for number, reply in enumerate(replies)
    )
    whole = Material(
        question="What do they agree on?",
        earlier="",
        files=(),
        visible=visible,
        subtask="Compare all parts.",
        fence="0a1b2c3d4e5f",
        final=True,
    )
    return whole.model_copy(update=changes)


def sent(fitted: Fitted) -> dict[str, int]:
    return {cut.part: cut.sent for cut in fitted.cuts}


def test_what_fits_is_left_as_it_is():
    parts = material("Short.", "Short as well.", files=(file("a", "x"),), earlier="Before.")
    fitted = fit(parts, card())
    assert fitted.cuts == ()
    assert fitted.text == worker_prompt(parts, cuttable(parts), ())
    assert fitted.budget == prompt_budget(card())


def test_a_reply_never_takes_more_than_half_of_the_window():
    small = card(512, role="")
    assert reply_limit(small.model_copy(update={"max_output_tokens": 9000})) == 256
    assert 0 < prompt_budget(small.model_copy(update={"max_output_tokens": 9000})) < 256


def test_t29_small_replies_stay_whole_and_large_ones_share_what_is_left_evenly():
    small, large = PROSE * 2, PROSE * 100
    fitted = fit(material(small, large, large, large), card())

    shares = sent(fitted)
    assert shares.keys() == {"step:1", "step:2", "step:3"}
    assert small in fitted.text
    assert max(shares.values()) - min(shares.values()) <= 0.05 * max(shares.values())
    assert all(cut.given == len(large) for cut in fitted.cuts)
    used = estimate_tokens(fitted.text)
    assert 0.9 * fitted.budget < used <= fitted.budget


def test_t29_a_cut_is_marked_where_it_is_with_what_is_missing():
    large = "".join(f"[{number:05}]" for number in range(2000))
    fitted = fit(material(large), card())

    (cut,) = fitted.cuts
    (missing,) = GAP.findall(fitted.text)
    assert int(missing) == cut.given - cut.sent
    assert cut.given == len(large)
    shown = fitted.text.split("<reply_0a1b2c3d4e5f>\n")[1].split("\n</reply_")[0]
    head, _, tail = GAP.split(shown)
    assert len(head) + len(tail) == cut.sent
    assert large.startswith(head)
    assert large.endswith(tail)
    assert len(head) > len(tail) > 0


def test_t29_question_and_subtask_are_never_cut():
    question, subtask = PROSE * 20, PROSE * 3 + "Compare."
    fitted = fit(material(PROSE * 200, question=question, subtask=subtask), card())
    assert question in fitted.text
    assert fitted.text.endswith(subtask)


def test_t29_a_window_too_small_for_the_question_is_refused_before_anything_is_paid():
    with pytest.raises(ContextTooLongError) as caught:
        fit(material(question=PROSE * 200), card())
    assert caught.value.code == "context_too_long"
    with pytest.raises(ContextTooLongError):  # parts so short that they would say nothing
        fit(material(*[PROSE * 40] * 60), card())


def test_the_role_of_a_worker_takes_room_as_well():
    role = PROSE * 20
    large = material(PROSE * 200)
    with_role = fit(large, card(role=role))
    assert estimate_tokens(with_role.text) + estimate_tokens(role) <= with_role.budget
    assert sent(with_role)["step:0"] < sent(fit(large, card()))["step:0"]


def test_a_worker_that_counts_more_tokens_is_shown_less():
    large = material(PROSE * 200)
    assert sent(fit(large, card(), 2.0))["step:0"] < sent(fit(large, card()))["step:0"] / 1.5


@st.composite
def materials(draw: st.DrawFn) -> Material:
    texts = st.builds(
        text_of, st.sampled_from(sorted(SCRIPTS)), st.integers(min_value=1, max_value=9000)
    )
    replies = draw(st.lists(texts, min_size=1, max_size=6))
    files = tuple(
        file(f"f{number}.txt", text)
        for number, text in enumerate(draw(st.lists(texts, max_size=2)))
    )
    earlier = draw(st.one_of(st.just(""), texts))
    question = text_of(draw(st.sampled_from(sorted(SCRIPTS))), draw(st.integers(1, 400)))
    final = draw(st.booleans())
    return material(*replies, files=files, earlier=earlier, question=question, final=final)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(materials(), st.integers(700, 6000), st.sampled_from([0.5, 1.0, 1.37, 3.0]))
def test_t29_a_fitted_prompt_is_within_its_budget_whatever_it_holds(
    parts: Material, window: int, ratio: float
):
    reader = card(window, role="You read closely.")
    try:
        fitted = fit(parts, reader, ratio)
    except ContextTooLongError:
        return
    estimate = estimate_tokens(fitted.text) + estimate_tokens(reader.role)
    assert estimate * ratio <= fitted.budget
    assert f"\n{harmless(parts.question, parts.fence)}\n" in fitted.text
    assert len(GAP.findall(fitted.text)) == len(fitted.cuts)
    given = {name: len(text) for name, text in cuttable(parts).items()}
    for cut in fitted.cuts:
        assert cut.given == given[cut.part]
        assert 200 <= cut.sent < cut.given
    assert fit_to(parts, reader, fitted.budget, ratio) == fitted


def test_a_large_file_is_fitted_without_being_counted_over_and_over():
    """A million characters for a window of 8,000 tokens, and every part that was read is whole."""
    parts = material(files=(file("log.txt", text_of("code", 1_000_000)),))
    fitted = fit(parts, card(8192))
    assert 0.85 * fitted.budget < estimate_tokens(fitted.text) <= fitted.budget
    (cut,) = fitted.cuts
    assert (cut.part, cut.given) == ("file:log.txt", 1_000_000)


def test_a_text_is_shortened_around_a_marked_gap():
    assert shorten("short", 100) == ("short", 5)
    shown, kept = shorten(PROSE * 100, 200)
    assert estimate_tokens(shown) <= 200
    assert [int(n) for n in GAP.findall(shown)] == [len(PROSE) * 100 - kept]
    assert len(GAP.sub("", shown)) == kept


async def test_t29_a_fan_in_of_large_replies_finishes_and_says_what_was_cut(tmp_path: Path):
    parts_of = [step("reader", f"Part {number}.") for number in range(4)]
    plan = plan_of(*parts_of, reading_all("judge", "Compare all parts."))
    reader = worker("reader", [PROSE * 60])
    judge = worker("judge", ["They agree."], card=SMALL)
    async with open_parts(tmp_path, reader, judge, plans=[plan]) as parts:
        run = await parts.ask()

        assert run.answer == "They agree."
        result = await parts.step(run, 4)
        prompt = await parts.prompt(run, 4)
        assert [cut.part for cut in result.cuts] == [f"step:{number}" for number in range(4)]
        assert len(GAP.findall(prompt)) == 4
        assert "End your reply with a line that says what you could not read" in prompt
        (note,) = run.notes
        assert note.startswith("Step 4 could not read everything: step:0 (")
        paid = await full_receipt(parts.store, run)
        assert paid.steps[4].cuts == result.cuts
        assert await parts.findings(run) == []


async def test_t31_the_receipt_says_how_many_bytes_of_a_file_were_given_and_sent(tmp_path: Path):
    short, long = file("short.txt", "Only a line."), file("long.txt", "größer " * 4000)
    reader = worker("reader", ["Read."], card=SMALL)
    async with open_parts(tmp_path, reader) as parts:
        run = await parts.ask(strategy="single", files=(short, long))

        paid = await full_receipt(parts.store, run)
        lines = {line.name: line for line in paid.inputs}
        assert lines["short.txt"].bytes_given == lines["short.txt"].bytes_sent == short.bytes
        (cut,) = (await parts.step(run, 0)).cuts
        assert lines["long.txt"].bytes_given == long.bytes == 36_000
        assert lines["long.txt"].bytes_sent == long.bytes * cut.sent // cut.given
        assert 0 < lines["long.txt"].bytes_sent < long.bytes / 3


async def test_t31_a_file_that_nobody_read_counts_as_not_sent(tmp_path: Path):
    plan = plan_of(step("caller", "Look yourself."))
    async with open_parts(tmp_path, worker("reader"), plans=[plan]) as parts:
        run = await parts.ask(files=(file("a.txt", "text"),))
        await run_step(parts.orchestrator, run, 0, parts.observe, result="I looked.")
        run = await parts.go_on(run)
        assert run.answer == "I looked."
        (line,) = (await full_receipt(parts.store, run)).inputs
        assert (line.bytes_given, line.bytes_sent) == (4, 0)


async def test_two_files_of_one_name_are_both_read(tmp_path: Path):
    files = (file("a.txt", "first text"), file("a.txt", "second text"), file("a.txt", "third"))
    async with open_parts(tmp_path, worker("reader")) as parts:
        run = await parts.ask(strategy="single", files=files)
        prompt = await parts.prompt(run, 0)
        assert all(found.text in prompt for found in files)
        names = [line.name for line in (await full_receipt(parts.store, run)).inputs]
        assert names == ["a.txt", "a.txt (2)", "a.txt (3)"]
