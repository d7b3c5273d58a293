# Sourced by tests that run programs and look at what they print. All steps are tried; `failures` counts.
# shellcheck shell=bash

failures=0
expect() { # expect WHAT PATTERN COMMAND...: it ends well, and what it prints is as promised
    local output status=0
    output=$("${@:3}" 2>&1) || status=$?
    # shellcheck disable=SC2053 # a pattern on purpose
    if [ "$status" -eq 0 ] && [[ $output == $2 ]]; then echo "  ok: $1"; return; fi
    printf '  NOT AS PROMISED: %s: exit %s, wanted: %s, got:\n%s\n' "$1" "$status" "$2" "$output" >&2
    failures=$((failures + 1))
}
