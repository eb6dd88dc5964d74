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
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{file}: cannot be read, as it is not UTF-8 text.") from None


def write_whole(file: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace the file; makes it, with *mode* and its folders, where there is none.

    A link to a file that is kept elsewhere stays one, and a file keeps its own mode.

    Raises:
        SettingsError: it cannot be written; the old file is as it was.
    """
    _refuse_broken_link(file)
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


def _refuse_broken_link(file: Path) -> None:
    """Look whether the file would come to be where nobody keeps anything.

    Raises:
        SettingsError: it, or a folder above it, is a link that leads nowhere.
    """
    for path in (file, *file.parents):
        if path.is_symlink() and not path.exists():
            raise SettingsError(
                f"{path}: this is a link to {os.readlink(path)}, which does not exist; make that, "
                "or remove the link."
            )
