"""Downloads one file of a Hugging Face hub repository with the hub's own library."""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Self, cast

from podium_workers.errors import ModelFileError
from podium_workers.weights.catalogue import HubFile

_LIBRARY = "huggingface_hub"


class _Metadata(Protocol):
    @property
    def size(self) -> int | None: ...


class _Library(Protocol):
    """What is used of huggingface_hub, whose own annotations are incomplete."""

    def hf_hub_url(
        self, repo_id: str, filename: str, *, revision: str, endpoint: str | None
    ) -> str: ...

    def get_hf_file_metadata(
        self, url: str, *, timeout: float, endpoint: str | None
    ) -> _Metadata: ...

    def hf_hub_download(
        self,
        repo_id: str,
        filename: str,
        *,
        revision: str,
        local_dir: Path,
        endpoint: str | None,
        tqdm_class: type[object],
    ) -> str: ...


def has_library() -> bool:
    """Whether the hub's library is installed."""
    return importlib.util.find_spec(_LIBRARY) is not None


def download(
    hub: HubFile,
    folder: Path,
    *,
    size: int,
    report: Callable[[int], None],
    endpoint: str | None = None,
    reach_within_s: float = 3.0,
) -> Path:
    """The file of *hub* in *folder*; what an earlier, interrupted download left there is used.

    Raises:
        ModelFileError: the hub is not reachable, or its file has another size.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, XetDownloadError

    library = cast("_Library", importlib.import_module(_LIBRARY))
    try:
        # One short question first: the download itself repeats a failed one for half a minute.
        url = library.hf_hub_url(hub.repo, hub.file, revision=hub.revision, endpoint=endpoint)
        found = library.get_hf_file_metadata(url, timeout=reach_within_s, endpoint=endpoint)
        if found.size != size:
            raise ModelFileError(f"it has another file ({found.size} bytes, {size} expected).")
        path = library.hf_hub_download(
            hub.repo,
            hub.file,
            revision=hub.revision,
            local_dir=folder,
            endpoint=endpoint,
            tqdm_class=_bar(report),
        )
    except (httpx2.HTTPError, HfHubHTTPError, XetDownloadError, OSError) as error:
        raise ModelFileError(f"it cannot be reached ({type(error).__name__}).") from error
    return Path(path)


def _bar(report: Callable[[int], None]) -> type[object]:
    """A class that the library takes for a progress bar; it draws nothing and calls *report*."""

    class Bar:
        def __init__(self, *, total: int | None = None, initial: int = 0, **_: object) -> None:
            self.total = total
            self.n = initial

        def update(self, n: int = 1) -> None:
            self.n += n
            report(self.n)

        def update_transfer(self, n: int) -> None:
            """Bytes on the wire; only finished ones are shown."""

        def set_postfix_str(self, text: str, *, refresh: bool = True) -> None:
            """The library's own words are not shown."""

        def set_transfer_postfix_str(self, text: str, *, refresh: bool = True) -> None:
            """The library's own words are not shown."""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

    return Bar
