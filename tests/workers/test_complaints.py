from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_workers.errors import ProgramFailedError, WorkerError
from podium_workers.programs.assistants import Said
from podium_workers.programs.complaints import meaning, wait_in

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Claude AI usage limit reached|1796040000", 1796040000 - NOON.timestamp()),
        ("usage limit reached|1000000000", 0),
        ("Try again in 2 hours 5 minutes.", 7500),
        ("try again in 3 days, 4 hours and 1 minute", 3 * 86400 + 4 * 3600 + 60),
        ("Please retry in 30s", 30),
        ("resets in 1h 30m", 5400),
        ("You've hit your session limit · resets 3pm", 3 * 3600),
        ("Your limit resets 11:30 AM", 23.5 * 3600),
        ("try again at 12:15 AM", 12.25 * 3600),
        ("resets at 2pm (Europe/Berlin)", 3600),
        ("resets 6am (America/New_York)", 23 * 3600),
        ("resets 3pm (Nowhere/At_All)", 3 * 3600),
        ("try again later", None),
        ("try again at Dec 3rd", None),
        ("resets 15pm", None),
    ],
)
def test_the_moment_of_the_next_try_is_read(words: str, seconds: float | None):
    assert wait_in(words, NOON) == seconds


def test_a_time_of_day_is_this_machines_unless_a_zone_is_named():
    there = NOON.astimezone(timezone(timedelta(hours=-8)))  # four in the morning
    assert wait_in("resets 5am", there) == 3600


@given(st.text(), st.none() | st.integers(100, 599))
def test_no_words_whatever_are_more_than_one_short_line(words: str, status: int | None):
    error = meaning(Said(status=status), words, title="It", log_in="log in")
    assert isinstance(error, WorkerError)
    assert len(error.message) < 600
    assert "\n" not in error.message


def test_words_that_say_nothing_known_are_shown():
    error = meaning(Said(), "Segmentation fault", title="It (exit code 139)", log_in="log in")
    assert type(error) is ProgramFailedError
    assert error.message == "It (exit code 139) failed. It says: Segmentation fault"
