#!/usr/bin/env python3
"""A Hugging Face folder with the shape of Qwen3-0.6B, its whole vocabulary included, and random bf16 weights: for checks that are about
shapes. It has no tokenizer unless the files of another model folder are copied; a spec may name one.
  random_model.py DIR [--tokenizer FOLDER] [num_hidden_layers=2 ...]   keys of config.json that are to be others
"""
import argparse
import array
import json
import math
import pathlib
import random
import shutil
import struct
import sys

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_scaling": None, "tie_word_embeddings": True,
    "attention_bias": False, "use_sliding_window": False, "initializer_range": 0.02, "bos_token_id": 151643, "eos_token_id": 151645,
    "torch_dtype": "bfloat16",
}


def shapes(c):
    hidden, inner, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (hidden,)
        for name, shape in (("q", (q, hidden)), ("k", (kv, hidden)), ("v", (kv, hidden)), ("o", (hidden, q))):
            yield f"{at}self_attn.{name}_proj.weight", shape
        for name in ("q", "k"):
            yield f"{at}self_attn.{name}_norm.weight", (dim,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            yield f"{at}mlp.{name}_proj.weight", shape
    yield "model.norm.weight", (hidden,)


def bf16(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, help="a model folder whose tokenizer is copied")
    parser.add_argument("keys", nargs="*", help="key=value in JSON, of config.json")
    args = parser.parse_intermixed_args()
    config = CONFIG | {key: json.loads(value) for key, value in (text.split("=") for text in args.keys)}
    folder = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(args.tokenizer.glob("*tokenizer*.json")) if args.tokenizer else []
    if args.tokenizer and not files:
        sys.exit(f"{args.tokenizer} has no tokenizer's files")
    for file in files:
        shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(config):
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # The same numbers over and over; their count is a prime, so that no row is like another.
    source = random.Random(1)
    numbers = array.array("H", (bf16(source.gauss(0.0, config["initializer_range"])) for _ in range(1000003))).tobytes()
    at = 0
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(config):
            left = 2 * math.prod(shape)
            if len(shape) == 1:
                file.write(struct.pack("<H", bf16(1.0)) * (left // 2))
                continue
            while left > 0:
                piece = numbers[at:at + left]
                file.write(piece)
                left -= len(piece)
                at = (at + len(piece)) % len(numbers)


main()
