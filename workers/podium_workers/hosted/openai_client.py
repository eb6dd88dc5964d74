"""What both of OpenAI's interfaces share: the client, its errors in our words, and counting."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from podium_workers.errors import (
    AuthenticationError,
    MalformedReplyError,
    RefusedError,
    UnknownModelError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.hosted.common import HostedWorker
from podium_workers.wire import (
    ApiKey,
    Said,
    entries,
    failure,
    is_loopback,
    items,
    retry_after_s,
    words_in,
)
from podium_workers.worker import Usage, WorkerCard

if TYPE_CHECKING:
    from httpx2 import Response
    from openai import APIError, AsyncOpenAI, OpenAIError


class OpenAIClientWorker(HostedWorker["AsyncOpenAI"]):
    """A worker that asks through OpenAI's library."""

    effort_name: ClassVar[str]
    """How the interface calls the effort of reasoning."""

    @property
    def _effort(self) -> str | None:
        """The effort to send; none where the provider has refused that value of it."""
        effort = self._reasoning_effort
        return None if f"{self.effort_name}.{effort}" in self._refused else effort

    def _narrowed(self, error: WorkerError) -> WorkerError:
        """*error* with only the effort's value as its parameter, where it is of that alone."""
        effort = self._reasoning_effort
        if not isinstance(error, UnsupportedParameterError) or not effort:
            return error
        of_a_value = rf"\bvalues?\b|(?<![\w-]){re.escape(effort)}(?![\w-])"
        if error.parameter != self.effort_name or not re.search(of_a_value, error.message, re.I):
            return error
        parameter = f"{self.effort_name}.{effort}"
        return UnsupportedParameterError(error.message, status=error.status, parameter=parameter)

    def _open(self, secret: str) -> "AsyncOpenAI":
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        from podium_workers.hosted.transport import TIMEOUT

        trust_env = not is_loopback(self._base_url)
        return AsyncOpenAI(
            api_key=secret,
            base_url=self._base_url,
            max_retries=0,  # `retry` is the one place that retries, and each attempt is recorded
            timeout=TIMEOUT,
            http_client=DefaultAsyncHttpxClient(timeout=TIMEOUT, trust_env=trust_env),
        )

    async def _close(self, client: "AsyncOpenAI") -> None:
        await client.close()

    def _check_request(self, secret: str) -> tuple[str, dict[str, str]]:
        keyed = self._key.secret is not None
        headers = {"Authorization": f"Bearer {secret}"} if keyed else {}
        return f"{self._base_url}/models", headers

    def _seen(self, body: Mapping[str, object]) -> str:
        names = [entries(item).get("id") for item in items(body.get("data"))]
        model = self.card.model
        if names and not any(str(name).removeprefix("models/") == model for name in names):
            raise UnknownModelError(
                f"{self._base_url} answers, but does not list {model!r} among its models."
            )
        return f"{self._base_url} answers" + (f" and has {model!r}" if names else "")


@dataclass(frozen=True)
class Counts:
    """Tokens as an endpoint counts them; each of ours is to be counted once."""

    given: int
    made: int
    total: int = 0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    reasoned: int = 0

    def usage(self, card: WorkerCard) -> Usage:
        """The same in our terms, priced.

        Some endpoints count what they read from their cache apart from the prompt, and some count
        reasoning only in the total, or only in its own field.
        """
        given = self.given + self.cached if self.cached > self.given else self.given
        made = max(self.made, self.total - given)
        if self.reasoned > made:
            made += self.reasoned
        written = min(self.written, given - self.cached)
        usage = Usage(
            input_tokens=given,
            cached_tokens=self.cached,
            output_tokens=made,
            reasoning_tokens=min(self.reasoned or made - self.made, made),
        )
        long = min(self.written_long, written)
        return card.priced(usage, written_tokens=written - long, written_long_tokens=long)


def meaning(error: "OpenAIError", key: ApiKey, sent: Collection[str]) -> WorkerError | None:
    """The error of this package for one of the library; None for one that it had not before."""
    import openai

    from podium_workers.hosted.transport import meaning_of_broken

    match error:
        case openai.APIConnectionError():
            return meaning_of_broken(error, key)
        case openai.APIResponseValidationError() | openai.LengthFinishReasonError():
            return MalformedReplyError("The endpoint answered with something that is no reply.")
        case openai.ContentFilterFinishReasonError():
            return RefusedError("The provider held the reply back.")
        case openai.APIStatusError():
            return failure(_said(error, error.response), key, sent=sent)
        case openai.APIError():
            return failure(_said(error, None), key, sent=sent)
        case _ if type(error).__name__ == "SubjectTokenProviderError":  # not exported
            return AuthenticationError(key.scrub(str(error)))
        case openai.WebSocketConnectionClosedError() | openai.WebSocketQueueFullError():
            return UnreachableError("The connection was closed.")
        case _ if type(error) is openai.OpenAIError:
            return MalformedReplyError(f"The client library gave up: {key.scrub(str(error))}")
        case _:
            return None


def _said(error: "APIError", response: "Response | None") -> Said:
    return Said(
        words_in(error.body, error.message),
        status=response.status_code if response is not None else None,
        code=error.code or error.type or "",
        parameter=error.param,
        retry_after_s=retry_after_s(response.headers) if response is not None else None,
    )


def said_in(error: object) -> Said | None:
    """An error object inside a reply that began well; None when *error* is none."""
    fields = entries(error)
    if not fields:
        return None
    code = fields.get("code") or fields.get("type") or ""
    parameter = fields.get("param")
    return Said(
        words_in(fields, "it gave no reason"),
        code=str(code),
        parameter=parameter if isinstance(parameter, str) else None,
    )


async def unstreamed(response: "Response", key: ApiKey) -> WorkerError:
    """What a whole document means where a stream was asked for: mostly, an error in a 200."""
    await response.aread()
    try:
        document: object = response.json()
    except ValueError:
        document = None
    said = said_in(entries(document).get("error"))
    if said is None:
        return MalformedReplyError("The endpoint sent a document where a stream was asked for.")
    return failure(said, key)
