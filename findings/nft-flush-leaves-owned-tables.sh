#!/bin/bash
# `nft flush ruleset` while a program has a table of its own (flag owner), as firewalld 2 makes it.
. "$(dirname "$0")/lib.sh"
guess '`flush ruleset` fails as a whole with EPERM, as `delete table` does for that table'
debian bookworm nftables=1.0.6-2+deb12u2 python3-nftables=1.0.6-2+deb12u2
debian trixie nftables=1.1.3-1
start
cat >"$folder/bookworm/tmp/own.py" <<'P'
import time
from nftables import Nftables
context = Nftables()
context.cmd('table inet owned { flags owner; chain i { type filter hook input priority 0; policy drop; }; }')
print('ready', flush=True)
time.sleep(60)
P
on bookworm python3 /tmp/own.py >"$folder/ready" &
owner=$!
until [ -s "$folder/ready" ]; do sleep 0.1; done
for suite in bookworm trixie; do
    on "$suite" nft add table ip other
    code=0
    on "$suite" nft flush ruleset || code=$?
    expect "$suite: exit code of flush ruleset; tables after it" '0; table inet owned' "$code; $(on "$suite" nft list tables)"
    expect "$suite: delete table" 'Error: Could not process rule: Operation not permitted' \
        "$(on "$suite" nft delete table inet owned 2>&1 | head -n 1)"
    expect "$suite: policy of its chain" 'policy drop' "$(on "$suite" nft list chain inet owned i | grep -o 'policy [a-z]*')"
done
stop "$owner"
expect 'tables after its program has ended' '' "$(on trixie nft list tables)"
