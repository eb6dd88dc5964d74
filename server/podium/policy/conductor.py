"""The Conductor: a model that writes the plan (ICLR 2026; papers.md 1.1-1.3 and 1.10).

A prompted conductor sees its team as cards and writes JSON; a trained one sees anonymous ordinals
and writes the paper's three lists. In later rounds it sees its own plan and the last reply, and
either accepts or plans again (recursive test-time scaling).
"""

from dataclasses import dataclass, replace

from podium.errors import PlanError, PoolError
from podium.plan import CALLER, PODIUM, Accept, Cut, Plan, Proposal, Step
from podium.plan_grammar import lists_grammar
from podium.plan_text import parse_plan, plan_schema, render_json, render_lists
from podium.policy import Ask, State, accept_last
from podium.policy.examples import CALLERS, examples, set_of
from podium.prompting import fill, harmless, prompt_hash
from podium.tokens import estimate_tokens
from podium.window import prompt_budget, reply_limit, shorten
from podium_workers.asked import Asked
from podium_workers.errors import WorkerError
from podium_workers.pool import Pool
from podium_workers.worker import ModelSettings, Prompt, WorkerCard

PLAN_TOKENS = 1024
"""Tokens that a plan of a local model may have, reasoning included (the paper's training limit).

Hosted models may use all that their card allows, since their reasoning counts as output.
"""
REPLY_TOKENS = 1500
"""Tokens of the last reply that a later round sees; fewer in a small window."""
TRAINED_PROSE = 1200
"""Characters of reasoning before the three lists: some 300 of the tokens of a plan. They are for a
model that knows ordinals and does not say how it was trained."""
PROMPTED_PROSE = 300
"""The same for a model that was not trained for it: a small one fills whatever room it has."""
_OWN_DECODING = frozenset({"local", "vllm"})
"""Kinds of workers whose engines hold a reply to all of a schema, and to a grammar."""
_ADVICE = 150
"""Tokens kept free for what is said about a plan that could not be used."""


@dataclass(frozen=True)
class Conductor:
    """Proposes plans written by a model."""

    max_steps: int = 5
    tries: int = 5

    async def propose(self, state: State, ask: Ask) -> Proposal:
        """A readable plan; the pool's first worker alone when no try gives one.

        A conductor that cannot be reached is stood in for by the next worker of the pool.
        """
        if state.rounds and state.rounds_left <= 0:
            return Proposal(next=accept_last(state), source="fixed")
        refused: list[str] = []
        failed: dict[str, WorkerError] = {}
        pool = state.pool
        for card in self._candidates(state):
            state = replace(state, pool=pool.led_by(card.name))
            try:
                proposal = await self._written_by(card, state, ask, refused)
            except WorkerError as error:
                failed[card.name] = error
                continue
            proposal = proposal or self._fallback(state, refused)
            why = tuple(f"{name}: {error.message}" for name, error in failed.items())
            return proposal.model_copy(update={"failed": why})
        if failed:
            raise list(failed.values())[-1]
        raise PoolError("The pool has no worker that could write a plan.")

    def _most(self, state: State) -> int:
        """Steps that the next plan may have."""
        most, left = state.pool.asked.max_steps or self.max_steps, state.steps_left
        return most if left is None else min(most, left)

    def _candidates(self, state: State) -> tuple[WorkerCard, ...]:
        """Who may write the plan: who is to, then who else only writes plans, then the workers."""
        first = state.request.conductor or state.pool.conductor
        planner = (state.pool.planner.card,) if state.pool.planner else ()
        return tuple(sorted((*planner, *state.pool.cards), key=lambda card: card.name != first))

    async def _written_by(
        self, card: WorkerCard, state: State, ask: Ask, refused: list[str]
    ) -> Proposal | None:
        """The first readable plan in a bounded number of tries; None when there is none."""
        names = team(state)
        shown = shown_names(state)
        text, cuts = conductor_prompt(state, card, max_steps=self._most(state))
        advice = ""
        for trial in range(self.tries):
            settings = self._settings(state, card, shown, trial)
            prompt = Prompt.of(text + advice, system=card.role)
            reply = await ask(card.name, prompt, settings)
            try:
                plan = parse_plan(
                    reply.text,
                    names,
                    first=state.next_step,
                    max_steps=self._most(state),
                    may_accept=bool(state.rounds),
                )
            except PlanError as error:
                refused.append(f"{card.name}: {error}")
                advice = f"\n(The plan before could not be used: {error})\n"
                continue
            return Proposal(
                next=plan or accept_last(state),
                source="model",
                raw_text=reply.text,
                prompt_hash=_hash(state),
                worker=card.name,
                cuts=cuts,
                remark=state.pool.remark,
                refused=tuple(refused),
            )
        return None

    def _settings(
        self, state: State, card: WorkerCard, names: tuple[str, ...], trial: int
    ) -> ModelSettings:
        """Greedy at first; later tries sample, or they would fail in the same way."""
        by_json = state.pool.asked.form == "json"
        held = card.kind in _OWN_DECODING
        schema = plan_schema(
            names,
            max_steps=self._most(state),
            may_accept=bool(state.rounds),
            by_position=held,
        )
        grammar = lists_grammar(
            len(names),
            max_steps=self._most(state),
            may_accept=bool(state.rounds),
            prose=_prose(state.pool.asked),
        )
        return ModelSettings(
            max_output_tokens=_plan_limit(card),
            temperature=0.0 if trial == 0 else 0.8,
            seed=state.seed + trial,
            response_schema=schema if by_json else None,
            grammar=grammar if held and not by_json else None,
        )

    def _fallback(self, state: State, refused: list[str]) -> Proposal:
        """No plan could be read: one worker alone, or what an earlier round already gave."""
        following: Plan | Accept
        if state.rounds:
            following = accept_last(state)
        else:
            step = Step(worker=state.pool.names[0], subtask=fill("single"))
            following = Plan(steps=(step,), first=state.next_step)
        return Proposal(
            next=following, source="fallback", prompt_hash=_hash(state), refused=tuple(refused)
        )


def team(state: State) -> tuple[str, ...]:
    """Names that a plan may use, in the order that the conductor is shown."""
    nested = (PODIUM,) if state.request.depth > 0 else ()
    caller = (CALLER,) if state.request.caller else ()
    return (*(card.name for card in state.pool.team), *nested, *caller)


def shown_names(state: State) -> tuple[str, ...]:
    """The team as the conductor may call it: by name, or anonymously by number.

    The caller is no model, and is called by its name either way.
    """
    names = team(state)
    if state.pool.asked.shows == "ordinals":
        numbered = enumerate(names)
        return tuple(name if name == CALLER else f"Model {n}" for n, name in numbered)
    return names


def conductor_prompt(
    state: State, card: WorkerCard, *, max_steps: int
) -> tuple[str, tuple[Cut, ...]]:
    """The prompt for the next plan, and what had to be cut for it."""
    lists = state.pool.asked.form == "lists"
    values = {
        "max_steps": str(max_steps),
        "team": _team_text(state),
        "examples": examples(
            shown_names(state)[: len(state.pool.names)],
            lists=lists,
            max_steps=max_steps,
            named=state.pool.asked.examples,
            program=_program(state),
            caller=shown_names(state) if state.request.caller else (),
        ),
    }
    history, reply_cuts = _history(state, card, max_steps) if state.rounds else ("", ())
    around = fill(_template(state), question="", **values) + history
    room = prompt_budget(card) - estimate_tokens(around) - _ADVICE
    asked, cuts = _asked(state, max(room, 256))
    return fill(_template(state), question=asked, **values) + history, cuts + reply_cuts


def _prose(asked: Asked) -> int:
    """Characters of reasoning before the lists, by the training where that is known."""
    if asked.prose is not None:
        return asked.prose
    return TRAINED_PROSE if asked.shows == "ordinals" else PROMPTED_PROSE


def _plan_limit(card: WorkerCard) -> int:
    limit = reply_limit(card)
    return min(PLAN_TOKENS, limit) if card.where == "local" else limit


def _hash(state: State) -> str:
    """Identity of all texts that shape a plan of this round."""
    again = (_round_template(state),) if state.rounds else ()
    caller = ("caller", CALLERS) if state.request.caller else ()
    return prompt_hash(_template(state), set_of(state.pool.asked.examples), *again, *caller)


def _template(state: State) -> str:
    if state.pool.asked.prompt == "brief":
        return "conductor_brief"
    return "conductor_lists" if state.pool.asked.form == "lists" else "conductor"


def _round_template(state: State) -> str:
    brief = state.pool.asked.prompt == "brief"
    return "conductor_brief_round" if brief else "conductor_round"


def _asked(state: State, room: int) -> tuple[str, tuple[Cut, ...]]:
    """The question, behind as much of the earlier exchange as there is room for."""
    request, fence = state.request, state.fence
    question, cuts = _shortened("question", harmless(request.question, fence), room)
    listed = "".join(f"\n[attached file {f.name!r}, {f.bytes} bytes]" for f in request.files)
    question += harmless(listed, fence)
    if not request.earlier:
        return question, cuts
    left = max(room - estimate_tokens(question), 0)
    earlier, earlier_cuts = _shortened("earlier", harmless(request.earlier, fence), left)
    # An earlier answer was written by workers: it is fenced like every reply.
    return f"\n<earlier_{fence}>\n{earlier}\n</earlier_{fence}>\n{question}", cuts + earlier_cuts


def _shortened(part: str, text: str, tokens: int) -> tuple[str, tuple[Cut, ...]]:
    shown, kept = shorten(text, tokens)
    cut = Cut(part=part, given=len(text), sent=kept)
    return shown, (cut,) if kept < len(text) else ()


def _program(state: State) -> str | None:
    """The worker that calculates by programs, where workers are shown by what they are."""
    if state.pool.asked.shows == "ordinals":
        return None
    return next((card.name for card in state.pool.cards if card.kind == "program"), None)


def _team_text(state: State) -> str:
    pool, lists = state.pool, state.pool.asked.form == "lists"
    by_number = pool.asked.shows == "ordinals"
    told = [_told(card, pool) for card in pool.team]
    if state.request.depth > 0:
        text = "a whole team of its own, for a part that is itself a big question"
        told.append("" if by_number else f"{PODIUM}: {text}")
    if state.request.caller:
        text = fill("caller")
        told.append(text if by_number else f"{CALLER}: {text}")
    # The three lists name workers by number.
    numbers = [f"Model id {number}" for number in range(len(told))]
    if by_number:
        names = numbers if lists else [f"- {name}" for name in shown_names(state)]
        return "\n".join(map(_behind, names, told))
    marks = [f"{number}:" if lists else "-" for number in numbers]
    return "\n".join(f"{mark} {line}" for mark, line in zip(marks, told, strict=True))


def _told(card: WorkerCard, pool: Pool) -> str:
    """What the conductor is told of a worker; nothing at all where it is a mere number."""
    price = card.told_price if pool.asked.prices else ""
    if pool.asked.shows == "ordinals":
        return price
    known = f"{card.name}: {card.good_at or card.model}"
    return f"{known} ({price})" if price else known


def _behind(name: str, told: str) -> str:
    return f"{name}: {told}" if told else name


def _renamed(plan: Plan, state: State) -> Plan:
    """A plan with the names that the conductor was shown."""
    shown = dict(zip(team(state), shown_names(state), strict=True))
    steps = [
        step.model_copy(update={"worker": shown.get(step.worker, step.worker)})
        for step in plan.steps
    ]
    return Plan(steps=tuple(steps))


def _history(state: State, card: WorkerCard, max_steps: int) -> tuple[str, tuple[Cut, ...]]:
    """What a later round sees: the plan before, in its own numbering, and its last reply."""
    plans = [found.plan for found in state.rounds if found.plan]
    plan = plans[-1]
    own = Plan(
        steps=tuple(
            step
            if step.access == "all"
            else step.model_copy(
                update={"access": tuple(n - plan.first for n in step.access if n >= plan.first)}
            )
            for step in plan.steps
        )
    )
    lists = state.pool.asked.form == "lists"
    # A plan that the user has edited may name others, the caller among them.
    known = dict.fromkeys((*team(state), *(step.worker for step in own.steps)))
    written = render_lists(own, tuple(known)) if lists else render_json(_renamed(own, state))
    answer = accept_last(state).step
    reply = next(result.reply for result in state.results if result.number == answer)
    most = min(REPLY_TOKENS, prompt_budget(card) // 3)
    shown, cuts = _shortened(f"step:{answer}", harmless(reply, state.fence), most)
    text = fill(
        _round_template(state),
        plan=harmless(written, state.fence),
        reply=shown,
        fence=state.fence,
        accept_form="three empty lists" if lists else '{"steps": []}',
        max_steps=str(max_steps),
    )
    return text, cuts
