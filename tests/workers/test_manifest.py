import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_workers.entries.common import UNKNOWN_WINDOW
from podium_workers.entries.hosted import LONGEST_REPLY, AnthropicEntry, OpenAIEntry
from podium_workers.entries.named import CommandEntry, LocalEntry, ProgramEntry, ScriptedEntry
from podium_workers.errors import ManifestError
from podium_workers.manifest import (
    PoolManifest,
    default_manifest,
    load_manifest,
    parse_manifest,
    shipped,
)
from podium_workers.prices import row_of
from podium_workers.weights.catalogue import lookup
from podium_workers.wire import entries, items
from podium_workers.worker import LongPrice, Price, RateLimits

SHIPPED = ("local", "hosted", "openrouter", "mixed", "programs", "assistants", "vllm", "served")
FULL = """
conductor = "claude"
asked.form = "lists"
asked.shows = "ordinals"

[[worker]]
name = "gpt"
kind = "openai"
model = "my-model"
base_url = "https://models.example/v1"
api_key_env = "MODELS_KEY"
where = "hosted"
context_window = 400_000
max_output_tokens = 8192
good_at = "everything"
role = "Be brief."
parallel = 7
first_byte_s = 300
idle_s = 30.5
temperature = 0.2
price = { input = 1.25, output = 10, cached_input = 0.125 }

[[worker]]
name = "claude"
kind = "anthropic"
model = "claude-opus-5-5"

[[worker]]
name = "small"
kind = "local"
gguf = "/models/some.gguf"
threads = 2
temperature = 1

[[worker]]
name = "dry"
kind = "scripted"
replies = ["one", "two"]

[[worker.rule]]
when = "plan"
reply = '{"steps": []}'
"""


def entry(**keys: object) -> str:
    lines = {"name": "gpt", "kind": "openai", "model": "m"} | keys
    written = [f"{key} = {_toml(value)}" for key, value in lines.items() if value is not None]
    return "[[worker]]\n" + "\n".join(written)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def problem(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "pool.toml")
    message = str(caught.value)
    assert message.startswith("pool.toml: ")
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_everything_that_a_manifest_can_say_is_kept():
    manifest = parse_manifest(FULL, "pool.toml")

    gpt, claude, small, dry = manifest.workers
    assert (manifest.conductor, manifest.asked.form, manifest.asked.shows) == (
        "claude",
        "lists",
        "ordinals",
    )
    assert manifest.names == ("gpt", "claude", "small", "dry")
    assert isinstance(gpt, OpenAIEntry)
    assert (gpt.url, gpt.key_variable) == ("https://models.example/v1", "MODELS_KEY")
    assert (gpt.limits.first_byte_s, gpt.limits.idle_s, gpt.temperature) == (300, 30.5, 0.2)
    assert gpt.card.model_dump() == {
        "name": "gpt",
        "kind": "openai",
        "model": "my-model",
        "where": "hosted",
        "context_window": 400_000,
        "max_output_tokens": 8192,
        "reasoning_floor": 0,
        "price": {
            "input": 1.25,
            "output": 10,
            "cached_input": 0.125,
            "cache_write": None,
            "cache_write_long": None,
            "long": (),
        },
        "good_at": "everything",
        "role": "Be brief.",
        "parallel": 7,
        "rates": {
            "account": "models.example MODELS_KEY my-model",
            "requests_per_minute": None,
            "tokens_per_minute": None,
        },
    }
    assert isinstance(claude, AnthropicEntry)
    assert (claude.key_variable, claude.temperature) == ("ANTHROPIC_API_KEY", None)
    assert isinstance(small, LocalEntry)
    assert (small.gguf, small.threads, small.temperature) == ("/models/some.gguf", 2, 1)
    assert small.card.where == "local"
    assert isinstance(dry, ScriptedEntry)
    assert dry.replies == ("one", "two")
    assert dry.rules[0].when == "plan"


def test_price_window_and_limit_of_a_known_model_come_from_the_table():
    text = entry(name="c", kind="anthropic", model="claude-opus-5-5")
    card = parse_manifest(text, "p").workers[0].card
    assert (card.context_window, card.max_output_tokens) == (1_000_000, LONGEST_REPLY)
    known = row_of("claude-opus-5-5")
    assert known
    assert card.price == known.price


def test_a_window_beyond_which_no_price_is_known_has_none():
    windows = {100_000: True, 272_000: True, 1_050_000: True, 1_050_001: False}
    for window, known in windows.items():
        text = entry(model="gpt-6.2-sol", context_window=window)
        card = parse_manifest(text, "p").workers[0].card
        assert (card.price is not None) == known, window
    unset = parse_manifest(entry(model="gpt-6.2-sol"), "p").workers[0].card
    assert unset.context_window == 272_000, (
        "no prompt meets the dear rates unless that is asked for"
    )


def test_a_price_can_have_rates_for_long_prompts():
    long = "{ above = 1000, input = 3, output = 4 }"
    text = entry() + f"\nprice = {{ input = 1, output = 2, long = [{long}] }}"
    assert parse_manifest(text, "p").workers[0].card.price == Price(
        input=1, output=2, long=(LongPrice(above=1000, input=3, output=4),)
    )
    with pytest.raises(ManifestError, match=r"there is no such key; did you mean 'above'\?"):
        parse_manifest(text.replace("above", "abovee"), "p")


@pytest.mark.parametrize("thinking", ['"off"', '"adaptive"', "4000"])
def test_thinking_and_effort_of_a_claude_can_be_set(thinking: str):
    text = f"{entry(name='c', kind='anthropic', effort='max')}\nthinking = {thinking}"
    worker = parse_manifest(text, "p").workers[0]
    assert isinstance(worker, AnthropicEntry)
    assert (repr(worker.thinking).replace("'", '"'), worker.effort) == (thinking, "max")


@pytest.mark.parametrize("thinking", ['"on"', "100", "true"])
def test_a_way_of_thinking_that_there_is_not_is_an_error(thinking: str):
    text = f"{entry(name='c', kind='anthropic')}\nthinking = {thinking}"
    with pytest.raises(ManifestError, match="thinking"):
        parse_manifest(text, "p")


def test_a_known_name_at_another_address_has_no_known_price():
    text = entry(model="gpt-6.2-sol", base_url="https://reseller.example/v1")
    assert parse_manifest(text, "p").workers[0].card.price is None


def test_nothing_known_of_a_model_means_a_small_window_and_an_unknown_price():
    card = parse_manifest(entry(), "p").workers[0].card
    assert (card.context_window, card.max_output_tokens) == (UNKNOWN_WINDOW, UNKNOWN_WINDOW // 2)
    assert card.price is None


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:11434", "[::1]:1"])
def test_an_address_on_this_machine_is_local_needs_no_key_and_costs_nothing(host: str):
    worker = parse_manifest(entry(base_url=f"http://{host}/v1"), "p").workers[0]
    assert isinstance(worker, OpenAIEntry)
    assert (worker.card.where, worker.key_variable) == ("local", None)
    assert worker.card.price == Price(input=0, output=0)


def test_where_can_be_said_against_the_address():
    text = entry(base_url="http://10.0.0.5/v1", where="local")
    assert parse_manifest(text, "p").workers[0].card.where == "local"
    text = entry(base_url="http://127.0.0.1/v1", where="hosted")
    assert parse_manifest(text, "p").workers[0].card.where == "hosted"


GATEWAY = "http://127.0.0.1:4000"
"""LiteLLM's usual address, from where prompts go on to whatever provider."""


@pytest.mark.parametrize("kind", ["openai", "anthropic", "vllm"])
def test_a_gateway_on_this_machine_is_neither_local_nor_free(kind: str):
    text = entry(kind=kind, model="claude-opus-5-5", base_url=GATEWAY)
    card = parse_manifest(text, "p").workers[0].card
    assert (card.where, card.price) == ("hosted", None)
    assert card.rates == RateLimits(account="127.0.0.1  claude-opus-5-5")


def test_a_manifest_can_say_that_a_gateway_leads_to_what_is_local_or_has_a_price():
    local = parse_manifest(entry(base_url=GATEWAY, where="local"), "p").workers[0].card
    assert (local.where, local.price) == ("local", Price(input=0, output=0))
    text = entry(base_url=GATEWAY) + "\nprice = { input = 1, output = 2 }"
    priced = parse_manifest(text, "p").workers[0].card
    assert (priced.where, priced.price) == ("hosted", Price(input=1, output=2))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no worker"),
        ("worker = []", "names no worker"),
        ("x = 1\n" + entry(), "x: there is no such key"),
        ("[[workers]]\nname = 'a'", "did you mean 'worker'?"),
        ("conductr = 'gpt'\n" + entry(), "did you mean 'conductor'?"),
        ("conductor = 'other'\n" + entry(), "'other' is not a worker of this pool"),
        (entry(steps=False), "gpt has steps = false, so that nobody does what is planned"),
        (
            "\n".join((entry(steps=False), entry(name="b", steps=False), entry(name="c"))),
            "gpt and b have steps = false; only one worker",
        ),
        (
            "conductor = 'b'\n" + entry(steps=False) + "\n" + entry(name="b"),
            "set conductor = 'gpt', or take steps = false out",
        ),
        (entry(steps="no") + "\n" + entry(name="b"), "steps: input should be a valid boolean"),
        ("asked.max_steps = 0\n" + entry(), "asked.max_steps: input should be greater"),
        ("asked.step = 2\n" + entry(), "asked.step: there is no such key; did you mean"),
        ("asked.form = 'xml'\n" + entry(), "asked.form: input should be 'json' or 'lists'"),
        ("a = [", "not valid TOML"),
        ("a = 1\nb = = 2", "line 2"),
        ("a = " + "9" * 5000, "not valid TOML"),
        (entry(modle="m"), "worker 1 ('gpt'), modle: there is no such key; did you mean 'model'?"),
        (entry(gguf="x"), "worker 1 ('gpt'), gguf: there is no such key"),
        (entry(kind="opnai"), "there is no kind 'opnai'; did you mean 'openai'?"),
        (entry(kind=None), "kind is missing"),
        (entry(model=None), "worker 1 ('gpt'), model: this key is missing"),
        (entry(model=""), "model"),
        (entry(name="two words"), "name: use letters, digits"),
        (entry(name="podium"), "'podium' has a meaning of its own"),
        (entry(name="caller"), "'caller' has a meaning of its own"),
        (entry() + "\n" + entry(), "two workers are named 'gpt'"),
        (entry(context_window="big"), "context_window: input should be a valid integer"),
        (entry(context_window="8192"), "context_window: input should be a valid integer"),
        (entry(context_window=True), "context_window"),
        (entry(context_window=5), "context_window"),
        (entry(parallel=0), "parallel"),
        (entry(temperature=-0.1), "temperature: input should be greater than or equal to 0"),
        (entry() + "\ntemperature = inf", "temperature: input should be a finite number"),
        (entry(temperature="warm"), "temperature"),
        (entry(good_at=5), "good_at: input should be a valid string (found 5)"),
        (entry(where="cloud"), "where"),
        (entry(base_url="models.example/v1"), "base_url: this must be an address"),
        (entry(base_url="ftp://models.example"), "base_url: this must be an address"),
        (entry(base_url="http://h:notaport/"), "base_url: this must be an address"),
        (entry(base_url="http://[::1"), "base_url: this must be an address"),
        (entry() + "\nprice = { input = 1 }", "price.output: this key is missing"),
        (entry() + "\nprice = { input = '1', output = 2 }", "price.input"),
        (entry() + "\nprice = { input = 1, output = -2 }", "price.output"),
        (entry() + "\nprice = { input = 1, output = 2, cahced_input = 1 }", "'cached_input'?"),
        ('[[worker]]\nname = "d"\nkind = "scripted"', "needs replies"),
        ('[[worker]]\nname = "d"\nkind = "scripted"\nreplies = [1]', "replies"),
        (
            '[[worker]]\nname = "d"\nkind = "scripted"\n[[worker.rule]]\nwhn = "x"\nreply = "y"',
            "rule",
        ),
        ("worker = 5", "worker: this must be a list (found 5)"),
        ("worker = ['a']", "worker 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_what_to_type(text: str, words: str):
    assert words in problem(text)


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-0123456789abcdef",
        "sk_live_0123456789abcdef",
        "AIzaSyA0123456789abcdefg",
        "gsk_0123456789abcdefghij",
        "hf_0123456789abcdefghij",
    ],
)
def test_a_key_in_a_manifest_is_refused_without_being_repeated(key: str):
    for text in (
        entry(api_key_env=key),
        entry(api_key=key),
        entry(base_url=f"https://user:{key}@models.example"),
        entry(base_url=f"https://models.example/?key={key}"),
        entry(name=key, kind="nonsense"),
        entry(context_window=key),
    ):
        assert key not in problem(text)
    assert "never the key itself" in problem(entry(api_key_env=key))
    assert 'api_key_env = "OPENAI_API_KEY"' in problem(entry(api_key=key))


def test_a_file_that_is_missing_or_no_text_is_an_error_that_names_it(tmp_path: Path):
    missing = tmp_path / "pool.toml"
    with pytest.raises(ManifestError, match=r"pool\.toml: there is no such file"):
        load_manifest(missing)
    with pytest.raises(ManifestError, match="cannot be read"):
        load_manifest(tmp_path)
    missing.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="cannot be read"):
        load_manifest(missing)
    missing.write_text(FULL)
    assert load_manifest(missing).names == ("gpt", "claude", "small", "dry")


def test_a_relative_path_of_a_model_starts_at_the_manifests_folder(tmp_path: Path):
    text = ""
    for name, gguf in (("a", "my.gguf"), ("b", "/models/my.gguf"), ("c", "smollm2")):
        text += f'[[worker]]\nname = "{name}"\nkind = "local"\ngguf = "{gguf}"\n'
    (tmp_path / "pool.toml").write_text(text)
    models = [worker.card.model for worker in load_manifest(tmp_path / "pool.toml").workers]
    assert models == [str(tmp_path / "my.gguf"), "/models/my.gguf", "smollm2"]


@given(st.text())
def test_no_text_whatever_raises_anything_but_a_manifest_error(text: str):
    with pytest.raises(ManifestError):
        parse_manifest(text, "pool.toml")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    ["name", "kind", "model", "gguf", "replies", "rule", "price", "base_url", "api_key_env", "role"]
)


@given(
    st.lists(
        st.dictionaries(KEYS, VALUES, max_size=6).map(
            lambda keys: {"name": "a", "kind": "openai"} | keys
        )
        | st.dictionaries(KEYS, VALUES, max_size=6).map(
            lambda keys: keys | {"name": "a", "kind": "scripted"}
        ),
        max_size=3,
    ),
    st.dictionaries(st.sampled_from(["conductor", "asked", "x"]), VALUES, max_size=2),
)
def test_no_values_whatever_raise_anything_but_a_manifest_error(
    workers: list[dict[str, object]], top: dict[str, object]
):
    text = "\n".join(f"{key} = {_any_toml(value)}" for key, value in top.items())
    text += "".join(
        "\n[[worker]]\n" + "\n".join(f"{key} = {_any_toml(value)}" for key, value in keys.items())
        for keys in workers
    )
    try:
        tomllib.loads(text)
        parsed = parse_manifest(text, "pool.toml")
    except (ManifestError, tomllib.TOMLDecodeError):
        return
    assert parsed.names == ("a",)


def _any_toml(value: object) -> str:
    """*value* as TOML, well enough: what does not come out right is not valid TOML."""
    fields, listed = entries(value), items(value)
    if isinstance(value, dict):
        pairs = (f"{_any_toml(key)} = {_any_toml(inner)}" for key, inner in fields.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_any_toml(inner) for inner in listed) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(letter):08x}" for letter in value) + '"'
    return '""' if value is None else _toml(value)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_manifest_loads_and_says_what_each_worker_is_good_at(name: str):
    manifest = shipped(name)
    assert all(worker.card.good_at for worker in manifest.workers)
    assert all(worker.card.context_window >= 4096 for worker in manifest.workers)
    for worker in manifest.workers:
        if isinstance(worker, LocalEntry):
            assert worker.card.context_window <= lookup(worker.gguf).context_window


@pytest.mark.parametrize("name", ["hosted", "mixed"])
def test_every_hosted_model_that_is_shipped_has_a_known_price(name: str):
    for worker in shipped(name).workers:
        assert worker.card.price is not None, worker.name


def test_the_folder_of_manifests_repeats_the_shipped_ones():
    folder = Path(__file__).parents[2] / "manifests" / "pools"
    package = files("podium_workers") / "pools"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{n}.toml" for n in SHIPPED)
    for name in SHIPPED:
        repeated = (folder / f"{name}.toml").read_bytes()
        assert repeated == (package / f"{name}.toml").read_bytes(), f"copy {name}.toml again"


def pool_of(env: dict[str, str]) -> tuple[PoolManifest, str]:
    manifest, why = default_manifest(env)
    assert "secret" not in why
    assert "\n" not in why
    return manifest, why


def test_without_keys_the_pool_is_local_and_says_why():
    manifest, why = pool_of({"PATH": "/bin", "OPENAI_API_KEY": ""})
    assert manifest == shipped("local")
    assert manifest.names == ("qwen-1.5b", "qwen-0.5b", "smollm2")
    assert "qwen-1.5b" in why
    assert "OPENAI_API_KEY" in why


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        ("OPENAI_API_KEY", ("gpt-sol", "gpt-luna")),
        ("ANTHROPIC_API_KEY", ("claude-opus", "claude-haiku")),
        ("GEMINI_API_KEY", ("gemini-flash",)),
        ("GOOGLE_API_KEY", ("gemini-flash",)),
        ("OPENROUTER_API_KEY", ("claude-opus", "gpt-terra")),
    ],
)
def test_a_key_gives_the_models_that_it_opens(variable: str, names: tuple[str, ...]):
    manifest, why = pool_of({variable: "secret"})
    assert manifest.names == names
    for worker in manifest.workers:
        assert isinstance(worker, OpenAIEntry | AnthropicEntry)
        assert worker.key_variable == variable
        assert worker.card.where == "hosted"
    assert f"{variable} is set" in why


def test_several_keys_give_one_pool_in_the_order_of_strength():
    manifest, why = pool_of({"OPENAI_API_KEY": "secret", "ANTHROPIC_API_KEY": "secret"})
    assert manifest.names == ("claude-opus", "gpt-sol", "gpt-luna", "claude-haiku")
    assert "ANTHROPIC_API_KEY and OPENAI_API_KEY are set" in why


def test_openrouter_counts_only_where_there_is_no_other_key():
    manifest, _ = pool_of({"OPENAI_API_KEY": "secret", "OPENROUTER_API_KEY": "secret"})
    assert manifest.names == ("gpt-sol", "gpt-luna")


WRITER = '[[worker]]\nname = "writer"\nkind = "local"\ngguf = "smollm2"\ncontext_window = 8192\n'


PLANS = '[[worker]]\nname = "plans"\nkind = "scripted"\nreplies = ["x"]\nsteps = false\n'


def test_a_manifest_tells_who_only_writes_plans():
    manifest = parse_manifest(PLANS + WRITER, "pool.toml")
    assert manifest.planner == manifest.workers[0]
    assert [entry.name for entry in manifest.doers] == ["writer"]
    assert parse_manifest(WRITER, "pool.toml").planner is None


def programs(by: str, *, top: str = "") -> str:
    """A manifest with a writer and a worker for programs that asks *by*."""
    return f'{top}[[worker]]\nname = "programs"\nkind = "program"\nby = "{by}"\n{WRITER}'


def test_a_worker_for_programs_takes_what_it_can_from_the_one_that_writes_them():
    first, second = parse_manifest(programs("writer"), "pool.toml").workers
    assert isinstance(first, ProgramEntry)
    card = first.card_over(second.card)
    assert (card.name, card.kind, card.model) == ("programs", "program", "smollm2")
    assert (card.where, card.price) == ("local", second.card.price)
    assert card.context_window < second.card.context_window
    assert "Python program" in card.good_at


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (programs("wrter"), "lets 'wrter' write its programs"),
        (programs("programs"), "choose one of writer"),
        (programs("plans") + PLANS, "worker of this pool that does steps; choose one of writer"),
        (programs("writer").replace("by =", "steps = false\nby ="), "writes programs, not plans"),
        (programs("writer", top='conductor = "programs"\n'), "choose 'writer'"),
        (
            programs("again") + '[[worker]]\nname = "again"\nkind = "program"\nby = "writer"\n',
            "choose one of writer",
        ),
        (programs("writer").replace("by =", "of ="), "there is no such key"),
    ],
)
def test_a_worker_for_programs_needs_another_worker_that_writes(text: str, problem: str):
    with pytest.raises(ManifestError, match=problem):
        parse_manifest(text, "pool.toml")


def command(text: str) -> str:
    return f'[[worker]]\nname = "helper"\nkind = "command"\n{text}\n'


def test_an_assistant_is_named_by_its_preset_and_a_program_by_its_command():
    preset = parse_manifest(command('preset = "codex"\nmodel = "m"'), "pool.toml").workers[0].card
    assert (preset.model, preset.where, preset.price) == ("m", "hosted", None)
    text = command('command = ["/usr/bin/helper", "-q"]\nwhere = "local"')
    other = parse_manifest(text, "pool.toml").workers[0].card
    assert (other.model, other.where, other.price) == ("helper", "local", Price(input=0, output=0))
    assert other.context_window == UNKNOWN_WINDOW


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "name either a preset"),
        ('preset = "claude"\ncommand = ["claude"]', "name either a preset"),
        ("command = []", "name either a preset"),
        ('preset = "cursor"', "'claude', 'codex' or 'gemini'"),
        ('command = "helper -q"', "must be a list"),
        ('command = ["helper"]\nargs = ["-q"]', "put them into command"),
        ('preset = "claude"\nenv = ["sk-abcdef123456"]', "never their values"),
        ('preset = "claude"\nshell = true', "there is no such key"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(text: str, problem: str):
    with pytest.raises(ManifestError, match=problem) as caught:
        parse_manifest(command(text), "pool.toml")
    assert "abcdef" not in str(caught.value)


def test_a_commands_paths_start_at_the_manifests_folder(tmp_path: Path):
    text = command('command = ["./helper", "./x"]\nfolder = "project"')
    (tmp_path / "pool.toml").write_text(text)
    (entry,) = load_manifest(tmp_path / "pool.toml").workers
    assert isinstance(entry, CommandEntry)
    assert entry.command == (str(tmp_path / "helper"), "./x")
    assert entry.folder == str(tmp_path / "project")


def test_workers_of_one_account_share_what_it_allows():
    def rates(**more: object) -> RateLimits | None:
        text = entry(base_url="https://models.example/v1", api_key_env="MODELS_KEY", **more)
        return parse_manifest(text, "p").workers[0].card.rates

    own = rates(model="a", requests_per_minute=3, tokens_per_minute=9000)
    assert own == RateLimits(
        account="models.example MODELS_KEY a", requests_per_minute=3, tokens_per_minute=9000
    )
    shared = [rates(model=model, account="ours") for model in ("a", "b")]
    assert shared[0] == shared[1] == RateLimits(account="ours")
    text = entry(base_url="http://127.0.0.1:8000/v1")
    assert parse_manifest(text, "p").workers[0].card.rates is None, "one's own server has none"
    with pytest.raises(ManifestError, match="requests_per_minute"):
        rates(requests_per_minute=0)
