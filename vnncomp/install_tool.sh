#!/usr/bin/env bash
# install_tool.sh v1: a virtual environment with holdfast and all it verifies with, its kernels compiled.
# HOLDFAST_BASE_PYTHON names the Python (3.11 or newer) to build it with. Where there is none, one is set up by
# uv (a wheel of the package index) or, as root, by the package manager of the distribution.
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
tried=''

# by_uv: an interpreter that uv finds on this system or downloads into .python, without root.
by_uv() {
    local uv
    uv=$(command -v uv) || {
        uv=$here/.uv/bin/uv
        python3 -m pip install --quiet --disable-pip-version-check --target "$here/.uv" uv >&2 || return 1
    }
    UV_PYTHON_INSTALL_DIR=$here/.python "$uv" python install --quiet 3.11 >&2 ||
        "$uv" python find --quiet '>=3.11' >/dev/null 2>&1 || return 1
    base=$(UV_PYTHON_INSTALL_DIR=$here/.python "$uv" python find --quiet '>=3.11') && new_enough "$base"
}

# by_packages: the distribution's own packages, as root.
by_packages() {
    [ "$(id -u)" -eq 0 ] || { tried="$tried; its packages: not root"; return 1; }
    if command -v apt-get >/dev/null; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3.11 python3.11-venv; } >&2
    elif command -v dnf >/dev/null; then
        dnf install -y -q python3.11 >&2
    else
        tried="$tried; its packages: neither apt-get nor dnf"
        return 1
    fi && base=python3.11 && new_enough "$base" || { tried="$tried; its packages: no python3.11"; return 1; }
}

if [ -z "$base" ]; then
    by_uv || { tried='uv: not installed, or no interpreter could be downloaded'; base=''; }
    [ -n "$base" ] || by_packages || base=''
fi
[ -n "$base" ] || fail "no Python 3.11 or newer found ($tried): install one, or name it by HOLDFAST_BASE_PYTHON"
new_enough "$base" || fail "$base is no Python 3.11 or newer"

"$base" -m venv "$here/.venv"
"$here/.venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    -c "$root/constraints.txt" "${root}[verify]"
"$here/.venv/bin/python" -P -m holdfast vnncomp warm
