"""The work of `vime bench train` done by Hugging Face transformers on the same GPU: a Qwen3 of the same shape with random
weights, bf16, SDPA attention, fused AdamW, sequences of the same length in a batch. One JSON object on stdout.

    python3 bench/hf_train.py --shape qwen3-4b [--layers N] [--micro-batches 1,4] [--checkpointing auto|on|off]
"""
import argparse
import json
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

SHAPES = {
    "qwen3-0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16),
    "qwen3-4b": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32),
}


def flops(config, tokens, sequence, head):
    heads = config.num_attention_heads * config.head_dim
    layer = config.hidden_size * (2 * heads + 2 * config.num_key_value_heads * config.head_dim + 3 * config.intermediate_size)
    parameters = layer * config.num_hidden_layers + (config.vocab_size * config.hidden_size if head else 0)
    return 6 * parameters * tokens + 6 * heads * sequence * tokens * config.num_hidden_layers


def measure(work, repeats):
    work()
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-4b")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--micro-batches", default="1,4")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--checkpointing", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--peak-tflops", type=float, default=989)
    args = parser.parse_args()

    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=151936, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960,
                         rope_theta=1e6, tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa",
                         **SHAPES[args.shape])
    if args.layers:
        config.num_hidden_layers = args.layers
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    sequences = args.tokens // args.sequence
    cases = []

    def add(name, micro_batches, seconds, head, checkpointing):
        rate = flops(config, args.tokens * micro_batches, args.sequence, head) / seconds / 1e12
        cases.append({"case": name, "micro_batches": micro_batches, "seconds": seconds,
                      "tokens_per_s": args.tokens * micro_batches / seconds, "model_tflops": rate,
                      "mfu": rate / args.peak_tflops, "peak_bytes": torch.cuda.max_memory_allocated(),
                      "gradient_checkpointing": checkpointing})

    def attempt(run, *arguments):
        for on in {"auto": [False, True], "on": [True], "off": [False]}[args.checkpointing]:
            if on:
                model.gradient_checkpointing_enable()
            else:
                model.gradient_checkpointing_disable()
            try:
                run(on, *arguments)
                return
            except torch.cuda.OutOfMemoryError:
                model.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
        cases.append({"case": run.__name__, "micro_batches": arguments, "error": "out of memory"})

    def layers(checkpointing):
        x = torch.randn(sequences, args.sequence, config.hidden_size, device="cuda", dtype=torch.bfloat16,
                        requires_grad=True)
        dy = torch.randn_like(x)

        def work():
            model.model(inputs_embeds=x).last_hidden_state.backward(dy)
            x.grad = None

        add("layers", 1, measure(work, args.repeats), False, checkpointing)

    def step(checkpointing, micro_batches):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.1, fused=True)
        ids = torch.randint(config.vocab_size, (micro_batches, sequences, args.sequence), device="cuda")

        def work():
            for one in ids:
                (model(input_ids=one, labels=one).loss / micro_batches).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        add("step", micro_batches, measure(work, args.repeats), True, checkpointing)

    attempt(layers)
    model.zero_grad(set_to_none=True)
    for count in args.micro_batches.split(","):
        attempt(step, int(count))
    print(json.dumps({"shape": args.shape, "tokens": args.tokens, "sequence": args.sequence,
                      "layers": config.num_hidden_layers, "cases": cases}))


main()
