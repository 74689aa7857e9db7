#!/usr/bin/env python3
"""Holds what vime has saved against Hugging Face transformers.

    scripts/check-transformers.py MODEL_DIR [--vime build/release/bin/vime]

Needs torch and transformers. Loads the folder with transformers, starts `vime engine` on it, and lets both continue random
prompts greedily: the ids must be equal and the log-probs of the tokens agree within 1e-4 (float32 both, other orders of
summation). Where the folder has a tokenizer.json, texts must get the same ids from both. Exits 1 on any difference.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import time
import urllib.request

import torch
import transformers

PROMPTS, PROMPT_TOKENS, NEW_TOKENS, TOLERANCE = 16, 9, 12, 1e-4


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def start_engine(vime, folder, log):
    process = subprocess.Popen([vime, "engine", "--model", folder, "--served-model-name", "m",
                                "--logprobs-mode", "raw_logprobs"], stderr=log)
    deadline = time.time() + 120
    while time.time() < deadline:
        if process.poll() is not None:
            sys.exit(f"vime engine ended with status {process.returncode}; see {log.name}")
        text = pathlib.Path(log.name).read_text()
        if " on 127.0.0.1:" in text:
            return process, int(text.split(" on 127.0.0.1:")[1].split()[0])
        time.sleep(0.05)
    process.kill()
    sys.exit("vime engine does not serve")


def by_transformers(model, prompt):
    ids, logprobs = list(prompt), []
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            row = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1)
        ids.append(int(row.argmax()))
        logprobs.append(float(row.max()))
    return ids[len(prompt):], logprobs


def by_vime(port, prompt):
    reply = post(port, "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0,
                                           "logprobs": 0, "return_token_ids": True, "ignore_eos": True})
    choice = reply["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def compare_tokenizers(port, folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["Hello world", "  two  spaces\n\nand 12345 digits", "naïve café, 東京 ", "it's I'LL we've"]
    return [text for text in texts
            if post(port, "/tokenize", {"model": "m", "prompt": text, "add_special_tokens": False})["tokens"]
            != tokenizer.encode(text, add_special_tokens=False)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir")
    parser.add_argument("--vime", default="build/release/bin/vime")
    arguments = parser.parse_args()
    folder = str(pathlib.Path(arguments.model_dir).resolve())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    draw = random.Random(1)
    worst, wrong = 0.0, 0
    with open("check-transformers.log", "w") as log:
        process, port = start_engine(arguments.vime, folder, log)
        try:
            for _ in range(PROMPTS):
                prompt = [draw.randrange(model.config.vocab_size) for _ in range(PROMPT_TOKENS)]
                expected, found = by_transformers(model, prompt), by_vime(port, prompt)
                wrong += expected[0] != found[0]
                worst = max([worst] + [abs(a - b) for a, b in zip(expected[1], found[1])])
            texts = compare_tokenizers(port, folder) if pathlib.Path(folder, "tokenizer.json").exists() else []
        finally:
            process.terminate()
            process.wait()
    pathlib.Path("check-transformers.log").unlink()
    print(f"{model.config.architectures[0]}, {PROMPTS} prompts x {NEW_TOKENS} tokens: {wrong} continuations differ, "
          f"largest log-prob difference {worst:.2e} (limit {TOLERANCE}); {len(texts)} texts differ in their ids")
    sys.exit(1 if wrong or worst > TOLERANCE or texts else 0)


if __name__ == "__main__":
    main()
