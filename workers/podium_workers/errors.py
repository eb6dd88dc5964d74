"""What can go wrong between a prompt and a reply, one class per boundary.

WorkerError
├── AuthenticationError        the key is missing, wrong or not allowed
├── OutOfCreditError           the account has no money left
├── RateLimitedError           too many requests or tokens; may carry retry_after
├── OverloadedError            the provider is there but cannot serve now (5xx)
├── UnreachableError           no connection, wrong address, no such host
│   └── NotInstalledError      a program that this worker needs is not on this machine
├── SlowReplyError             a limit on first byte, silence or total time struck
├── ContextTooLongError        the prompt does not fit the model's window
├── RefusedError               the provider or the model declined or filtered
├── EmptyReplyError            a reply without text
├── MalformedReplyError        a reply that is not what the wire format promises
│   └── ProgramFailedError     a program of the user's failed, and its words are not understood
├── UnsupportedParameterError  the model does not take a setting that was sent
├── UnknownModelError          the endpoint has no model of that name
├── NotRecordedError           the cassette that stands in for the worker has no such call
└── ModelFileError             a local model's weights are missing, damaged or do not fit
ManifestError                  a pool manifest is wrong: names file and field
PoolSelectionError             a choice of workers that names an unknown one or leaves none
"""

from typing import ClassVar, Literal


class WorkerError(Exception):
    """A worker gave no usable reply. The text is one sentence for the user, without secrets."""

    code: ClassVar[str] = "worker"
    """Stable word for this boundary; stored in the ledger and shown to users."""
    transient: ClassVar[bool] = False
    """Whether the same call may succeed a moment later; only such errors are retried."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s


class AuthenticationError(WorkerError):
    code = "authentication"


class OutOfCreditError(WorkerError):
    code = "out_of_credit"


class RateLimitedError(WorkerError):
    code = "rate_limited"
    transient = True


class OverloadedError(WorkerError):
    code = "overloaded"
    transient = True


class UnreachableError(WorkerError):
    code = "unreachable"
    transient = True


class NotInstalledError(UnreachableError):
    """Trying again is no use; the text says what to install."""

    transient = False


class SlowReplyError(WorkerError):
    """A time limit struck; `limit` says which one."""

    code = "timeout"

    def __init__(self, message: str, *, limit: Literal["first_byte", "idle", "total"]) -> None:
        super().__init__(message)
        self.limit = limit


class ContextTooLongError(WorkerError):
    code = "context_too_long"


class RefusedError(WorkerError):
    code = "refused"


class EmptyReplyError(WorkerError):
    """A reply without text; `used_up` when its whole limit of output tokens went elsewhere."""

    code = "empty"
    transient = True

    def __init__(self, message: str, *, used_up: bool = False) -> None:
        super().__init__(message)
        self.used_up = used_up


class MalformedReplyError(WorkerError):
    code = "malformed"
    transient = True


class ProgramFailedError(MalformedReplyError):
    """Never tried again: what it did until then may be paid, long, and not to be done twice."""

    transient = False


class UnsupportedParameterError(WorkerError):
    """The endpoint does not take the request; `parameter` names the part, when it said which."""

    code = "unsupported_parameter"

    def __init__(
        self, message: str, *, status: int | None = None, parameter: str | None = None
    ) -> None:
        super().__init__(message, status=status)
        self.parameter = parameter


class UnknownModelError(WorkerError):
    code = "unknown_model"


class NotRecordedError(WorkerError):
    code = "not_recorded"


class ModelFileError(WorkerError):
    code = "model_file"


class ManifestError(Exception):
    """A pool manifest cannot be used; the message names the file, the field and the remedy."""


class PoolSelectionError(Exception):
    """A choice of workers cannot be met; the message lists the names that there are."""
