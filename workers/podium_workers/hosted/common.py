"""What hosted workers have in common: one client each, and learning what a model does not take.

Knows no wire format: `openai`, `responses` and `anthropic` each add theirs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Generic, TypeVar

import anyio
from anyio import to_thread
from pydantic import JsonValue

from podium_workers.errors import (
    AuthenticationError,
    UnknownModelError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.hosted.learned import Learned
from podium_workers.quirks import quirks_of
from podium_workers.wire import (
    ApiKey,
    Said,
    TimeLimits,
    entries,
    failure,
    is_loopback,
    messages_of,
    words_in,
)
from podium_workers.worker import Call, Message, ModelSettings, Prompt, Reply, Usage, WorkerCard

CHECK_TIMEOUT_S = 5.0
"""Seconds that a health check waits for an endpoint."""

ClientT = TypeVar("ClientT")
ErrorT = TypeVar("ErrorT", bound=Exception)


class HostedWorker(ABC, Generic[ClientT]):
    """A worker behind a provider's HTTP interface.

    What a model is known not to take is not sent (`quirks`). A parameter that it refuses is left
    out from then on, and remembered between processes once the request without it was taken
    (`learned`). What was really sent stands in the record of each attempt.
    """

    check_names_model: ClassVar[bool] = False
    """Whether the health check asks for this worker's model, so that 404 means: no such model."""

    def __init__(
        self,
        card: WorkerCard,
        *,
        key: ApiKey,
        base_url: str,
        limits: TimeLimits | None = None,
        temperature: float | None = None,
        effort: str | None = None,
        learned: Learned | None = None,
    ) -> None:
        self._card = card
        self._key = key
        self._base_url = base_url.rstrip("/")
        self._limits = limits or TimeLimits()
        self._own_temperature = temperature
        self._reasoning_effort = effort
        self._quirks = quirks_of(card.model, self._base_url)
        self._learned = learned or Learned()
        self._refused: set[str] = set()
        self._known: frozenset[str] | None = None
        """Of what is refused, the part that is remembered already; None before it was read."""
        self._client: ClientT | None = None
        # Held while the library is imported, so that calls at the same time make one client.
        self._opening = anyio.Lock()

    @property
    def card(self) -> WorkerCard:
        return self._card

    @property
    def has_key(self) -> bool:
        """Whether a key is there, or none is needed."""
        return self._key.variable is None or self._key.secret is not None

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """Answer *prompt*.

        Raises:
            WorkerError: no usable reply; the class says at which boundary.
        """
        secret = self._key.reveal()
        async with self._opening:
            if self._client is None:
                self._client = await to_thread.run_sync(self._open, secret)
            if self._known is None:
                self._known = await to_thread.run_sync(
                    self._learned.refused, self._base_url, self._card.model
                )
                self._refused |= self._known
        return await self._answer(self._client, messages_of(prompt, self._card), settings, call)

    async def _answer(
        self,
        client: ClientT,
        messages: tuple[Message, ...],
        settings: ModelSettings,
        call: Call,
    ) -> Reply:
        """Ask, and again without what is refused."""
        while True:
            parameters = self.parameters(settings)
            try:
                reply = await self._ask(client, messages, parameters, call)
            except UnsupportedParameterError as error:
                if error.parameter is None:
                    raise
                self._refused.add(error.parameter)
                if self.parameters(settings) == parameters:
                    raise
            else:
                await self._remember()
                return reply

    async def _remember(self) -> None:
        """Keep what was newly seen to be refused, now that the request without it was taken."""
        new = self._refused - (self._known or frozenset())
        if new:
            self._known = frozenset(self._refused)
            await self._learned.add(self._base_url, self._card.model, new)

    async def check(self) -> str:
        """What a look at the endpoint shows; it takes at most some seconds and costs nothing.

        Raises:
            WorkerError: the key is missing or refused, the model unknown, or nobody answers.
        """
        url, headers = self._check_request(self._key.reveal())
        import httpx2

        try:
            async with httpx2.AsyncClient(
                timeout=CHECK_TIMEOUT_S, trust_env=not is_loopback(url)
            ) as client:
                response = await client.get(url, headers=headers)
        except httpx2.HTTPError as error:
            why = self._key.scrub(str(error)) or type(error).__name__
            raise UnreachableError(f"{self._base_url} does not answer: {why}") from None
        try:
            body: object = response.json()
        except ValueError:
            body = response.text
        if response.is_success:
            return self._seen(entries(body))
        said = Said(words_in(body, response.reason_phrase), status=response.status_code)
        error = failure(said, self._key)
        lacks_model = isinstance(error, UnknownModelError) and self.check_names_model
        if lacks_model or isinstance(error, AuthenticationError):
            raise error
        return f"{self._base_url} answers, but not to a question for its models"

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await self._close(client)

    @abstractmethod
    def _open(self, secret: str) -> ClientT:
        """Import the provider's library and make its client; called in a thread."""

    @abstractmethod
    async def _close(self, client: ClientT) -> None: ...

    @abstractmethod
    def parameters(self, settings: ModelSettings) -> dict[str, JsonValue]:
        """What a request holds beside model and messages, without what was refused before.

        Raises:
            UnsupportedParameterError: a setting that the provider's interface cannot express.
        """

    @abstractmethod
    async def _ask(
        self,
        client: ClientT,
        messages: tuple[Message, ...],
        parameters: dict[str, JsonValue],
        call: Call,
    ) -> Reply:
        """One request to the provider, recorded as one attempt."""

    @abstractmethod
    def _check_request(self, secret: str) -> tuple[str, dict[str, str]]:
        """Address and headers of a request that costs nothing."""

    @abstractmethod
    def _seen(self, body: Mapping[str, object]) -> str:
        """What a good answer to that request shows.

        Raises:
            UnknownModelError: the endpoint lists its models, and this one is not among them.
        """

    def _reply_limit(self, settings: ModelSettings) -> int:
        """Tokens that the reply may have: what was asked for, within what the card allows."""
        asked = settings.max_output_tokens or self._card.max_output_tokens
        return min(asked, self._card.max_output_tokens)

    def _temperature(self, settings: ModelSettings) -> float | None:
        """What was asked for, else this worker's own; None leaves it to the provider.

        None too where the model is known to refuse any.
        """
        if not self._quirks.takes_temperature(self._reasoning_effort):
            return None
        return self._own_temperature if settings.temperature is None else settings.temperature


def uncounted(card: WorkerCard, known: Usage | None = None) -> Usage:
    """*known* as a part of what a request took: at an unknown price, but free where all is."""
    free = card.price is not None and card.price.is_free
    return (known or Usage()).model_copy(update={"cost_usd": 0.0 if free else None})


@contextmanager
def translated(
    base: type[ErrorT],
    meaning: Callable[[ErrorT, ApiKey, Collection[str]], WorkerError | None],
    key: ApiKey,
    *,
    sent: Collection[str] = (),
) -> Generator[None]:
    """Turn what a provider's library raises into this package's errors, without secrets.

    *base* is the library's own error, and *meaning* reads one of them; where it gives None, the
    error stays what it is. *sent* names the parameters that were in the request.

    Raises:
        WorkerError: in place of any exception of the library or of its transport.
    """
    from podium_workers.hosted.transport import BROKEN, meaning_of_broken

    try:
        yield
    except base as error:
        meant = meaning(error, key, sent)
        if meant is None:
            raise
        # Without the original, whose text may hold the key.
        raise meant from None
    except BROKEN as error:
        raise meaning_of_broken(error, key) from None
