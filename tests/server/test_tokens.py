"""Estimates of tokens against what two real tokenizers counted for the same texts."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.tokens import estimate_tokens

PROSE = (
    "The harbour master kept two clocks in his office, one for the tide and one for the trains, "
    "and he trusted neither of them. On most mornings he walked down to the quay before breakfast, "
    "looked at the water, and wrote the true time into a small green book. Nobody had ever asked "
    "to see that book; still, when he retired, the council framed its last page."
)
CODE = '''def moving_average(values: list[float], window: int) -> list[float]:
    """Mean of each run of *window* values; raises ValueError for an empty window."""
    if window < 1:
        raise ValueError(f"window is {window}, but must be at least 1")
    total = sum(values[:window])
    means = [total / window]
    for old, new in zip(values, values[window:]):
        total += new - old
        means.append(total / window)
    return means
'''
JSON = (
    '{"steps": [{"subtask": "Find the boiling point of water at 3,000 m.", "worker": "qwen-1.5b", '
    '"access": []}, {"subtask": "Check the number against a table.", "worker": "smollm2", '
    '"access": [0]}], "usage": {"input_tokens": 812, "output_tokens": 164, "cost_usd": null}}'
)
MARKDOWN = """## How to run it

1. Install the package: `pip install podium`.
2. Start it with **`podium serve`** and open <http://127.0.0.1:8000>.

| option | meaning |
| --- | --- |
| `--port` | where it listens |
"""
# Name: the text, and its tokens for SmolLM2 and for Qwen2.5 as llama.cpp's /tokenize counted them.
SAMPLES: dict[str, tuple[str, int, int]] = {
    "prose": (PROSE, 78, 78),
    "code": (CODE, 116, 108),
    "json": (JSON, 100, 96),
    "markdown": (MARKDOWN, 76, 69),
    "numbers": ("Sum 1024, 2048.5 and 65536: 68608.5, or about 6.9e4 (+/- 0.1 %).", 47, 47),
    "capitals": ("WARNING: SET MAX_RETRY_COUNT AND DEFAULT_TIMEOUT_SECONDS FIRST.", 21, 12),
    "chinese": (
        "请把这个问题分成几个小步骤,并说明每一步由哪个模型来完成。昨天的会议讨论了新的计划。",
        70,
        26,
    ),
    "japanese": (
        "この問題を小さな手順に分けて、それぞれの手順を担当するモデルを説明してください。",
        71,
        24,
    ),
    "korean": ("이 문제를 작은 단계로 나누고 각 단계를 어떤 모델이 맡을지 설명해 주세요.", 84, 27),
    "russian": (
        "Разбей этот вопрос на небольшие шаги и объясни, какая модель выполнит каждый из них.",
        66,
        27,
    ),
    "arabic": ("قسّم هذا السؤال إلى خطوات صغيرة واشرح أي نموذج سينفّذ كل خطوة منها.", 72, 28),
    "hindi": ("इस प्रश्न को छोटे चरणों में बाँटें और बताएँ कि हर चरण कौन सा मॉडल करेगा।", 82, 65),
    "german": (
        "Zerlege die Frage in kleine Schritte und erkläre, welches Modell für jeden Schritt "
        "zuständig ist.",
        37,
        27,
    ),
    "spanish": (
        "Divide la pregunta en pasos pequeños y explica qué modelo se encargará de cada uno de "
        "ellos.",
        33,
        24,
    ),
    "dutch": (
        "Verdeel de vraag in kleine stappen en leg uit welk model elke stap uitvoert.",
        30,
        23,
    ),
    "indonesian": (
        "Bagilah pertanyaan ini menjadi langkah-langkah kecil dan jelaskan model mana yang "
        "mengerjakan setiap langkah.",
        39,
        29,
    ),
    "bengali": ("এই প্রশ্নটিকে ছোট ছোট ধাপে ভাগ করুন এবং প্রতিটি ধাপ কোন মডেল করবে তা ব্যাখ্যা করুন।", 151, 89),
    "georgian": (
        "დაყავი ეს კითხვა პატარა ნაბიჯებად და ახსენი, რომელი მოდელი შეასრულებს თითოეულს.",
        146,
        79,
    ),
    "emoji": ("Well done 🎉🎉 see you 👋🏽 👨‍👩‍👧 🚀 ✅ ⚠️ 🇯🇵 😂🤣😊", 53, 36),
    "base64": (
        base64.b64encode(bytes(i * 97 % 256 ^ i * i % 251 for i in range(240))).decode(),
        265,
        244,
    ),
}


@pytest.mark.parametrize("name", ["prose", "code", "json", "markdown", "numbers", "base64"])
def test_english_and_code_are_within_a_fifth_of_both_tokenizers(name: str) -> None:
    text, *counts = SAMPLES[name]
    estimate = estimate_tokens(text)
    assert all(0.8 * count <= estimate <= 1.2 * count for count in counts)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_script_is_estimated_far_too_low_or_absurdly_high(name: str) -> None:
    text, *counts = SAMPLES[name]
    estimate = estimate_tokens(text)
    assert 0.7 * max(counts) <= estimate <= 3 * min(counts)


def test_only_nothing_has_no_tokens() -> None:
    assert estimate_tokens("") == 0
    for text in ("a", " ", "\n", "\x00", "\ud800", "7" * 50):
        assert estimate_tokens(text) >= 1


@given(st.text(st.characters(exclude_categories=()), max_size=300))
@settings(derandomize=True, deadline=None)
def test_any_text_has_an_estimate_between_nothing_and_three_tokens_a_character(text: str) -> None:
    assert bool(text) <= estimate_tokens(text) <= 1 + 3 * len(text)


@pytest.mark.parametrize("unit", ["word ", "a", "A", "\n", " ", "=", "_", "漢", "aB3", '{"', "é"])
def test_a_megabyte_is_counted_too(unit: str) -> None:
    assert estimate_tokens(unit * (10**6 // len(unit))) > 10**5
