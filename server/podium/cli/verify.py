"""`podium verify`: whether each step saw exactly what its access list grants."""

import anyio
import click

from podium.cli.compose import open_ledger
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import as_json, count, put, put_json
from podium.verify import Verdict
from podium.verify import verify as verify_run


@click.command(
    epilog="""\b
Examples:
  podium verify 6a53c0
  podium verify 6a53c0 --json"""
)
@click.argument("run_id", metavar="RUN")
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
@click.pass_context
def verify(ctx: click.Context, invocation: Invocation, *, run_id: str, json_: bool) -> None:
    """Check that each step saw what it may see.

    Rebuilds every prompt of RUN from its plan and replies and compares it with what was sent. Exit
    code 1 when a prompt holds more or less than its step's access list grants.
    """
    verdict = anyio.run(_verify, invocation, run_id)
    if json_:
        put_json(as_json(verdict))
    else:
        for finding in verdict.findings:
            put(f"step {finding.step}: {finding.problem}")
        say(_summary(verdict))
    ctx.exit(1 if verdict.findings else 0)


async def _verify(invocation: Invocation, run_id: str) -> Verdict:
    settings = invocation.settings
    async with open_ledger(settings) as store:
        run = await store.run(run_id, principal=settings.principal)
        return await verify_run(store, run.run_id)


def _summary(verdict: Verdict) -> str:
    checked = f"Run {verdict.run_id}: {count(verdict.steps, 'prompt')} rebuilt"
    if verdict.findings:
        return f"{checked}, {count(len(verdict.findings), 'finding')}."
    return f"{checked}, each exactly what its access list grants."
