#!/usr/bin/env python3
"""Holds what vime sends against the sources of one vLLM release; scripts/check-vllm-protocol.py runs it for each.

    scripts/vllm_release.py FOLDER DUMP      FOLDER has vllm/, DUMP is the program vllm_protocol_dump

Run as they are, on the CPU, with stand-ins for whatever else they import: weight_transfer/*, pynccl_wrapper, the TCPStore
group of distributed/utils and the HTTP routes. Device memory is a stand-in too, filled as vime says that it is.
"""
import ast
import contextlib
import importlib.util
import json
import pathlib
import pickle
import random
import re
import subprocess
import sys
import types
import typing
import warnings
from unittest import mock

import torch

UUID, HANDLE = "00000002-aaaa-bbbb-cccc-0123456789ab", bytes((i + 128) % 256 for i in range(64))
UNIQUE_ID = bytes(255 - i for i in range(128))
TRIALS = 200
PACKAGES = ["vllm", "vllm.distributed", "vllm.distributed.device_communicators", "vllm.distributed.weight_transfer"]
REAL = ["vllm.distributed.weight_transfer." + name for name in
        ("base", "packed_tensor", "nccl_common", "nccl_engine", "ipc_engine")]
REAL += ["vllm.distributed.device_communicators.pynccl_wrapper", "vllm.distributed.utils"]

differences = []


def check(condition, what):
    if not condition:
        differences.append(what)


class StandIn(types.ModuleType):
    """A module in which everything is found and nothing happens."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Finder:
    """Real for what is checked, stand-ins for the rest of vLLM; ray is an empty module, as a server may get one."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name in REAL:
            file = self.folder / (name.replace(".", "/") + ".py")
            return importlib.util.spec_from_file_location(name, file) if file.exists() else None
        if name == "ray" or name.split(".")[0] == "vllm" or name in ("pybase64", "requests"):
            return importlib.util.spec_from_loader(name, self, is_package=name in PACKAGES)
        return None

    def create_module(self, spec):
        if spec.name == "pybase64":
            import base64
            module = types.ModuleType("pybase64")
            module.__dict__.update({key: value for key, value in vars(base64).items() if not key.startswith("__")})
            return module
        return types.ModuleType("ray") if spec.name == "ray" else StandIn(spec.name)

    def exec_module(self, module):
        if module.__name__ == "vllm.envs":
            module.VLLM_ALLOW_INSECURE_SERIALIZATION = True
        if module.__name__ == "vllm.v1.engine":
            module.PauseMode = typing.Literal["abort", "wait", "keep"]


class CpuTorch:
    """torch for a module that thinks it has a GPU."""

    class Stream:
        def __getattr__(self, name):
            return lambda *arguments: None

    class cuda:
        @staticmethod
        def get_device_properties(index):
            return types.SimpleNamespace(uuid=UUID)

        @staticmethod
        def Stream(*arguments, **named):
            return CpuTorch.Stream()

        @staticmethod
        def current_stream(*arguments):
            return CpuTorch.Stream()

        @staticmethod
        def stream(stream):
            return contextlib.nullcontext()

    class accelerator:
        current_device_index = staticmethod(lambda: 0)
        current_stream = staticmethod(lambda *arguments: CpuTorch.Stream())
        synchronize = staticmethod(lambda *arguments: None)

    @staticmethod
    def Event(*arguments):
        return CpuTorch.Stream()

    @staticmethod
    def empty(*arguments, device=None, **named):
        return torch.empty(*arguments, **named)

    def __getattr__(self, name):
        return getattr(torch, name)


def dump(program, *arguments, lines=None):
    text = None if lines is None else "".join(json.dumps(line) + "\n" for line in lines)
    output = subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, input=text, text=True).stdout
    return [json.loads(line) for line in output.splitlines()] if lines is not None else json.loads(output)


def module(name):
    return importlib.import_module(name)


def tensor_of(seed, dtype, shape):
    generator = torch.Generator().manual_seed(seed)
    count = torch.empty(shape, dtype=dtype).nbytes
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def equal_bytes(a, b):
    def raw(tensor):
        return tensor.contiguous().view(-1).view(torch.uint8)
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(raw(a), raw(b))


def parsed(engine_class, method, info, what):
    """What the engine makes of an info; it has to refuse the same with a key more."""
    engine = object.__new__(engine_class)
    try:
        getattr(engine, method)({**info, "vime_extra": 1})
        check(False, f"{what}: a key more is not refused, so keys are not checked")
    except (ValueError, TypeError):
        pass
    try:
        return getattr(engine, method)(dict(info))
    except Exception as error:
        check(False, f"{what}: {error}")


def check_keys(bodies):
    ipc = module("vllm.distributed.weight_transfer.ipc_engine").IPCWeightTransferEngine
    nccl = module("vllm.distributed.weight_transfer.nccl_engine").NCCLWeightTransferEngine
    count = 0
    for name, info in bodies.items():
        if info is None or not name.endswith(("_init", "_update")):
            continue
        method = "parse_init_info" if name.endswith("_init") else "parse_update_info"
        parsed(ipc if name.startswith("ipc") else nccl, method, info, name)
        count += 1
    return count


def loaded_by(engine, info):
    """What receive_weights gives to load_weights, whatever its form in this release."""
    loaded = []
    receive = engine.receive_weights
    try:
        if "load_weights" in receive.__code__.co_varnames[:receive.__code__.co_argcount]:
            receive(info, loaded.extend)
        else:
            receive(info)
            for call in engine.model.load_weights.call_args_list:
                loaded.extend(call.args[0])
    except Exception as error:
        check(False, f"receive_weights: {type(error).__name__}: {error}")
    return loaded


def receiver(engine_class, device="cpu"):
    engine = object.__new__(engine_class)
    engine.model, engine.device, engine.packed = mock.MagicMock(), torch.device(device), False
    return engine


def check_ipc_receiver(bodies):
    """vLLM's receiver reads vime's requests; rebuild_cuda_tensor gives views of what vime says lies at the offsets."""
    ipc = module("vllm.distributed.weight_transfer.ipc_engine")
    packed_tensor = module("vllm.distributed.weight_transfer.packed_tensor")
    sent = [tensor_of(i, getattr(torch, name), (3, 5)) for i, name in enumerate(bodies["ipc_update"]["dtype_names"])]
    content = b"".join(bytes(tensor.view(-1).view(torch.uint8).tolist()) for tensor in sent)

    def rebuild(tensor_cls, size, stride, offset, storage_cls, dtype, device, handle, storage_bytes, storage_offset, *rest):
        check(handle == HANDLE and len(rest) == 5 and device == 0, "arguments of rebuild_cuda_tensor")
        if storage_offset == 8192 and dtype == torch.uint8 and storage_bytes == len(content):
            return torch.frombuffer(bytearray(content), dtype=torch.uint8).as_strided(size, stride)
        source = sent[storage_offset // 4096]
        check(source.dtype == dtype and source.nbytes == storage_bytes, "size and dtype of a tensor")
        return source.as_strided(size, stride)

    with mock.patch("torch.multiprocessing.reductions.rebuild_cuda_tensor", rebuild):
        for target in (ipc, packed_tensor):
            target.torch = CpuTorch()
            if hasattr(target, "rebuild_cuda_tensor"):
                target.rebuild_cuda_tensor = rebuild
        for name in ("ipc_update", "ipc_packed_update"):
            info = bodies[name]
            if info is None:
                continue
            engine = receiver(ipc.IPCWeightTransferEngine)
            engine.device = types.SimpleNamespace(index=0)
            if hasattr(packed_tensor, "PackedBufferImporter"):
                engine._packed_importer = packed_tensor.PackedBufferImporter()
            if bodies["capabilities"]["ipc_packed_in_init"]:
                engine.init_transfer_engine(engine.parse_init_info(dict(bodies[name.replace("update", "init")])))
            update = parsed(ipc.IPCWeightTransferEngine, "parse_update_info", info, name)
            loaded = loaded_by(engine, update) if update is not None else []
            check([name for name, _ in loaded] == info["names"], f"{name}: names that are loaded")
            check(len(loaded) == len(sent) and all(equal_bytes(a, b) for (_, a), b in zip(loaded, sent)),
                  f"{name}: tensors that are loaded")


def random_lists(draw, count, dtypes):
    for _ in range(count):
        names = [draw.choice(dtypes) for _ in range(draw.randrange(1, 25))]
        shapes = [[draw.randrange(0, 6), draw.randrange(1, 40)] for _ in names]
        yield {"dtype_names": names, "shapes": shapes, "buffer_bytes": draw.choice([1, 64, 500, 4000, 1 << 20])}


def packed_function(packed_tensor, kind):
    return (getattr(packed_tensor, "packed_nccl_broadcast_" + kind, None) or
            getattr(packed_tensor, "packed_broadcast_" + kind))


def check_nccl_chunks(program, scalars):
    """vLLM's own sender and receiver cut as vime does, and read what vime lays out."""
    packed_tensor = module("vllm.distributed.weight_transfer.packed_tensor")
    packed_tensor.torch = CpuTorch()
    torch.Tensor.record_stream = lambda *arguments: None
    draw = random.Random(1)
    lists = list(random_lists(draw, TRIALS, ["float32", "bfloat16", "float64", "uint8", "int16", "bool"]))
    unaligned = 0
    for case, cut in zip(lists, dump(program, "chunks", lines=lists)):
        sent = [(str(i), tensor_of(i, getattr(torch, name), shape))
                for i, (name, shape) in enumerate(zip(case["dtype_names"], case["shapes"]))]
        chunks = [torch.cat([tensor.reshape(-1).view(torch.uint8) for _, tensor in
                             sent[chunk["first"]:chunk["first"] + len(chunk["offsets"])]]) for chunk in cut["nccl"]]
        check([len(chunk) for chunk in chunks] == [chunk["bytes"] for chunk in cut["nccl"]], f"chunk sizes of {case}")
        produced = []
        group = types.SimpleNamespace(broadcast=lambda tensor, src, **named: produced.append(tensor.clone()))
        packed_function(packed_tensor, "producer")(iter(sent), group, 0, lambda item: item[1],
                                                   buffer_size_bytes=case["buffer_bytes"])
        check(len(produced) == len(chunks) and all(torch.equal(a, b) for a, b in zip(produced, chunks)),
              f"chunks that vLLM's sender makes of {case}")
        left, loaded = list(chunks), []
        def receive(tensor, src, **named):
            check(tensor.numel() == left[0].numel(), f"size of a chunk of {case}")
            tensor.copy_(left.pop(0))
        group = types.SimpleNamespace(broadcast=receive)
        described = ((name, (list(tensor.shape), tensor.dtype)) for name, tensor in sent)
        try:
            packed_function(packed_tensor, "consumer")(described, group, 0, loaded.extend,
                                                       buffer_size_bytes=case["buffer_bytes"])
            check(not left and len(loaded) == len(sent), f"chunks that vLLM's receiver takes of {case}")
            check(all(equal_bytes(a, b) for (_, a), (_, b) in zip(loaded, sent)), f"tensors received of {case}")
        except RuntimeError as error:
            unaligned += 1
            check(not cut["nccl_is_aligned"], f"vLLM's receiver cannot read {case}: {error}")
        check(cut["ordered_is_aligned"], f"the aligned order of {case}")
    unpack = getattr(packed_tensor, "unpack_tensor", None)
    if unpack:
        try:
            unpack(torch.zeros(4, dtype=torch.uint8), ["scale"], [[]], [torch.float32], [4])
            check(scalars, "packed_takes_scalars: vLLM's receiver does take them")
        except TypeError:
            check(not scalars, "packed_takes_scalars: vLLM's receiver does not take them")
    return unaligned


def check_ipc_chunks(program):
    packed_tensor = module("vllm.distributed.weight_transfer.packed_tensor")
    if not hasattr(packed_tensor, "packed_ipc_producer"):
        return
    packed_tensor.reduce_tensor = lambda tensor: (None, ())
    draw = random.Random(2)
    lists = list(random_lists(draw, TRIALS, ["float32", "bfloat16", "uint8"]))
    for case in lists:  # its sender refuses tensors above the buffer and leaves out empty ones at the end
        case["shapes"] = [[max(1, a), b] for a, b in case["shapes"]]
        case["buffer_bytes"] = draw.choice([800, 1200, 4000])
    for case, cut in zip(lists, dump(program, "chunks", lines=lists)):
        sent = [(str(i), tensor_of(i, getattr(torch, name), shape))
                for i, (name, shape) in enumerate(zip(case["dtype_names"], case["shapes"]))]
        found = [chunk.tensor_sizes for chunk in
                 packed_tensor.packed_ipc_producer(iter(sent), UUID, lambda item: item[1], case["buffer_bytes"])]
        expected = [[sent[chunk["first"] + i][1].nbytes for i in range(len(chunk["offsets"]))] for chunk in cut["ipc"]]
        check(found == expected, f"IPC chunks of {case}")


def check_unique_id(program):
    """A worker's own way to the unique id: its group of a TCPStore, its class."""
    wrapper = module("vllm.distributed.device_communicators.pynccl_wrapper")
    loaded = pickle.loads(bytes.fromhex(dump(program, "pickles", "0.33.0")["unique_id"]))
    check(type(loaded) is wrapper.ncclUniqueId and bytes(loaded) == UNIQUE_ID, "the unique id from its pickle")
    group_class = module("vllm.distributed.utils").StatelessProcessGroup
    process = subprocess.Popen([program, "store"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        for rank in (1, 2):
            group = group_class.create(host="127.0.0.1", port=port, rank=rank, world_size=3, store_timeout=20)
            loaded = group.broadcast_obj(None, src=0)
            check(type(loaded) is wrapper.ncclUniqueId and bytes(loaded) == UNIQUE_ID, "the unique id from vime's store")
    finally:
        process.stdin.close()
        process.wait(20)


def router_of(folder):
    found = [path for path in folder.glob("vllm/entrypoints/**/api_router.py")
             if "/start_weight_update" in path.read_text()]
    return found[0]


def check_routes(folder, bodies):
    """The release's own HTTP routes take the bodies, and give the engine what they should."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    spec = importlib.util.spec_from_file_location("release_router", router_of(folder))
    routes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(routes)
    app, engine = FastAPI(), mock.AsyncMock()
    app.include_router(routes.router)
    app.state.engine_client = engine
    client = TestClient(app, raise_server_exceptions=False)

    def post(path, body):
        reply = client.post(path) if body is None else client.post(path, json=body)
        check(reply.status_code == 200, f"{path} with {body}: {reply.status_code} {reply.text}")

    base = module("vllm.distributed.weight_transfer.base")
    post("/init_weight_transfer_engine", {"init_info": bodies["nccl_packed_init"]})
    engine.init_weight_transfer_engine.assert_awaited_once_with(
        base.WeightTransferInitRequest(init_info=bodies["nccl_packed_init"]))
    post("/start_weight_update", bodies["start"])
    post("/update_weights", {"update_info": bodies["nccl_packed_update"]})
    check(bodies["nccl_packed_update"] in [request.update_info for call in engine.update_weights.await_args_list
                                           for request in [*call.args, *call.kwargs.values()]], "/update_weights")
    post("/finish_weight_update", bodies["finish"])
    if bodies["capabilities"]["finish_takes_version"]:
        engine.finish_weight_update.assert_awaited_once_with("7")
        engine.get_weight_version.return_value = "7"
        check(client.get("/weight_info").json() == {"weight_version": "7"}, "/weight_info")
    needs_body = client.post("/start_weight_update").status_code == 400
    check(needs_body == bodies["capabilities"]["start_needs_body"], "start_needs_body")
    return router_of(folder).read_text()


def method_source(path, name):
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_source_segment(text, node)
    return ""


def check_capabilities(folder, capabilities, router):
    """Each entry of the table that the runs above do not show, by what the sources have."""
    def text(pattern):
        return "\n".join(path.read_text() for path in sorted(folder.glob(pattern)))
    ipc, nccl = text("**/weight_transfer/ipc_engine.py"), text("**/weight_transfer/nccl_*.py")
    generate = "\n".join(path.read_text() for path in folder.glob("vllm/entrypoints/**/protocol.py")
                         if "class GenerateRequest" in path.read_text())
    expected = {
        "start_takes_raw_weights": "is_checkpoint_format" in router,
        "failed_update_ends_session": "_weight_update_active = False" in
        method_source(folder / "vllm/v1/worker/gpu_worker.py", "update_weights"),
        "finish_takes_version": '"/weight_info"' in router and '"/update_weight_version"' in router,
        "aborts_all_requests": '"/abort_requests"' in router,
        "shuts_transfer_down": '"/shutdown_weight_transfer_engine"' in router,
        "has_weight_checker": '"/weight_checker"' in router,
        "pause_refuses_requests": "_reject_add_while_paused" in text("vllm/v1/engine/core.py"),
        "ipc_value_has_function": "tuple[Callable, tuple]" in ipc,
        "ipc_takes_packed": "packed_ipc_consumer" in ipc,
        "ipc_imports_ray": re.search(r"^import ray", ipc, re.M) is not None,
        "nccl_takes_unique_id": "nccl_unique_id_b64" in nccl,
        "generate_needs_flag": "enable_scale_out" in text("vllm/entrypoints/**/*.py"),
        "generate_tells_versions": "weight_versions" in generate,
        "generate_logprobs_by_id": "class GenerateLogProb(" in generate,
    }
    for name, found in expected.items():
        check(capabilities[name] == found, f"{name}: vime says {capabilities[name]}, the sources {found}")
    return len(expected)


def main():
    folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    warnings.simplefilter("ignore")  # vLLM's sender warns of each tensor above the buffer's size
    version = re.search(r"^__version__ = version = '(.*)'", (folder / "vllm/_version.py").read_text(), re.M).group(1)
    sys.meta_path.insert(0, Finder(folder))
    bodies = dump(program, "bodies", version)
    infos = check_keys(bodies)
    check_ipc_receiver(bodies)
    unaligned = check_nccl_chunks(program, bodies["capabilities"]["packed_takes_scalars"])
    check_ipc_chunks(program)
    check_unique_id(program)
    router = check_routes(folder, bodies)
    capabilities = check_capabilities(folder, bodies["capabilities"], router)
    print(f"vLLM {version} ({bodies['generation']}): {infos} infos, {TRIALS} lists in chunks ({unaligned} of them unaligned), "
          f"{capabilities} capabilities: {len(differences)} differences")
    for difference in differences[:20]:
        print("  " + difference)
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
