#!/usr/bin/env bash
# run_instance.sh v1|v2 CATEGORY ONNX VNNLIB RESULT TIMEOUT: the protocol of 2021 (v1) and of later years (v2).
# v1: RESULT is one word, holds, violated, timeout, error or unknown.
# v2, or v1 with HOLDFAST_VNNCOMP=2022: sat, unsat, timeout, error or unknown; the counterexample below sat.
# The category changes nothing: how to verify is chosen by what the problem is.
set -u
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/tool.sh"

[ $# -eq 6 ] || fail "expected v1 CATEGORY ONNX VNNLIB RESULT TIMEOUT, got $# arguments"
chosen=$(protocol "$1") || exit 1
answer "$chosen" "$3" "$4" "$5" "$6"
