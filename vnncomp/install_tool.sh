#!/usr/bin/env bash
# install_tool.sh v1: a virtual environment with holdfast and all it verifies with, its kernels compiled.
# HOLDFAST_BASE_PYTHON names the Python (3.11 or newer) to build it with.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/tool.sh"

[ $# -eq 1 ] || fail "expected one argument, v1, got $#"
protocol "$1" >/dev/null
root=$(dirname -- "$here")
[ -f "$root/pyproject.toml" ] || fail "no holdfast in $root: these scripts belong into its folder vnncomp"

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}
base=${HOLDFAST_BASE_PYTHON:-}
for name in python3.13 python3.12 python3.11 python3; do
    [ -n "$base" ] || ! new_enough "$name" || base=$name
done
[ -n "$base" ] || fail "no Python 3.11 or newer found: install one, or name it by HOLDFAST_BASE_PYTHON"
new_enough "$base" || fail "$base is no Python 3.11 or newer"

"$base" -m venv "$here/.venv"
"$here/.venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    -c "$root/constraints.txt" "${root}[verify,vnnlib2]"
"$here/.venv/bin/python" -P -m holdfast vnncomp warm
