"""Asking the user through the client whose call is at hand, in both eras of the protocol.

An `initialize` client is asked while the call waits. A 2026-07-28 one is answered with the question
and repeats its call with the answer; what has been begun by then comes back sealed with it. What is
asked for, and what an answer does, is `asks`'s business.
"""

import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mcp import MCPError
from mcp.server.mcpserver import Context
from mcp.server.request_state import RequestStateSecurity
from mcp.types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from podium.asks import pending, respond
from podium.errors import QuestionError, RunError, UnpricedError
from podium.runs import Runs
from podium.trace import Run, RunRequest
from podium_workers.worker import Frozen

ANSWER_WITHIN_S = 7 * 86_400.0
"""Seconds for which a question may stay open in a client."""
_UNPRICED = "allow_unpriced"
_KEY_BYTES = 32

logger = logging.getLogger(__name__)


def can_ask(ctx: Context) -> bool:
    """Whether a question can go through this call to its user."""
    declared = ctx.client_capabilities
    elicits = declared.elicitation if declared else None
    # Without naming a mode it means forms.
    if elicits is None or (elicits.form is None and elicits.url is not None):
        return False
    return _is_modern(ctx) or ctx.session.can_send_request


class _Memory(Frozen):
    """What a client carries from one round of a call to the next."""

    run_id: str = ""
    asked: str = ""
    """Key of the question that it was given."""


@dataclass
class Conversation:
    """One tool call, and what its user is asked meanwhile."""

    runs: Runs
    ctx: Context
    run_id: str = ""
    """The run that this call began in an earlier round; empty in the first one."""
    kept_limit: bool = False
    """Whether the user would not raise the limit that the run has reached."""
    _answers: dict[str, ElicitResult] = field(default_factory=dict[str, ElicitResult])

    @classmethod
    def of(cls, runs: Runs, ctx: Context) -> "Conversation":
        """The conversation that a call opens or goes on with."""
        try:
            memory = _Memory.model_validate_json(ctx.request_state or "{}")
        except ValidationError:  # sealed by another version of Podium
            memory = _Memory()
        given = (ctx.input_responses or {}).get(memory.asked)
        answers = {memory.asked: given} if isinstance(given, ElicitResult) else {}
        return cls(runs, ctx, memory.run_id, _answers=answers)

    async def settle(self, run: Run) -> Run | InputRequiredResult | None:
        """Ask what a run that stands still needs, and carry it on with the answer.

        None when there is nothing to ask, nobody to be asked, or the user would not have it.

        Raises:
            RunError: the answer is of no use, and the run stands as it was; or the question was
                answered elsewhere meanwhile.
        """
        ask = await pending(self.runs, run)
        if self._answers and (ask is None or ask.key not in self._answers):
            raise RunError(
                f"Run {run.run_id} does not wait for this answer any more: it was answered before, "
                f"or changed. See how it goes with get_run(run_id={run.run_id!r}, wait_s=40)."
            )
        # Steps of the caller's are for the model that called, not for its user.
        if ask is None or ask.kind == "caller" or not can_ask(self.ctx):
            return None
        answer = await self._answer(ask.key, ask.message, ask.form, run.run_id)
        if isinstance(answer, InputRequiredResult):
            return answer
        if answer.action == "cancel":
            return None
        content = _plain(answer) if answer.action == "accept" else None
        self.kept_limit = content is None and ask.kind == "budget"
        try:
            run = await respond(self.runs, run, ask, content)
        except QuestionError as error:
            again = f"orchestrate(run_id={run.run_id!r}) asks again"
            raise RunError(f"{error} Nothing has changed; {again}.") from None
        return None if content is None or run.status == "stopped" else run

    async def begin(
        self, request: RunRequest, begin: Callable[[RunRequest], Awaitable[Run]]
    ) -> Run | InputRequiredResult:
        """Begin a run; if prices are unknown that a limit needs, the user may do without it.

        Raises:
            UnpricedError: the user cannot be asked.
            RunError: the user would not.
        """
        try:
            run = await begin(request)
        except UnpricedError as refused:
            if not can_ask(self.ctx):
                raise
            answer = await self._answer(_UNPRICED, *_about_prices(refused, request), "")
            if isinstance(answer, InputRequiredResult):
                return answer
            if answer.action != "accept" or _plain(answer).get(_UNPRICED) is not True:
                raise RunError(
                    f"The user would not let {', '.join(refused.names)} work at an unknown price; "
                    "do not set allow_unpriced unless the user asks you to."
                ) from None
            run = await begin(request.model_copy(update={_UNPRICED: True}))
        # The prices may have become known before the answer came.
        self._answers.pop(_UNPRICED, None)
        return run

    async def take_as_yes(self, run: Run) -> Run:
        """Where no user can be asked, to start a run that waits for a yes is that yes."""
        ask = None if can_ask(self.ctx) else await pending(self.runs, run)
        if ask is None or ask.kind != "plan":
            return run
        return await respond(self.runs, run, ask, {"approve": True})

    async def _answer(
        self, key: str, message: str, form: dict[str, JsonValue], run_id: str
    ) -> ElicitResult | InputRequiredResult:
        """What the user says; the question itself where the client has to repeat its call."""
        if _is_modern(self.ctx):
            if given := self._answers.pop(key, None):
                return given
            asked = ElicitRequestFormParams(message=message, requested_schema=form)
            memory = _Memory(run_id=run_id, asked=key)
            return InputRequiredResult(
                input_requests={key: ElicitRequest(params=asked)},
                request_state=memory.model_dump_json(),
            )
        try:
            return await self.ctx.session.elicit_form(message, form, self.ctx.request_id)
        except (MCPError, ValidationError) as error:  # it said that it could be asked, and cannot
            logger.warning("the client could not ask its user: %s", error)
            return ElicitResult(action="cancel")


def state_security(ledger: Path) -> RequestStateSecurity:
    """How what clients carry is sealed: with one key for all processes that share a ledger."""
    file = ledger.with_name(f"{ledger.stem}-state.key")
    try:
        key = _key_in(file)
    except OSError as error:
        logger.warning("%s cannot be kept, so questions end with this process: %s", file, error)
        key = secrets.token_bytes(_KEY_BYTES)
    return RequestStateSecurity(keys=[key], ttl=ANSWER_WITHIN_S)


def _key_in(file: Path) -> bytes:
    """The key in a file, which is made by whoever comes first."""
    if not file.exists():
        fresh = file.with_name(f"{file.name}.{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as made:
            made.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(fresh, file)
        fresh.unlink()
    return file.read_bytes()


def _about_prices(refused: UnpricedError, request: RunRequest) -> tuple[str, dict[str, JsonValue]]:
    limit = f"the limit of ${request.max_usd:g}" if request.max_usd else "the limit of the day"
    message = (
        f"The price of {', '.join(refused.names)} is unknown, so {limit} cannot be kept. "
        "Let them work all the same?"
    )
    yes: JsonValue = {"type": "boolean", "title": "Work without a limit", "default": False}
    return message, {"type": "object", "properties": {_UNPRICED: yes}, "required": [_UNPRICED]}


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _plain(answer: ElicitResult) -> dict[str, JsonValue]:
    content = answer.content or {}
    return {key: [*it] if isinstance(it, list) else it for key, it in content.items()}
