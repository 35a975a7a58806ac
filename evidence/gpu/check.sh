#!/bin/bash
# Runs `python -m evidence gpu` on a machine without a network that has Python 3.12 with torch and the packages around
# it: bash evidence/gpu/check.sh [FOLDER [--stand-in] [PART...]]. Results go to the folder, or to $OUT.
#
# The wheels that such a machine lacks lie in .whl beside the code; evidence/gpu/wheels.sh fetches them (about 50 MiB).
cd "$(dirname "$0")/../.." || exit 2
export PYTHONUNBUFFERED=1
PYTHON=${PYTHON:-python3}
if [ -d .whl ] && [ ! -d /tmp/site/dask ]; then
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl
fi
export PYTHONPATH=/tmp/site${PYTHONPATH:+:$PYTHONPATH}
exec "$PYTHON" -m evidence gpu "${1:-${OUT:-/tmp/gpu-check}}" "${@:2}"
