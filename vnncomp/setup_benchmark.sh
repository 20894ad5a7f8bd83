#!/usr/bin/env bash
# setup_benchmark.sh v1 ONNX VNNLIB: the source document's protocol.
set -u
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/tool.sh"

[ $# -eq 3 ] || fail "expected v1 ONNX VNNLIB, got $# arguments"
[ "$1" = v1 ] || fail "expected the version string v1, got '$1'"
prepare "$2" "$3"
