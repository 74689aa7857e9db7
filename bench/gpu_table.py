#!/usr/bin/env python3
"""One table of what scripts/gpu-test.sh measured, from the files that its steps left: gpu_table.py DIR."""
import json
import pathlib
import statistics
import subprocess
import sys


def last_json(path):
    """The JSON that a step wrote, with other lines before or after it; None where there is none."""
    try:
        text = path.read_text()
    except OSError:
        return None
    for start in (i for i, c in enumerate(text) if c == "{" and (i == 0 or text[i - 1] == "\n")):
        try:
            return json.JSONDecoder().raw_decode(text[start:])[0]
        except ValueError:
            continue
    return None


def row(what, found, wanted="", ok=None):
    mark = "" if ok is None else ("reached" if ok else "MISSED")
    print(f"| {what} | {found} | {wanted} | {mark} |")


def pushed(path):
    return (last_json(path) or {}).get("weight_sync", [])


def weight_sync(out):
    for transport, least in (("ipc", 0.90), ("nccl", 0.95)):
        for one in pushed(out / f"weight-sync-{transport}.log"):
            what = f"push, {transport}, {one['model']}, {one['tensors']} tensors"
            if one["model"] == "qwen3-8b":
                row(what, push_times(one), f"ratio {least}", one["ratio"] >= least)
            elif one["model"] == "qwen3-30b-a3b" and transport == "ipc":
                row(what, push_times(one), "pause 150 ms", one["pause_ms"] < 150)
            else:
                row(what, push_times(one))
    each = [one for path in sorted(out.glob("weight-sync-each-*.log")) for one in pushed(path)]
    if each:
        slowest = max(each, key=lambda one: one["pause_ms"])
        row(f"push, colocated, {slowest['model']}, on {len(each)} GPUs at the same time, the slowest", push_times(slowest),
            "pause 100 ms", slowest["pause_ms"] < 100)
    for name in ("all", "twos", "ones"):
        for one in pushed(out / f"weight-sync-{name}.log"):
            engines = one["tensor_parallel"] // one["engine_workers"]
            row(f"push, colocated, {one['model']}, TP {one['tensor_parallel']} to {engines} of {one['engine_workers']}",
                push_times(one), "pause 100 ms", one["pause_ms"] < 100)
    for one in pushed(out / "weight-sync-apart.log"):
        slower = one["update_ms"] / one["raw_ms"] if one["raw_ms"] else float("inf")
        row(f"push, disaggregated, {one['model']}, {one['tensor_parallel']} to {one['engine_workers']} GPUs",
            f"{push_times(one)}: {slower:.2f} x the broadcast", "1.2 x", slower <= 1.2)


def push_times(one):
    return (f"pause {one['pause_ms']:.1f} ms, prepare {one['prepare_ms']:.1f} ms, update {one['update_ms']:.2f} ms, "
            f"raw {one['raw_ms']:.2f} ms, ratio {one['ratio']:.3f}" + ("" if one["contents_equal"] else ", contents DIFFER"))


def train(out):
    theirs = {(c["case"], str(c["micro_batches"])): c for c in (last_json(out / "train-hf.log") or {}).get("cases", [])
              if "error" not in c}
    for one in (last_json(out / "train.log") or {}).get("cases", []):
        least = 0.50 if one["case"] == "layers" else 0.45
        row(f"training, {one['case']}, {one['micro_batches']} micro-batches",
            f"MFU {100 * one['mfu']:.1f} %, {one['tokens_per_s']:.0f} tokens/s, peak {one['peak_bytes'] / 2**30:.1f} GiB",
            f"MFU {100 * least:.0f} %", one["mfu"] >= least)
        if "predicted_peak_bytes" in one:
            off = one["peak_bytes"] / one["predicted_peak_bytes"] - 1
            row("  peak against the prediction", f"{100 * off:+.1f} %", "within 10 %", abs(off) <= 0.1)
        other = theirs.get((one["case"], str(one["micro_batches"])))
        if other:
            ratio = one["tokens_per_s"] / other["tokens_per_s"]
            row("  against transformers", f"{ratio:.2f} x ({100 * other['mfu']:.1f} %)", "1.25 x", ratio >= 1.25)


def generate(out):
    ours, theirs = last_json(out / "generate.log"), last_json(out / "generate-hf.log")
    for one in (ours or {}).get("runs", []):
        speed = one["tokens_per_second"]
        row(f"decode, {ours['sequences']} sequences, {one['response_tokens']} tokens each",
            f"{speed:.0f} tokens/s, {one['decode_step_ms']['total']:.2f} ms a step", "25,000 tokens/s", speed >= 25000)
        if theirs and theirs["response_tokens"] == one["response_tokens"]:
            ratio = speed / theirs["tokens_per_second"]
            row("  against transformers", f"{ratio:.1f} x", "5 x", ratio >= 5)
    if ours and ours.get("http"):
        row("  over HTTP", f"{ours['http']['tokens_per_second']:.0f} tokens/s")


def sweeps(out):
    for path in sorted(out.glob("sweep-*.json")):
        result = json.loads(path.read_text())
        passed = sum(leg["status"] == "pass" for leg in result["legs"])
        found = f"{passed} of {len(result['legs'])} legs in {result['seconds']:.0f} s, {result['jobs']} at a time"
        if path.stem == "sweep-qwen3-0.6b":
            row(path.stem, found, "all in 300 s", result["status"] == "pass" and result["seconds"] < 300)
        else:
            row(path.stem, found, "all", result["status"] == "pass")


def runs(out):
    for path in sorted(out.glob("run-*/summary.json")):
        summary = json.loads(path.read_text())
        score = next(iter((summary.get("eval") or {}).values()), {})
        what, wanted = f"quickstart-gpu, {path.parent.name[4:]}", "90 % in 180 s"
        if score.get("last") is None:
            row(what, summary["status"], wanted, False)
            continue
        row(what, f"{100 * score['first']:.1f} % -> {100 * score['last']:.1f} % in {summary['wall_time_s']:.0f} s",
            wanted, score["last"] >= 0.9 and summary["wall_time_s"] < 180)


def vllm_runs(out):
    for path in sorted(out.glob("vllm-run-*/summary.json")):
        summary = json.loads(path.read_text())
        score = next(iter((summary.get("eval") or {}).values()), {})
        what, wanted = f"vllm-gpu, real servers, {path.parent.name[9:]}", "ends above 20 %"
        if score.get("last") is None:
            row(what, summary["status"], wanted, False)
            continue
        row(what, f"{100 * score['first']:.1f} % -> {100 * score['last']:.1f} % in {summary['wall_time_s']:.0f} s, "
            f"{summary['status']}", wanted, score["last"] > 0.2 and summary["status"] == "ok")


def vllm_pushes(out):
    for transport in ("ipc", "nccl"):
        try:
            lines = [json.loads(line) for line in (out / f"vllm-push-{transport}" / "metrics.jsonl").open()]
        except OSError:
            lines = []
        key = "perf/update_weights_{}_time"
        times = [(one[key.format("prepare")], one[key.format("pause")]) for one in lines if key.format("pause") in one]
        theirs = last_json(out / f"vllm-sender-{transport}.log") or {}
        total = 0
        parts = {part: [1000 * one[key.format(part)] for one in lines if key.format(part) in one]
                 for part in ("start", "update", "finish")}
        if times[1:]:
            prepare, pause = (1000 * statistics.median(part) for part in zip(*times[1:]))
            total = statistics.median(1000 * sum(one) for one in times[1:])
            of_it = ", ".join(f"{part} {statistics.median(one[1:]):.1f}" for part, one in parts.items() if one[1:])
            row(f"push to vLLM, {transport}, Qwen3-0.6B", f"prepare {prepare:.1f} ms, pause {pause:.1f} ms, both {total:.1f} ms, "
                f"of it {of_it}; the first pause {1000 * times[0][1]:.1f} ms")
        for one in theirs.get("variants", []):
            pause = 1000 * one["pause_s"]["median"]
            what = f"vLLM {theirs['vllm']}'s own sender, {transport}, {'packed' if one['packed'] else 'unpacked'}, " + (
                f"{theirs['training_time']} s after {one['requests']} requests" if one["requests"] else "one after the other")
            found = f"pause {pause:.1f} ms, of it " + ", ".join(
                f"{part} {1000 * one[name]['median']:.1f}"
                for part, name in (("start", "start_call_s"), ("update", "update_s"), ("finish", "finish_call_s")))
            if total:
                row("  " + what, f"{found}: {pause / total:.2f} x vime's", "1 x", pause >= total)
            else:
                row(what, found)


def main():
    out = pathlib.Path(sys.argv[1])
    cards = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()
    print(f"{len(cards)} x {cards[0].split(':')[1].split('(')[0].strip() if cards else 'no GPU'}\n")
    print("| what | found | wanted | |\n|---|---|---|---|")
    for part in (weight_sync, train, generate, sweeps, runs, vllm_runs, vllm_pushes):
        part(out)
    print("\n| step | result | seconds |\n|---|---|---|")
    for line in (out / "steps.txt").read_text().splitlines():
        name, status, seconds = line.split("\t")
        result = {"0": "ok", "77": "skipped"}.get(status, f"FAILED ({status})")
        print(f"| {name} | {result} | {seconds} |")


main()
