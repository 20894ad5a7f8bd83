#!/usr/bin/env bash
# prepare_instance.sh v1|v2 CATEGORY ONNX VNNLIB: the protocol of 2021 and of all later years.
set -u
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/tool.sh"

[ $# -eq 4 ] || fail "expected v1 CATEGORY ONNX VNNLIB, got $# arguments"
protocol "$1" >/dev/null || exit 1
prepare "$3" "$4"
