"""Makes the vocabularies and expected ids of the text tests with the reference implementations.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf && python make.py

writes byte_level.json and sentence_piece.json beside this file. Both are small vocabularies, trained on the sentences
below; the cases are sentences and random mixtures of awkward parts.
"""

import json
import os
import random
import tempfile

import sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

HERE = os.path.dirname(os.path.abspath(__file__))
random.seed(2024)

CORPUS = """The quick brown fox jumps over the lazy dog, and the dog doesn't care.
It's 12 o'clock; they'll have 345 apples, 1999 pears and 20 euros left in the house.
A graph of nodes is planned once, then the plan runs again and again on the device.
When the weather is warm the children play in the garden until the evening comes.
for i in range(10):
    print("value", i, i * i)  # squares

Où est la bibliothèque? Über den Wolken muß die Freiheit wohl grenzenlos sein.
The answer of the model begins here, and the answer of the user ends there.
""" * 4

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def split(regex):
    return [pre.Split(Regex(regex), "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)]


RULES = {
    "gpt-2": (None, split(GPT2), False),
    "smollm": (None, [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)], False),
    "llama-bpe": (None, split(LLAMA3), True),
    "qwen2": (normalizers.NFC(), split(QWEN2), False),
}
PARTS = ["the", "a", "b", " ", "  ", "\n", "\r\n", "\t", "1", "23", "'s", "'LL", "'", "é", "e\u0301", "😀", "\u200d", "ß", "!", "?!",
         "<|end|>", "<tool>", "Ⅷ", "½", "\u3000", "\u00a0", "x", "node", " graph", "▁", "<s>", "\n\n", "日本", "answer", "<0x41>"]


def texts(n):
    fixed = ["", " ", "The answer of the user ends.", "  two  spaces ", "It's I'LL 12345\tdon't\n\n  x", "<|end|>", "a<|end|>\n<tool>b", "<s> </s>"]
    mixed = ["".join(random.choice(PARTS) for _ in range(random.randint(1, 24))) for _ in range(n)]
    return fixed + mixed


def byte_level():
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre.Sequence(split(GPT2))
    made.train_from_iterator(CORPUS.splitlines(True), trainer)
    model = json.loads(made.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(m) for m in model["merges"]]
    # A whole word that no merges reach: only a rule that looks words up finds it.
    vocab["Ġzebra"] = len(vocab)
    special = {"<tool>": len(vocab), "<|end|>": len(vocab) + 1}
    tokens = sorted(vocab, key=vocab.get) + list(special)
    types = [1] * len(vocab) + [4, 3]
    cases = {}
    for name, (normalizer, steps, ignore_merges) in RULES.items():
        tok = Tokenizer(models.BPE(vocab=dict(vocab), merges=merges, ignore_merges=ignore_merges))
        if normalizer:
            tok.normalizer = normalizer
        tok.pre_tokenizer = pre.Sequence(steps)
        tok.decoder = decoders.ByteLevel()
        tok.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
        tok.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
        list_of = []
        for text in texts(40) + [" zebra", " garden zebra"]:
            row = [text]
            for plain in (True, False):
                tok.encode_special_tokens = plain
                row.append(tok.encode(text, add_special_tokens=False).ids)
            list_of.append(row)
        cases[name] = list_of
        if name == "smollm":
            tok.encode_special_tokens = False
            tok.save(os.path.join(HERE, "tokenizer_byte_level.json"), pretty=False)
    return {"tokens": tokens, "types": types, "merges": [" ".join(m) for m in merges], "cases": cases}


def sentence_piece():
    out = {}
    kinds = {
        "llama": dict(byte_fallback=True, add_dummy_prefix=True, vocab_size=400),
        "gemma": dict(byte_fallback=True, add_dummy_prefix=False, vocab_size=400, user_defined_symbols=["▁▁", "<tool>", "\n\n"]),
        "no_bytes": dict(byte_fallback=False, add_dummy_prefix=True, vocab_size=160),
    }
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "corpus.txt")
        with open(corpus, "w") as f:
            f.write(CORPUS)
        for name, options in kinds.items():
            prefix = os.path.join(folder, name)
            spm.SentencePieceTrainer.train(
                input=corpus, model_prefix=prefix, model_type="bpe", normalization_rule_name="identity",
                remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True,
                character_coverage=0.99, minloglevel=2, hard_vocab_limit=False, **options)
            sp = spm.SentencePieceProcessor(model_file=prefix + ".model")
            n = sp.get_piece_size()
            user = options.get("user_defined_symbols", [])
            kind = lambda i: (2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i)
                              else 5 if sp.is_unused(i) else 4 if sp.id_to_piece(i) in user else 1)
            if name == "llama":
                # Two pieces that longer ones are made of become unused: they must be taken apart again.
                from sentencepiece import sentencepiece_model_pb2 as pb
                proto = pb.ModelProto()
                proto.ParseFromString(open(prefix + ".model", "rb").read())
                for piece in proto.pieces:
                    if piece.piece in ("▁the", "an", "er"):
                        piece.type = 5
                sp = spm.SentencePieceProcessor(model_proto=proto.SerializeToString())
            cases = []
            for text in texts(60):
                ids = sp.encode(text)
                cases.append([text, ids, sp.decode(ids)])
            out[name] = {
                "tokens": [sp.id_to_piece(i) for i in range(n)],
                "scores": [sp.get_score(i) for i in range(n)],
                "types": [kind(i) for i in range(n)],
                "space_prefix": options["add_dummy_prefix"],
                "cases": cases,
            }
    return out


for file, value in [("byte_level.json", byte_level()), ("sentence_piece.json", sentence_piece())]:
    with open(os.path.join(HERE, file), "w") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
