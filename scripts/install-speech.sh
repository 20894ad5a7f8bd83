#!/bin/sh
# Installs espeak-ng, which speaks the sentences that the speech models are trained on.
# Only the training (python -m models.speech) needs it: the trained models and clips are shipped.
set -eu

if command -v espeak-ng >/dev/null 2>&1; then
    echo "found $(command -v espeak-ng)"
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "no apt-get here: install espeak-ng by your system's own means, then train again" >&2
    exit 2
fi
run=
[ "$(id -u)" -eq 0 ] || run=sudo
$run apt-get update
$run apt-get install -y --no-install-recommends espeak-ng
command -v espeak-ng
