"""Makes a model of under a million parameters, with a tokenizer, from a job's own questions.

It downloads nothing, and shows within minutes on one processor core what a job does with a real
model: training.md calls it C. It can learn to choose workers, and nothing else.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from podium_lab.train.learner.warm_start import example_plans
from podium_lab.train.opening import Ground, policy_card

VOCABULARY = 600
LAYERS, WIDTH, HEADS = 4, 128, 4
WINDOW = 1024
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for message in messages %}"
    f"{{{{ '{START}' + message['role'] + '\\n' + message['content'] + '{END}' + '\\n' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{START}assistant\\n' }}}}{{% endif %}}"
)
"""Messages between marks, as the family of Qwen has them."""
EXAMPLES = 400
"""Questions that the tokenizer is made from."""


def corpus(ground: Ground) -> list[str]:
    """What the tokenizer is made from: prompts of the training part, and plans."""
    card = policy_card(ground.job)
    items = ground.part("train")[:EXAMPLES]
    prompts = [ground.environment.prompt(item, ground.pool, card) for item in items]
    return prompts + example_plans(ground, len(prompts))


def make_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes and of what is frequent in *texts*; digits stay alone."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=WINDOW
    )
    made.chat_template = TEMPLATE
    return made


def make_model(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlamaForCausalLM:
    """A model that has learned nothing."""
    torch.manual_seed(seed)
    known = tokenizer.get_vocab()
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=WINDOW,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=known[END],
            pad_token_id=known[PAD],
        )
    )


def make(ground: Ground) -> Path:
    """The folder of the model of a job, as any base has one; made once for a job."""
    folder = ground.job.folder / "base"
    if not folder.is_dir():
        partial = folder.with_name("base.partial")
        shutil.rmtree(partial, ignore_errors=True)
        tokenizer = make_tokenizer(corpus(ground))
        make_model(tokenizer, seed=ground.job.seed).save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        partial.rename(folder)
    return folder
