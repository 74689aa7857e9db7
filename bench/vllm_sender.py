"""vLLM's own trainer side on the same GPUs as vime's pushes: starts `vllm serve`, holds a checkpoint's parameters on the GPU
and pushes them as the examples of vLLM 0.21 to 0.26 do (trainer_send_weights over HTTP): one push after the other, and
with a rollout before each, as in a run of vime. One JSON object on stdout.

    python3 bench/vllm_sender.py --transport ipc|nccl --model DIR [--vllm-command "vllm serve"] [--pushes N]

Runs in vLLM's environment. ipc: one GPU for both; nccl: the trainer on the first GPU, the server on the second.
pause_s is from the sending of /pause until /resume has answered, as vime's perf/update_weights_pause_time is.
"""
import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

PHASES = ("pause", "start", "update", "finish", "resume")


class Server:
    """`vllm serve` in a session of its own, which ends with this object, whatever happens."""

    def __init__(self, command, environment, port, log):
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        prctl, ask_to_end = ctypes.CDLL(None).prctl, int(signal.SIGTERM)
        with open(log, "wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            preexec_fn=lambda: prctl(1, ask_to_end))  # PR_SET_PDEATHSIG

    def wait_until_serving(self, seconds):
        import requests

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                sys.exit(f"the server exited with status {self.process.returncode}\n{self.last_lines()}")
            try:
                if requests.get(self.url + "/health", timeout=5).status_code == 200:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.5)
        sys.exit(f"the server did not serve within {seconds} s\n{self.last_lines()}")

    def last_lines(self):
        lines = pathlib.Path(self.log).read_text(errors="replace").splitlines()[-20:]
        return "\n".join(["the end of its log:"] + ["  | " + line for line in lines])

    def post(self, path, body=None, timeout=60, **parameters):
        import requests

        reply = requests.post(self.url + path, json=body, params=parameters, timeout=timeout)
        if reply.status_code != 200:
            raise RuntimeError(f"{path}: HTTP {reply.status_code}: {reply.text[:400]}")
        return reply.json()

    def end(self):
        # The engine's processes are in the server's group and outlive it when it is killed.
        for ending, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
            try:
                os.killpg(self.process.pid, ending)
                self.process.wait(seconds)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def import_sender(transport):
    """vLLM's classes for the transport; says what is missing where they are not to be had."""
    try:
        import vllm
        if transport == "ipc":
            from vllm.distributed.weight_transfer import ipc_engine as module
            engine, arguments = module.IPCWeightTransferEngine, getattr(module, "IPCTrainerSendWeightsArgs", None)
        else:
            from vllm.distributed.weight_transfer import nccl_engine as module
            engine, arguments = module.NCCLWeightTransferEngine, getattr(module, "NCCLTrainerSendWeightsArgs", None)
    except ModuleNotFoundError as error:
        cure = {"vllm": "run this with the python of an environment that has vLLM",
                "ray": "vLLM 0.22 to 0.26 imports it; an empty ray.py on PYTHONPATH is enough"}
        sys.exit(f"no module {error.name}: {cure.get(error.name, 'vLLM needs it')}")
    if arguments is None or not hasattr(engine, "trainer_send_weights"):
        sys.exit(f"vLLM {vllm.__version__} has no trainer_send_weights; this measures 0.21 to 0.26")
    return vllm.__version__, engine, arguments


def variants(arguments, wanted):
    known = "packed" in arguments.__dataclass_fields__
    return [packed for packed in {"both": (True, False), "yes": (True,), "no": (False,)}[wanted] if known or not packed]


def log_probs(server, tokens):
    body = {"model": "policy", "prompt": tokens, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
    found = server.post("/v1/completions", body)["choices"][0]["prompt_logprobs"][1:]
    return [next(iter(one.values()))["logprob"] for one in found]


class Pusher:
    def __init__(self, transport, server, engine, arguments, parameters):
        self.transport, self.server, self.engine, self.arguments = transport, server, engine, arguments
        self.parameters = parameters
        self.group = None
        self.describe = {"names": list(parameters),
                         "dtype_names": [str(one.dtype).split(".")[-1] for one in parameters.values()],
                         "shapes": [list(one.shape) for one in parameters.values()]}

    def in_background(self, path, body):
        """The POST blocks until this side has done its part."""
        failed = []

        def work():
            try:
                self.server.post(path, body, timeout=300)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def join():
            thread.join()
            if failed:
                raise failed[0]

        return join

    def meet(self):
        if self.transport == "ipc":
            self.server.post("/init_weight_transfer_engine", {"init_info": {}})
            return
        place = {"master_address": "127.0.0.1", "master_port": free_port(), "world_size": 2}
        join = self.in_background("/init_weight_transfer_engine", {"init_info": {**place, "rank_offset": 1}})
        self.group = self.engine.trainer_init(place)
        join()

    def update(self, packed):
        weights = iter(self.parameters.items())
        if self.transport == "ipc":
            chosen = {"packed": True} if packed else {}
            self.engine.trainer_send_weights(
                weights, self.arguments(send_mode="http", url=self.server.url, **chosen))
            return
        join = self.in_background("/update_weights", {"update_info": {**self.describe, "packed": packed}})
        self.engine.trainer_send_weights(weights, self.arguments(group=self.group, packed=packed))
        join()

    def push(self, packed):
        """Seconds of each phase, and of all."""
        calls = {"pause": lambda: self.server.post("/pause"),
                 "start": lambda: self.server.post("/start_weight_update", {}),
                 "update": lambda: self.update(packed),
                 "finish": lambda: self.server.post("/finish_weight_update", {}),
                 "resume": lambda: self.server.post("/resume")}
        seconds, begin = {}, time.perf_counter()
        for phase in PHASES:
            since = time.perf_counter()
            calls[phase]()
            seconds[phase + "_call_s"] = time.perf_counter() - since
        seconds["pause_s"] = time.perf_counter() - begin
        seconds["update_s"] = seconds.pop("update_call_s")
        return seconds


def generate(server, requests, seconds):
    """Requests at the same time, then nothing while a trainer would train."""
    if requests == 0:
        return
    body = {"model": "policy", "prompt": list(range(1, 9)), "max_tokens": 4, "temperature": 1.0, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(requests) as executor:
        list(executor.map(lambda seed: server.post("/v1/completions", {**body, "seed": seed}), range(requests)))
    time.sleep(seconds)


def summary(packed, requests, pushes):
    first, later = pushes[0], pushes[1:] or pushes
    return {"packed": packed, "requests": requests, "first_pause_s": first["pause_s"],
            **{key: {"median": statistics.median(one[key] for one in later), "all": [one[key] for one in later]}
               for key in first}}


def server_command(args, port):
    return [*shlex.split(args.vllm_command), args.model, "--host", "127.0.0.1", "--port", str(port),
            "--served-model-name", "policy", "--dtype", "bfloat16", "--load-format", "dummy",
            "--max-model-len", str(args.max_model_len), "--max-num-seqs", "512", "--generation-config", "vllm",
            "--gpu-memory-utilization", str(args.gpu_memory_utilization), "--enforce-eager",
            "--weight-transfer-config", json.dumps({"backend": args.transport})]


def server_environment(uuid):
    return {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
            "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "NCCL_NVLS_ENABLE": "0", "PYTHONUNBUFFERED": "1",
            "CUDA_VISIBLE_DEVICES": "GPU-" + uuid}


def measure(args, server, version, engine, arguments, parameters):
    import torch

    server.wait_until_serving(args.startup_timeout)
    tokens = list(range(1, min(args.max_model_len - 1, 9)))
    before = log_probs(server, tokens)
    pusher = Pusher(args.transport, server, engine, arguments, parameters)
    torch.cuda.synchronize()
    pusher.meet()
    found = []
    for packed in variants(arguments, args.packed):
        for requests in args.requests:
            pushes = []
            for _ in range(args.pushes + 1):
                generate(server, requests, args.training_time)
                pushes.append(pusher.push(packed))
            found.append(summary(packed, requests, pushes))
    if log_probs(server, tokens) == before:
        sys.exit("the server's log-probs are those from before the pushes: it took no weights")
    return {"vllm": version, "transport": args.transport, "model": args.model, "tensors": len(parameters),
            "bytes": sum(one.numel() * one.element_size() for one in parameters.values()), "pushes": args.pushes,
            "training_time": args.training_time, "variants": found}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["ipc", "nccl"], default="ipc")
    parser.add_argument("--model", required=True, help="folder with config.json, tokenizer and model.safetensors")
    parser.add_argument("--vllm-command", default="vllm serve")
    parser.add_argument("--pushes", type=int, default=10, help="of each variant, after one that is not counted")
    parser.add_argument("--requests", type=int, nargs="+", default=[0, 64], help="of a rollout; each number is tried")
    parser.add_argument("--training-time", type=float, default=0.1, help="seconds between a rollout and the push")
    parser.add_argument("--packed", choices=["both", "yes", "no"], default="both")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.2,
                        help="this and the next as in configs/vllm-gpu.yaml")
    parser.add_argument("--max-model-len", type=int, default=32)
    parser.add_argument("--startup-timeout", type=int, default=600)
    parser.add_argument("--timeout", type=int, default=900, help="seconds for everything")
    parser.add_argument("--log", default="vllm-sender-server.log", help="the server's output")
    args = parser.parse_args()

    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    version, engine, arguments = import_sender(args.transport)
    import torch
    from safetensors.torch import load_file

    needed = 1 if args.transport == "ipc" else 2
    if torch.cuda.device_count() < needed:
        sys.exit(f"{args.transport} needs {needed} GPUs; CUDA sees {torch.cuda.device_count()}")
    torch.cuda.set_device(0)
    parameters = {name: one.to(torch.bfloat16)
                  for file in sorted(pathlib.Path(args.model).glob("*.safetensors"))
                  for name, one in load_file(file, device="cuda").items()}
    if not parameters:
        sys.exit(f"{args.model} has no .safetensors file")

    uuid = str(torch.cuda.get_device_properties(needed - 1).uuid)
    port = free_port()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    server = Server(server_command(args, port), server_environment(uuid), port, args.log)

    def too_late():  # what hangs in CUDA or NCCL hears no signal
        print(f"not done within {args.timeout} s\n{server.last_lines()}", file=sys.stderr, flush=True)
        server.end()
        os._exit(1)

    watchdog = threading.Timer(args.timeout, too_late)
    watchdog.daemon = True
    watchdog.start()
    try:
        result = measure(args, server, version, engine, arguments, parameters)
    except Exception:
        print(server.last_lines(), file=sys.stderr)
        raise
    finally:
        server.end()
    print(json.dumps(result))


main()
