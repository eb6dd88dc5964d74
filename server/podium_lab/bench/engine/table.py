"""The figures as Markdown."""

from collections.abc import Iterator

from podium_lab.bench.engine.figures import Figures, Result

NAMES = {
    "bare": "the steps alone",
    "podium": "**Podium**",
    "langgraph": "LangGraph, `sync`",
    "langgraph_async": "LangGraph, `async` (its default)",
    "agent_framework": "Agent Framework, flush added",
    "agent_framework_unflushed": "Agent Framework as shipped, never flushed",
}


def table(result: Result) -> Iterator[str]:
    """What was measured, line by line."""
    amount, machine = result.amount, result.machine
    runs, steps, delay = amount.runs, amount.steps, f"{amount.delay_s * 1000:g} ms"
    yield (
        f"{machine['cores']} cores, {machine['system']}, Python {machine['python']}, SQLite "
        f"{machine['sqlite']}, one flush of 4 KiB {machine['flush_ms']} ms, load "
        f"{machine['load']} at the beginning; medians of {amount.rounds} rounds after one to warm "
        f"up, of {amount.chains} for the chain."
    )
    yield ""
    yield (
        f"| | {runs} runs x {steps} x {delay} | over floor | CPU a run | flushes a run "
        "| chain of 3 | over critical path | first step |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    yield from map(_main_row, result.engines)
    yield ""
    yield (
        f"| | {runs} runs over HTTP | CPU a run over HTTP | memory of a run at work "
        f"| {runs} stopped runs resumed | over floor | every step once | load |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    expected = runs * amount.steps_left
    yield from (_other_row(engine, expected) for engine in result.engines)
    yield ""
    yield from _search(result)
    for name, why in result.left_out.items():
        yield f"- Left out: {name}. {why}"


def _main_row(it: Figures) -> str:
    flushes = "" if it.syncs_per_run is None else f"{it.syncs_per_run:.1f}"
    return (
        f"| {NAMES[it.name]} | {it.runs_wall_s:.2f} s | {it.runs_wall_over_floor:.2f} "
        f"| {it.runs_cpu_net_ms:.1f} ms | {flushes} | {it.chain_wall_s * 1000:.0f} ms "
        f"| {it.chain_wall_over_critical_path:.3f} | {it.first_step_ms:.1f} ms |"
    )


def _other_row(it: Figures, expected: int) -> str:
    exact = "yes" if it.calls_exact else f"**no**, {it.resume_calls} for {expected} when resumed"
    return (
        f"| {NAMES[it.name]} | {it.http_wall_s:.2f} s | {it.http_cpu_net_ms:.1f} ms "
        f"| {it.kb_per_run_at_work:.1f} KB | {it.resume_wall_s:.2f} s "
        f"| {it.resume_wall_over_floor:.2f} | {exact} | {it.load:g} |"
    )


def _search(result: Result) -> Iterator[str]:
    found = result.search
    yield f"| in a ledger of {found['runs']} runs ({found['file_mb']} MB) | median | 95 % | worst |"
    yield "|---|---|---|---|"
    kinds = {"one_word": "search for one word", "two_words": "for two", "newest": "list the newest"}
    for name, said in kinds.items():
        cells = [f"{found[f'{name}_{part}_ms']:.1f} ms" for part in ("p50", "p95", "max")]
        yield f"| {said} | {' | '.join(cells)} |"
    yield ""
    commits = int(result.podium.facts["commits"])
    done = result.amount.runs * (result.amount.rounds + 1)
    yield (
        "Flushes are counted in a run under strace, which slows an engine and so lets more commits "
        f"share a flush. In the timed rounds, without it, Podium made {commits / done:.1f} commits "
        "a run, each of which is a flush."
    )
    yield ""
    yield f"A run of Podium that waits for its caller keeps {result.kb_per_run_at_rest:.2f} KB."
