#!/bin/sh
# Installs Chromium for the tests that open the report in a real browser. They are skipped without it.
set -eu

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        echo "found $(command -v "$name")"
        exit 0
    fi
done
if ! command -v apt-get >/dev/null 2>&1; then
    echo "no apt-get here: install Chromium by your system's own means, then run the tests again" >&2
    exit 2
fi
run=
[ "$(id -u)" -eq 0 ] || run=sudo
$run apt-get update
$run apt-get install -y --no-install-recommends chromium fonts-dejavu-core
command -v chromium
