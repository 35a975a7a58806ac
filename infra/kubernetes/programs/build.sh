#!/bin/bash
# build.sh OUT: all parts of a small Kubernetes as one static program (after `go mod tidy`; Go 1.25+, 8 minutes on 2 cores)
set -eu
cd "$(dirname "$0")"
version=v1.34.4
flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
flags+=" -X k8s.io/component-base/version.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=$version"
CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$1" .
