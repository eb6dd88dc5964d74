"""Golden files: what is really sent, as it was last looked at and found good.

`PODIUM_UPDATE_GOLDEN=1 pytest tests/workers/test_golden.py` writes them anew; the difference is
then to be read before it is committed.
"""

import json
import os
from pathlib import Path

FOLDER = Path(__file__).parent / "workers" / "golden"


def check_golden(name: str, document: object) -> None:
    """Compare *document* with the golden file of that name.

    Raises:
        AssertionError: they differ, or there is no such file.
    """
    file = FOLDER / f"{name}.json"
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("PODIUM_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"there is no golden file {file.name}; PODIUM_UPDATE_GOLDEN=1 makes it"
    # As text, since the order of a schema's properties is the order in which they are written.
    assert file.read_text(encoding="utf-8") == text
