#!/usr/bin/env python3
"""Writes configs/data/word_problems_{train,test}.jsonl: arithmetic in one short sentence, with numbers from 0 to 9.

Small enough for a model of some hundred thousand parameters that reads characters: five names, five things, three
kinds of question, and nine in ten answers have one digit. No prompt is in both files; a sum may be, asked about another
name or thing. Which problems are taken, and in which order, is decided by hashes of their texts alone, so that the files
are the same on every machine.

    scripts/make_word_problems.py            write the files
    scripts/make_word_problems.py --check    exit 1 when they are not what would be written
"""
import hashlib
import itertools
import json
import pathlib
import sys

NAMES = ["Ann", "Bob", "Eve", "Sam", "Tom"]
THINGS = ["cups", "eggs", "keys", "nuts", "pens"]
TEST_SHARE = 7  # one in so many


def some(count, thing):
    return f"{count} {thing[:-1] if count == 1 else thing}"


def add(name, thing, a, b):
    return f"{name} has {some(a, thing)} and gets {b}. How many? ", a + b


def take(name, thing, a, b):
    return f"{name} has {some(a, thing)} and loses {b}. How many? ", a - b


def more(name, thing, a, b):
    other = NAMES[(NAMES.index(name) + 1 + (a + b) % 4) % 5]
    return f"{name} has {some(a, thing)}, {other} {b}. How many more? ", a - b


# How many problems of each kind are taken, by the number of digits of the answer.
KINDS = [("add", add, {1: 370, 2: 140}), ("take", take, {1: 450}), ("more", more, {1: 440})]


def rank(text, salt):
    return hashlib.sha256(f"{salt}:{text}".encode()).hexdigest()


def problems(kind, make, digits):
    every = []
    for name, thing, a, b in itertools.product(NAMES, THINGS, range(10), range(10)):
        text, answer = make(name, thing, a, b)
        if answer >= 0 and len(str(answer)) == digits:
            every.append({"prompt": text, "label": str(answer), "metadata": {"kind": kind}})
    return sorted(every, key=lambda problem: rank(problem["prompt"], "choice"))


def files():
    splits = {"train": [], "test": []}
    for kind, make, counts in KINDS:
        for digits, count in counts.items():
            for i, problem in enumerate(problems(kind, make, digits)[:count]):
                splits["test" if i % TEST_SHARE == 0 else "train"].append(problem)
    folder = pathlib.Path(__file__).resolve().parent.parent / "configs" / "data"
    for split, chosen in splits.items():
        chosen.sort(key=lambda problem: rank(problem["prompt"], "order"))
        yield folder / f"word_problems_{split}.jsonl", "".join(json.dumps(problem) + "\n" for problem in chosen)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = 0
    for path, text in files():
        if check:
            stale += not path.exists() or path.read_text() != text
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"{path}: {text.count(chr(10))} problems")
    if stale:
        sys.exit("the word problems are not what this script writes")


main()
