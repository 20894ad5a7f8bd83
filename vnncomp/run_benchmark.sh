#!/usr/bin/env bash
# run_benchmark.sh v1 ONNX VNNLIB RESULT TIMEOUT: the source document's protocol.
# RESULT is one line, "<sat|unsat|timeout|error|unknown> <seconds>".
set -u
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/tool.sh"

[ $# -eq 5 ] || fail "expected v1 ONNX VNNLIB RESULT TIMEOUT, got $# arguments"
[ "$1" = v1 ] || fail "expected the version string v1, got '$1'"
answer document "$2" "$3" "$4" "$5"
