import pytest

from podium_workers.scripted import ScriptedWorker
from podium_workers.wire import messages_of
from podium_workers.worker import Message, Prompt, WorkerCard

ROLE = "Answer in one word."


def card(role: str) -> WorkerCard:
    return ScriptedWorker.named("a", ["ok"]).card.model_copy(update={"role": role})


@pytest.mark.parametrize("system", [ROLE, f"{ROLE} Think first."])
def test_a_prompt_that_has_the_role_is_sent_as_it_is(system: str):
    prompt = Prompt.of("2+2?", system=system)

    assert messages_of(prompt, card(ROLE)) == prompt.messages


def test_a_worker_without_a_role_sends_the_prompt_as_it_is():
    prompt = Prompt.of("2+2?", system="Plan.")

    assert messages_of(prompt, card("")) == prompt.messages


def test_a_role_that_the_prompt_lacks_stands_before_it():
    role, question = Message(role="system", text=ROLE), Message(role="user", text="2+2?")

    assert messages_of(Prompt.of("2+2?"), card(ROLE)) == (role, question)
    (system, _) = messages_of(Prompt.of("2+2?", system="Plan."), card(ROLE))
    assert system == Message(role="system", text=f"{ROLE}\n\nPlan.")
