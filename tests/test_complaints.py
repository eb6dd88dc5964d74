"""Every complaint of users that Podium answers names tests, and those tests are there."""

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).parent.parent
COMPLAINTS = 25


class Elsewhere(BaseModel):
    """What another issue holds."""

    model_config = ConfigDict(extra="forbid")

    issue: int
    what: str


class Complaint(BaseModel):
    """One complaint, and what shows that there is no cause for it."""

    model_config = ConfigDict(extra="forbid")

    number: int
    about: str = Field(max_length=100)
    tests: list[str] = Field(min_length=1)
    elsewhere: Elsewhere | None = None


def complaints() -> list[Complaint]:
    table = tomllib.loads((ROOT / "tests" / "complaints.toml").read_text(encoding="utf-8"))
    return [Complaint.model_validate(entry) for entry in table["complaint"]]


def test_every_complaint_is_in_the_table_once() -> None:
    assert [found.number for found in complaints()] == list(range(1, COMPLAINTS + 1))


def test_every_test_that_is_named_for_a_complaint_exists() -> None:
    for complaint in complaints():
        assert len(set(complaint.tests)) == len(complaint.tests)
        for named in complaint.tests:
            file, _, test = named.partition("::")
            source = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), named
