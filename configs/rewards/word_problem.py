#!/usr/bin/env python3
"""A reward command: one JSON object per line on stdin, one answer per line on stdout. 1 for the right number, 0.1 for any number."""
import json
import re
import sys


def last_number(text):
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+", text)
    return float(numbers[-1].replace(",", "")) if numbers else None


for line in sys.stdin:
    call = json.loads(line)
    answer, label = last_number(call["response"]), last_number(call["label"])
    if answer is None:
        reward = 0.0
    else:
        reward = 1.0 if answer == label else 0.1
    print(json.dumps({"id": call["id"], "reward": reward}), flush=True)
