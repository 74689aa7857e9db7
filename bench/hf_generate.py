#!/usr/bin/env python3
"""What `vime bench generate` does, done by Hugging Face transformers: a Qwen3-0.6B shape with random weights in bfloat16, a batch
of prompts of one length, generate() with sampling until every answer has its length. Prints one line per cache and the better one
as JSON.

    bench/hf_generate.py [--sequences 256] [--prompt-tokens 128] [--response-tokens 512] [--caches dynamic,static]
"""
import argparse
import json
import time

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM


def make_model():
    config = Qwen3Config(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                         num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rope_theta=1e6, tie_word_embeddings=True,
                         dtype="bfloat16", attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        return Qwen3ForCausalLM(config).eval()


def tokens_per_second(model, prompts, response_tokens, cache):
    settings = GenerationConfig(max_new_tokens=response_tokens, min_new_tokens=response_tokens, do_sample=True, top_k=0, top_p=1.0,
                                temperature=1.0, pad_token_id=0, cache_implementation=None if cache == "dynamic" else cache)
    mask = torch.ones_like(prompts)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    answers = model.generate(prompts, attention_mask=mask, generation_config=settings)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    assert answers.shape == (prompts.shape[0], prompts.shape[1] + response_tokens), answers.shape
    return prompts.shape[0] * response_tokens / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--response-tokens", type=int, default=512)
    parser.add_argument("--caches", default="dynamic,static")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    model = make_model()
    prompts = torch.randint(0, 151936, (arguments.sequences, arguments.prompt_tokens), device="cuda")
    best = 0.0
    for cache in arguments.caches.split(","):
        tokens_per_second(model, prompts, 8, cache)
        speed = tokens_per_second(model, prompts, arguments.response_tokens, cache)
        print(f"transformers, {cache} cache: {speed:.0f} tokens/s", flush=True)
        best = max(best, speed)
    print(json.dumps({"response_tokens": arguments.response_tokens, "tokens_per_second": best}))


if __name__ == "__main__":
    main()
