#!/bin/bash
# Fetches into .whl what evidence/gpu/check.sh needs on a machine with Python 3.12, torch, CuPy, pandas, pyarrow, scipy,
# rich, typer, jinja2, msgpack, cloudpickle, toolz and fsspec, but without Dask, Beam and the database's packages.
cd "$(dirname "$0")/../.." || exit 2
platforms=(2_34 2_31 2_28 2_27 2_26 2_24 2_17 2_5)
python3.12 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    $(printf -- "--platform manylinux_%s_x86_64 " "${platforms[@]}") --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
    -c constraints.txt -d .whl \
    dask distributed tornado zict tblib locket partd sqlalchemy greenlet alembic mako bokeh xyzservices \
    apache-beam cryptography cffi pycparser fastavro fasteners httplib2 jsonpickle objsize pymongo dnspython \
    proto-plus protobuf pytz zstandard beartype dask-cuda dask-jobqueue librmm-cu13 rapids-logger rmm-cu13
