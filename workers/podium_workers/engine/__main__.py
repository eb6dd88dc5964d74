"""The supervisor's process: `python -m podium_workers.engine --state-dir DIR`.

A client starts it when no engine answers. It leaves the client's process and session behind
before it imports anything large.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

import anyio


def main() -> None:
    """Become a process of its own and serve until nobody needs it."""
    parser = argparse.ArgumentParser(prog="python -m podium_workers.engine")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--idle-s", type=float, required=True)
    parser.add_argument("--model-idle-s", type=float, required=True)
    options = parser.parse_args()
    if _is_left_behind():
        return
    os.chdir(options.state_dir)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    from podium_workers.engine.supervisor import serve

    anyio.run(serve, options.state_dir, options.idle_s, options.model_idle_s)


def _is_left_behind() -> bool:
    """Go on in a new session; true in the process that stays with the caller and shall return."""
    if sys.platform == "win32":  # there the caller detaches it
        return False
    if os.fork():
        return True
    os.setsid()
    return False


if __name__ == "__main__":
    main()
