"""Writes `manifests/clients`, `manifests/mcpb` and `manifests/registry` anew.

    python -m podium_lab.packaging [FOLDER]

A test compares them with what this would write.
"""

import argparse
from pathlib import Path

from podium.cli.installing.clients import CLIENTS
from podium_lab.packaging import mcpb, registry, snippets


def made() -> dict[str, str]:
    """The text of every file that is made, by its path within `manifests`."""
    clients = {f"clients/{snippets.file_name(one)}": snippets.snippet(one) for one in CLIENTS}
    return clients | {
        "clients/README.md": snippets.overview(),
        "mcpb/manifest.json": mcpb.as_json(mcpb.manifest()),
        "mcpb/.mcpbignore": mcpb.IGNORED,
        "registry/server.json": mcpb.as_json(registry.server_json()),
    }


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("manifests"))
    folder: Path = parser.parse_args().folder
    for name, text in made().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
