import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_workers.plain import plain


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[1;38;5;9mbold\x1b[m", "red and bold"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10 %\r50 %\r100 %\ndone\r\n", "100 %\ndone\n"),
        ("a\x00b\x08c\td", "abc\td"),
        ("\x1b[2K\x1b[1Gready", "ready"),
        ("\x1b(Bplain\x1b", "plain"),
        ("größer ≥ 4 🙂", "größer ≥ 4 🙂"),
    ],
)
def test_what_only_a_terminal_understands_is_left_out(printed: str, read: str):
    assert plain(printed) == read


@given(st.text())
def test_no_text_keeps_an_escape_and_a_plain_one_stays(text: str):
    once = plain(text)
    assert "\x1b" not in once
    assert plain(once) == once
