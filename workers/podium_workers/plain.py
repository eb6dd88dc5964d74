"""What a program prints, without what only a terminal understands."""

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and movements
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # titles and links
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OVERWRITTEN = re.compile(r"^.*\r(?!\n|$)", re.MULTILINE)


def plain(text: str) -> str:
    """*text* as it would stand on paper: without colours, control characters and overwritten lines.

    A line that a progress display wrote over with carriage returns is what it was in the end.
    """
    bare = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return _CONTROLS.sub("", _OVERWRITTEN.sub("", bare)).replace("\r", "")
