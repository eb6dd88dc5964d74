"""Simulated workers that play the three roles; whatever is measured with them is simulated.

As Workers they are those of `simulated`, but surer of themselves: an answer that they could not
find they mostly do not believe either, and spoil it where it was right. A Thinker finds the next
thing that is missing and hands it on. A Verifier tells right from wrong where it could have done
the work itself, and else guesses.
"""

import random
import re
from dataclasses import dataclass

from podium.policy.head import Role
from podium.policy.turns import role_of
from podium_lab.train.items import Item
from podium_lab.train.simulated import QUESTION, Simulation, Skills
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Prompt

_STEP = re.compile(
    r"<subtask_(\w*)>\n(.*?)\n</subtask_\1>\n<reply_\1>\n(.*?)\n</reply_\1>", re.DOTALL
)
_SUBTASK = "Your subtask: "
_FOUND = re.compile(r"^Found (\d+): .*$", re.MULTILINE)
BELIEVES = 0.3
"""Share of the answers that it could not find itself that a worker takes over from others."""


@dataclass(frozen=True)
class Players:
    """Simulated workers in roles, over the items that they know of."""

    simulation: Simulation

    def worker(self, skills: Skills) -> ScriptedWorker:
        """A worker with those skills."""
        card = self.simulation.worker(skills).card
        return ScriptedWorker(card, lambda prompt: self.said(skills, prompt))

    def said(self, skills: Skills, prompt: Prompt) -> str:
        """What a worker says to a prompt of the server's."""
        return self.reply(skills, prompt.messages[-1].text)

    def reply(self, skills: Skills, text: str) -> str:
        """What a worker says to the text of a prompt, in the role that it is given there."""
        role = role_of(text.rpartition(_SUBTASK)[2].strip())
        asked = QUESTION.search(text)
        item = self.simulation.items.get(asked[2]) if asked else None
        if item is None:
            return self.simulation.reply(skills, text)
        if role == "worker":
            return self.simulation.reply(skills, self._doubted(skills, item, text))
        if role == "thinker":
            return self._thought(skills, text)
        return self._verdict(skills, item, text)

    def _doubted(self, skills: Skills, item: Item, text: str) -> str:
        """The prompt without the last goal's finding, where a worker does not believe it."""
        last = len(item.goals) - 1
        drawn = random.Random(f"{self.simulation.seed}:{skills.name}:{item.id}")
        if self.simulation.can(skills, item, last) or drawn.random() < BELIEVES:
            return text
        return _FOUND.sub(lambda found: "" if found[1] == str(last) else found[0], text)

    def _thought(self, skills: Skills, text: str) -> str:
        """The next finding that is missing, and who is to go on."""
        known = {found[1] for found in _FOUND.finditer(text)}
        own = _FOUND.finditer(self.simulation.reply(skills, text))
        new = next((found[0] for found in own if found[1] not in known), "")
        said = new or "Nothing is missing."
        following: Role = "worker" if new else "verifier"
        return f"<suggestion>\n{said}\n</suggestion>\n<suggested_role>{following}</suggested_role>"

    def _verdict(self, skills: Skills, item: Item, text: str) -> str:
        replies = [reply for _, told, reply in _STEP.findall(text) if role_of(told) == "worker"]
        newest = replies[-1] if replies else ""
        found = {int(number): result for number, result in re.findall(_RESULT, newest)}
        if len(found) < len(item.goals):
            return "REJECT: it is not complete."
        is_right = all(found[place] == goal.answer for place, goal in enumerate(item.goals))
        can = all(self.simulation.can(skills, item, place) for place in range(len(item.goals)))
        guess = random.Random(f"{self.simulation.seed}:{skills.name}:{item.id}:{newest}")
        return "ACCEPT" if (is_right if can else guess.random() < 0.5) else "REJECT: it is wrong."


_RESULT = re.compile(r"^Found (\d+): (.*)$", re.MULTILINE)
