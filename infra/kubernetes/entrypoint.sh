#!/bin/sh
# Runs the command of a pod. The operator's chart gives options alone, which are kopf's.
case "$1" in
-*) exec kopf run --module dask_kubernetes.operator.controller "$@" ;;
*) exec "$@" ;;
esac
