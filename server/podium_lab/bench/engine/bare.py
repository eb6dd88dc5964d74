"""The work of the steps and no engine: what no engine can go below, in the same loop and process.

python -m podium_lab.bench.engine.bare --job rounds --runs 200 --folder FOLDER
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from podium_lab.bench.peers.measuring import Call, Setting, main


@dataclass(frozen=True)
class Bare:
    """Does the steps one after another and keeps nothing."""

    setting: Setting
    call: Call

    @property
    def facts(self) -> dict[str, str]:
        return {"storage": "none"}

    async def run(self, name: str) -> None:
        for step in range(self.setting.steps):
            await self.call(step)

    async def resume(self, name: str) -> None:
        for step in range(self.setting.steps // 2, self.setting.steps):
            await self.call(step)


@asynccontextmanager
async def open_bare(setting: Setting, call: Call) -> AsyncGenerator[Bare]:
    """Nothing to open."""
    yield Bare(setting, call)


if __name__ == "__main__":
    main(open_bare)
