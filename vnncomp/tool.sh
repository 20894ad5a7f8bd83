# shellcheck shell=bash
# What the competition's scripts share; sourced, not run. `here` is the folder of the scripts.
here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)

# The interpreter install_tool.sh set up, unless HOLDFAST_PYTHON names another one.
python=${HOLDFAST_PYTHON:-$here/.venv/bin/python}

# fail LINE: says what is wrong and ends the script.
fail() {
    printf '%s: %s\n' "$(basename -- "$0")" "$1" >&2
    exit 1
}

# found FILE: whether the file, or its .gz, is there.
found() {
    [ -f "$1" ] || [ -f "$1.gz" ]
}

# protocol VERSION: which result file that version string asks for. The competition itself says v1 in every
# year; HOLDFAST_VNNCOMP=2022 (or a later year) makes v1 the protocol of these years.
protocol() {
    case $1:${HOLDFAST_VNNCOMP:-2021} in
        v1:2021) printf '2021\n' ;;
        v2:* | v1:202[2-9]) printf '2022\n' ;;
        v1:*) fail "HOLDFAST_VNNCOMP: expected a year from 2021 on, got '$HOLDFAST_VNNCOMP'" ;;
        *) fail "expected the version string v1 or v2, got '$1'" ;;
    esac
}

# prepare ONNX VNNLIB: everything is there, and the files are in memory. No analysis.
prepare() {
    [ -x "$python" ] || fail "no $python: run install_tool.sh v1 first"
    local file
    for file in "$1" "$2"; do
        found "$file" || fail "no file $file"
        [ -f "$file" ] || file=$file.gz
        cat -- "$file" >/dev/null || fail "cannot read $file"
    done
}

# seconds: the time since `answer` began, as a floating point number.
seconds() {
    local passed=$(($(date +%s%N) - began))
    printf '%d.%06d\n' $((passed / 1000000000)) $((passed % 1000000000 / 1000))
}

# write PROTOCOL WORD RESULT [SECONDS]: the result file, whole or not at all.
write() {
    local text=$2
    [ "$1" = document ] && text="$2 ${4:-$(seconds)}"
    printf '%s\n' "$text" >"$3.$$.part" && mv -f -- "$3.$$.part" "$3"
}

# answer PROTOCOL ONNX VNNLIB RESULT TIMEOUT: the result file, written whatever happens.
# If all is killed at once, the word written first stays: timeout. A crash is an error, never an answer.
answer() {
    local child='' code=0
    began=$(date +%s%N)
    write "$1" timeout "$4" "$(LC_ALL=C printf '%.6f' "$5" 2>/dev/null)" || fail "cannot write $4"
    asked=$1 result=$4
    trap stop TERM INT HUP
    # -P: a folder of the same name where the script is called must not be taken for the package.
    "$python" -P -m holdfast vnncomp instance "$2" "$3" "$4" "$5" --protocol "$1" &
    child=$!
    wait "$child" || code=$?
    trap - TERM INT HUP
    if [ "$code" -ne 0 ]; then
        printf '%s: holdfast ended with code %s\n' "$(basename -- "$0")" "$code" >&2
        write "$1" error "$4"
    fi
}

# stop: what a signal does while `answer` waits. What the child began ends with it.
stop() {
    [ -z "$child" ] || kill -KILL "$child" 2>/dev/null
    write "$asked" timeout "$result"
    exit 0
}
