#!/usr/bin/env bash
# Builds for this machine's GPUs, runs every test, check and benchmark that needs them, and prints one table.
#   scripts/gpu-test.sh [--gpus N] [--out DIR] [--only STEP,...] [--build DIR] [--vllm PATH]
# --gpus N   uses the first N GPUs (default: all)
# --out DIR  logs and JSON of every step (default gpu-results)
# --only     some of: tests sweep quickstart weight-sync train generate kernels vllm-ipc vllm-nccl (default all; from four GPUs
#            on what needs many: sweep weight-sync), and layouts, which only this starts: every layout of eight, four and two
#            devices, which share the GPUs that are there
# --build    a build folder that is there already, instead of building build/cuda
# --vllm     an environment with vLLM, or its bin/vllm: the steps vllm-ipc and vllm-nccl run against its servers and time its own sender
# The exit status is 1 when a step failed. NVLink multicast stays off: it is not needed, and some hosts forbid it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export NCCL_NVLS_ENABLE=0

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
out=gpu-results
steps=
build_dir=
vllm=
while [ $# -gt 0 ]; do
  case $1 in
    --gpus) gpus=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --only) steps=$2; shift 2 ;;
    --build) build_dir=$2; shift 2 ;;
    --vllm) vllm=$2; shift 2 ;;
    *) sed -n '2,${/^#/!q;p}' "$0" >&2; exit 2 ;;
  esac
done
if [ "${gpus:-0}" -lt 1 ]; then echo "gpu-test: nvidia-smi lists no GPU" >&2; exit 2; fi
visible=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}
CUDA_VISIBLE_DEVICES=$(cut -d, -f1-"$gpus" <<<"$visible")
export CUDA_VISIBLE_DEVICES
gpus=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
if [ -z "$steps" ]; then
  steps=tests,sweep,quickstart,weight-sync,train,generate,kernels
  if [ "$gpus" -ge 4 ]; then steps=sweep,weight-sync; fi
  steps+=${vllm:+,vllm-ipc,vllm-nccl}
fi
wanted() { case ",$steps," in *",$1,"*) return 0 ;; *) return 1 ;; esac; }
if wanted vllm-ipc || wanted vllm-nccl; then
  if [ -d "$vllm" ]; then vllm=$vllm/bin/vllm; fi
  vllm=$(realpath -s "${vllm:-none}")
  vllm_python=$(dirname "$vllm")/python
  for program in "$vllm" "$vllm_python"; do
    if [ ! -x "$program" ]; then echo "gpu-test: the steps of vLLM need --vllm; there is no program $program" >&2; exit 2; fi
  done
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
: >"$out/steps.txt"

say() { printf '== %s\n' "$*" >&2; }

# step <name> <command...>: its output goes to <name>.log; a failure is noted and the next step goes on.
step() {
  local name=$1 begin status; shift
  begin=$(date +%s)
  "$@" >"$out/$name.log" 2>&1
  status=$?
  printf '%s\t%s\t%s\n' "$name" "$status" $(($(date +%s) - begin)) >>"$out/steps.txt"
  case $status in
    0) say "$name: ok" ;;
    77) say "$name: skipped" ;;
    *) say "$name: FAILED with $status, see $out/$name.log" ;;
  esac
}

# push_on_each <model>: what each GPU said goes to weight-sync-each-<number>.log.
push_on_each() {
  local gpu pid pids=() status=0
  for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do
    CUDA_VISIBLE_DEVICES=$gpu "$vime" bench weight-sync --transport ipc --model "$1" --json >"$out/weight-sync-each-$gpu.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  return $status
}

if [ -z "$build_dir" ]; then
  if ! cmake --version >/dev/null 2>&1 || [ ! -e /usr/include/doctest/doctest.h ]; then
    (source scripts/common.sh && ensure_build_packages) || exit 2
  fi
  build_dir=build/cuda
  options=(-DVIME_BENCH=ON)
  [ -e /usr/include/pcre2.h ] && [ -e /usr/include/utf8proc.h ] || options+=(-DVIME_TOKENIZERS=OFF)
  step configure cmake --preset cuda "${options[@]}"
  targets=(vime vime_worker)
  if wanted tests; then targets=(all); fi
  if wanted kernels; then targets+=(kernels_bench copies_bench); fi
  step build cmake --build build/cuda -j "$(nproc)" --target "${targets[@]}"
fi
vime=$build_dir/bin/vime

if wanted tests; then
  for test in "$build_dir"/bin/*_gpu_tests; do step "test-$(basename "$test" _gpu_tests)" "$test"; done
fi
if wanted kernels; then
  step kernels "$build_dir/bin/kernels_bench"
  step copies "$build_dir/bin/copies_bench"
fi
if wanted weight-sync && [ "$gpus" -ge 4 ]; then
  # A rank and an engine on each GPU, all at the same time; then one trainer over all GPUs, with one engine over all and
  # with engines of two; then half of the GPUs train and half generate.
  step weight-sync-each push_on_each qwen3-30b-a3b
  step weight-sync-all "$vime" bench weight-sync --transport ipc --model qwen3-30b-a3b --tensor-parallel "$gpus" --json
  step weight-sync-twos "$vime" bench weight-sync --transport ipc --model qwen3-30b-a3b --tensor-parallel "$gpus" \
    --engine-workers 2 --json
  step weight-sync-apart "$vime" bench weight-sync --transport nccl --model qwen3-30b-a3b \
    --tensor-parallel $((gpus / 2)) --engine-workers $((gpus / 2)) --json
elif wanted weight-sync; then
  step weight-sync-ipc "$vime" bench weight-sync --transport ipc --json
  if [ "$gpus" -ge 2 ]; then
    step weight-sync-all "$vime" bench weight-sync --transport ipc --model qwen3-30b-a3b --tensor-parallel 2 --json
    step weight-sync-ones "$vime" bench weight-sync --transport ipc --model qwen3-30b-a3b --tensor-parallel 2 \
      --engine-workers 1 --json
    step weight-sync-nccl "$vime" bench weight-sync --transport nccl --model qwen3-8b --json
  fi
fi
if wanted sweep && [ "$gpus" -ge 4 ]; then
  # The whole Qwen3-0.6B, so that the vocabulary is cut too; the tokenizer is only there because every spec has one.
  step model python3 bench/random_model.py "$out/qwen3-0.6b"
  step sweep-qwen3-0.6b "$vime" check-parallel sweep --device cuda --dtype bfloat16 --set model.preset=null \
    --set "model.path=$out/qwen3-0.6b" --json "$out/sweep-qwen3-0.6b.json"
elif wanted sweep; then
  for dtype in float32 bfloat16; do
    step "sweep-$dtype" "$vime" check-parallel sweep --device cuda --dtype $dtype --json "$out/sweep-$dtype.json"
  done
fi
if wanted layouts; then
  step sweep-layouts "$vime" check-parallel sweep --device cuda --devices-per-gpu $(((8 + gpus - 1) / gpus)) --json "$out/sweep-layouts.json"
fi
if wanted quickstart; then
  rm -rf "$out"/run-*
  step quickstart "$vime" run configs/quickstart-gpu.yaml --run-dir "$out/run-colocated"
  if [ "$gpus" -ge 2 ]; then
    step quickstart-apart "$vime" run configs/quickstart-gpu.yaml --set placement.colocate=false --run-dir "$out/run-apart"
  fi
fi
if wanted train; then
  step train "$vime" bench train --json
  step train-hf python3 bench/hf_train.py
fi
if wanted generate; then
  step generate "$vime" bench generate --json
  step generate-hf python3 bench/hf_generate.py --caches dynamic
fi
# vllm_step <ipc|nccl> <spec override...>: a run against a real server, vime's pushes of a Qwen3-0.6B, those of vLLM's own sender.
# The pushes are of a trainer and a server that both stay in memory, as the sender's do.
vllm_step() {
  local transport=$1 run=("$vime" run configs/vllm-gpu.yaml --set "engine.vllm_command=[$vllm, serve]"
    --set engine.startup_timeout=240s "${@:2}")
  rm -rf "$out/vllm-run-$transport" "$out/vllm-push-$transport"
  step "vllm-run-$transport" "${run[@]}" --run-dir "$out/vllm-run-$transport"
  if [ ! -e "$out/vllm-model/model.safetensors" ]; then
    step vllm-model python3 bench/random_model.py "$out/vllm-model" --tokenizer "$out/vllm-run-$transport/model" eos_token_id=1 bos_token_id=null pad_token_id=0
  fi
  step "vllm-push-$transport" "${run[@]}" --set model.preset=null --set "model.path=$out/vllm-model" \
    --set trainer.lr=1e-5 --set trainer.min_lr=1e-6 --set trainer.global_batch_size=64 --set rollout.num_rollout=10 \
    --set rollout.rollout_batch_size=8 --set eval.prompt_data=null --set eval.eval_interval=null \
    --set offload.train=false --set offload.rollout=false \
    --run-dir "$out/vllm-push-$transport"
  step "vllm-sender-$transport" "$vllm_python" bench/vllm_sender.py --transport "$transport" --vllm-command "$vllm serve" \
    --model "$out/vllm-model" --startup-timeout 240 --timeout 480 --log "$out/vllm-sender-server-$transport.log"
}

if wanted vllm-ipc; then vllm_step ipc; fi
if wanted vllm-nccl && [ "$gpus" -ge 2 ]; then vllm_step nccl --set placement.colocate=false; fi

python3 bench/gpu_table.py "$out"
! awk '$2 != 0 && $2 != 77' "$out/steps.txt" | grep -q .
