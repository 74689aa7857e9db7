"""Writes a Qwen3 of a public shape with random bf16 weights as a Hugging Face folder, for runs that need one where nothing can
be downloaded. The tokenizer's files are copied from another model folder; ids above its tokens decode to nothing.

    python3 bench/random_model.py --tokenizer DIR [--shape qwen3-0.6b] [--layers N] [--vocab N] OUT
"""
import argparse
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file

SHAPES = {
    "qwen3-0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16),
}


def tensor_shapes(config):
    hidden, heads = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    keys, middle = config["num_key_value_heads"] * config["head_dim"], config["intermediate_size"]
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", [hidden]
        yield at + "self_attn.q_proj.weight", [heads, hidden]
        yield at + "self_attn.k_proj.weight", [keys, hidden]
        yield at + "self_attn.v_proj.weight", [keys, hidden]
        yield at + "self_attn.q_norm.weight", [config["head_dim"]]
        yield at + "self_attn.k_norm.weight", [config["head_dim"]]
        yield at + "self_attn.o_proj.weight", [hidden, heads]
        yield at + "post_attention_layernorm.weight", [hidden]
        yield at + "mlp.gate_proj.weight", [middle, hidden]
        yield at + "mlp.up_proj.weight", [middle, hidden]
        yield at + "mlp.down_proj.weight", [hidden, middle]
    yield "model.norm.weight", [hidden]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True, help="a model folder")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("out")
    args = parser.parse_args()

    torch.manual_seed(0)
    config = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=args.vocab, num_key_value_heads=8,
                  head_dim=128, hidden_act="silu", max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1e6,
                  rope_scaling=None, tie_word_embeddings=True, attention_bias=False, use_sliding_window=False,
                  initializer_range=0.02, bos_token_id=None, eos_token_id=1, pad_token_id=0, torch_dtype="bfloat16",
                  **SHAPES[args.shape])
    if args.layers:
        config["num_hidden_layers"] = args.layers
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(pathlib.Path(args.tokenizer).glob("*tokenizer*.json"))
    if not files:
        sys.exit(f"{args.tokenizer} has no tokenizer's files")
    for file in files:
        shutil.copy(file, out)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = {}
    for name, shape in tensor_shapes(config):
        made = torch.empty(shape, dtype=torch.bfloat16, device=device)
        tensors[name] = (made.fill_(1) if name.endswith("norm.weight") else made.normal_(0, 0.02)).cpu()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    print(f"{out}: {len(tensors)} tensors, {sum(one.numel() * 2 for one in tensors.values())} bytes")


main()
