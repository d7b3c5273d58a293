#!/bin/bash
# `ip rule del` with some of a rule's selectors, as scripts use it to remove their TPROXY rule.
. "$(dirname "$0")/lib.sh"
guess 'only a rule with exactly these selectors is deleted, as `ip rule add` of the same words made it'
debian bookworm iproute2=6.1.0-3
debian trixie iproute2=6.15.0-1
start
rules() { on bookworm ip rule show table 133 | sed 's/:.*//' | paste -sd' '; }
for suite in bookworm trixie; do
    on "$suite" ip rule add pref 50 fwmark 1/0xff lookup 133
    on "$suite" ip rule add pref 100 from 10.0.0.0/8 iif lo fwmark 1 lookup 133
    on "$suite" ip rule add pref 200 fwmark 1 lookup 133
    expect "$suite, before" '50 100 200' "$(rules)"
    on "$suite" ip rule del fwmark 1 lookup 133
    expect "$suite, del fwmark 1 lookup 133: the rule with further selectors went, another mask counts" '50 200' "$(rules)"
    on "$suite" ip rule del fwmark 1 lookup 133
    expect "$suite, once more" '50' "$(rules)"
    on "$suite" ip rule add pref 40 from 10.9.9.9 fwmark 7 lookup 133
    on "$suite" ip rule del lookup 133
    expect "$suite, del lookup 133" '50' "$(rules)"
    on "$suite" ip rule del pref 50
done
