"""Text files that are read and written as a whole, so that nobody ever sees half of one."""

import os
import tempfile
from pathlib import Path

from podium.errors import SettingsError


def read_whole(file: Path) -> str | None:
    """The text with its line ends as they are; None where there is no file.

    Raises:
        SettingsError: it cannot be read as UTF-8.
    """
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}.") from None


def write_whole(file: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace the file; makes it, with *mode* and its folders, where there is none.

    A link to a file that is kept elsewhere stays one, and a file keeps its own mode.

    Raises:
        SettingsError: it cannot be written; the old file is as it was.
    """
    try:
        real = file.resolve()
        real.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=real.parent, prefix=".podium-", delete=False
        ) as opened:
            opened.write(text)
        try:
            os.chmod(opened.name, real.stat().st_mode if real.exists() else mode)
            os.replace(opened.name, real)
        finally:
            Path(opened.name).unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written ({error.strerror}).") from None
