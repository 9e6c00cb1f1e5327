#!/usr/bin/env bash
# Everything for a machine with an NVIDIA GPU, within a budget of time:
#
#   tests/gpu/run_all.sh [STEP...]      capabilities smoke tests ops kernels bench; all of them if none is named.
#                                       Besides: capture (every stage before the schedule, on real tensors)
#
# OUT      folder of the log and the records (/tmp/out)       BUDGET  seconds for everything (560)
# PYTHON   interpreter (python3)                              MODELS  models or cases of the benchmark, : between them
# MODES    modes of the benchmark (default reduce-overhead)   BENCH   more arguments of it
# TESTS    more arguments of pytest                           OPS     more arguments of the operator sweep
# KERNELS  more arguments of bench.gpu_kernels                CAPTURE more arguments of capture.py
#
# Records go on where they stopped: they are kept in gpu-record/ and copied to OUT.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
OUT=${OUT:-/tmp/out} PYTHON=${PYTHON:-python3} BUDGET=${BUDGET:-560}
IFS=: read -ra models <<<"${MODELS:-mlp:bert 1x128:bert 16x512:vit:resnet:llama 1x64:llama 4x2048:unet:gpt2}"
export PYTHONPATH=. PYTHONUNBUFFERED=1 TRANSFORMERS_VERBOSITY=error TOKENIZERS_PARALLELISM=false
mkdir -p "$OUT" gpu-record
cp gpu-record/*.json* "$OUT" 2>/dev/null
steps=("$@")
[ ${#steps[@]} -eq 0 ] && steps=(capabilities smoke tests ops kernels bench)

left() { echo $((BUDGET - SECONDS)); }
# At most $1 seconds, and never more than is left.
within() { local most=$1; shift; local rest; rest=$(left); timeout --kill-after=5 $((most < rest ? most : rest)) "$@"; }
# The lesser of two numbers of seconds, the second being what is left less some to finish in.
seconds() { local rest=$(($(left) - 10)); echo $(($1 < rest ? $1 : rest)); }

capabilities() { within 60 "$PYTHON" tests/gpu/capabilities.py; }
smoke() { if [ -f tests/gpu/smoke.py ]; then within 150 "$PYTHON" -m tests.gpu.smoke; fi; }
capture() { within 200 "$PYTHON" tests/gpu/capture.py ${CAPTURE:---tiny}; }
tests() { within 240 "$PYTHON" -m pytest tests/gpu tests/diagnostics -n "${JOBS:-6}" --timeout 120 -rfs ${TESTS:-}; }
ops() {
    local limit; limit=$(seconds 200)
    within 240 "$PYTHON" -m tests.ops.sweep --device cuda --samples 1 --jobs "${OPS_JOBS:-14}" --timeout 60 \
        --budget "$limit" --failures 80 --record gpu-record ${OPS:-}
}
kernels() {
    local limit; limit=$(seconds 120)
    within 160 "$PYTHON" -m bench.gpu_kernels --budget "$limit" --json "$OUT/kernels.json" ${KERNELS:-}
}
bench() {
    within 600 "$PYTHON" -m lampwork.cli bench "${models[@]}" --device cuda --task infer --budget "$(seconds 600)" \
        --json "$OUT/bench.jsonl" --resume --mode ${MODES:-default reduce-overhead} ${BENCH:-}
}

status=0
for step in "${steps[@]}"; do
    if [ "$(left)" -lt 15 ]; then
        echo "== $step: no time left"
        status=3
        continue
    fi
    begun=$SECONDS
    echo "== $step"
    "$step"
    ended=$?
    echo "== $step: status $ended, $((SECONDS - begun)) s"
    [ $ended -eq 0 ] || status=$ended
    cp gpu-record/results-cuda-*.jsonl "$OUT" 2>/dev/null
    cp "$OUT"/bench.jsonl "$OUT"/kernels.json gpu-record 2>/dev/null
done > >(tee -a "$OUT/run.log") 2>&1
wait
exit $status
