"""The turns of a TRINITY episode: what a role's reply means for the next one (papers.md 2.1-2.2).

Pure data: the policy `trinity` plays by it, and so does what trains a head for it.
"""

import re
from collections.abc import Iterable
from typing import Literal

from podium.policy.head import ROLES, Role
from podium.prompting import fill, prompt_hash
from podium_workers.worker import Frozen

TURNS = 5
"""Turns of an episode at most."""
_VIEW = "user: {question}"
_THOUGHT = "\nassistant: <reference_thought_{n}>\n{text}\n</reference_thought_{n}>"
_SUGGESTED = re.compile(r"<suggested_role>\s*(\w+)", re.IGNORECASE)
_FIRST_WORD = re.compile(r"[A-Za-z]+")


class Said(Frozen):
    """A reply that still counts."""

    number: int
    """Of its step."""
    role: Role
    text: str


class Standing(Frozen):
    """What counts of the turns so far."""

    thoughts: tuple[Said, ...] = ()
    """What Workers have replied, the newest last; the same words are there once."""
    suggestion: Said | None = None
    """What a Thinker has said since the newest of them."""
    rejection: Said | None = None
    """Why a Verifier has rejected the newest of them."""
    next_role: Role | None = None
    """What the last turn's Thinker wants next."""

    @property
    def read(self) -> tuple[Said, ...]:
        """What the next turn may read, in the order of the steps."""
        others = [said for said in (self.suggestion, self.rejection) if said]
        return tuple(sorted((*self.thoughts, *others), key=lambda said: said.number))

    def after(self, said: Said) -> "Standing | Literal['accepted']":
        """How it stands once that was said."""
        if said.role == "thinker":
            changes = {"suggestion": said, "next_role": _suggested(said.text)}
            return self.model_copy(update=changes)
        if said.role == "worker":
            others = tuple(old for old in self.thoughts if old.text != said.text)
            return Standing(thoughts=(*others, said))
        if is_accepting(said.text):
            return "accepted"
        return self.model_copy(update={"rejection": said, "next_role": None})

    def role(self, logits: list[float]) -> Role:
        """The next role, by the logits of the roles.

        What the Thinker wants comes first. After a rejection there is nothing new to verify: the
        coordinator sees only what Workers said, and would ask for the same again.
        """
        free = [place for place, role in enumerate(ROLES) if self.may_be(role)]
        chosen = ROLES[max(free, key=lambda place: logits[place])]
        return self.next_role if self.next_role and self.may_be(self.next_role) else chosen

    def may_be(self, role: Role) -> bool:
        """Whether that role may come next."""
        return role != "verifier" or self.rejection is None


def is_accepting(reply: str) -> bool:
    """Whether a Verifier's reply begins with ACCEPT; whatever else it says, it rejects."""
    first = _FIRST_WORD.search(reply)
    return first is not None and first[0].upper() in ("ACCEPT", "ACCEPTED")


def _suggested(reply: str) -> Role:
    """The role that a Thinker suggests; a Worker where it suggests none."""
    found = _SUGGESTED.search(reply)
    named = found[1].lower() if found else ""
    roles: dict[str, Role] = {role: role for role in ROLES}
    return roles.get(named, "worker")


def view(question: str, thoughts: Iterable[str]) -> str:
    """The transcript as the coordinator reads it: as plain text, and of the turns only the
    Workers'."""
    numbered = enumerate(thoughts, start=1)
    return _VIEW.format(question=question) + "".join(
        _THOUGHT.format(n=number, text=text) for number, text in numbered
    )


def subtask(role: Role) -> str:
    """What whoever has that role is told to do."""
    return fill(_prompt(role))


def role_of(told: str) -> Role:
    """The role of a step with that subtask; a step that somebody wrote by hand is work."""
    roles: dict[str, Role] = {subtask(role): role for role in ROLES}
    return roles.get(told, "worker")


def texts_hash() -> str:
    """Identity of all texts that a head depends on, to tell when it does not fit any more."""
    return prompt_hash(*map(_prompt, ROLES), also=_VIEW + _THOUGHT)


def _prompt(role: Role) -> str:
    return f"trinity_{role}"
