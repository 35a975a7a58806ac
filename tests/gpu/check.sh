#!/bin/bash
# Sees the GPU part of Scalescope on a real card, in at most seven minutes, on a machine without a network that has
# Python 3.12 with torch and the packages around it: bash tests/gpu/check.sh [OUTPUT FOLDER [--stand-in] [PART...]].
# Results go there, or to $OUT, part by part: check.json, check.md and logs. A part that fails does not end the others.
# With Slurm's programs, and with distributed-ucxx and rmm, parts with these run too.
#
# The wheels that such a machine lacks lie in .whl beside the code; tests/gpu/wheels.sh fetches them (about 50 MiB).
cd "$(dirname "$0")/../.." || exit 2
export OUT=${1:-${OUT:-/tmp/gpu-check}} PYTHONUNBUFFERED=1 SCALESCOPE_STORE=/tmp/gpu-check-store
mkdir -p "$OUT"
PYTHON=${PYTHON:-python3}
if [ -d .whl ] && [ ! -d /tmp/site/dask ]; then
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl
fi
export PYTHONPATH=$PWD:/tmp/site${PYTHONPATH:+:$PYTHONPATH}
export DASK_DISTRIBUTED__WORKER__PRELOAD="['$PWD/tests/gpu/preload.py']"
exec "$PYTHON" tests/gpu/check.py "$OUT" "${@:2}"
