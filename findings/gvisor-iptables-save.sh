#!/bin/bash
# iptables-legacy inside a gVisor sandbox (the kernel of which gVisor itself is).
. "$(dirname "$0")/lib.sh"
guess 'iptables-legacy-save prints the rules of all tables that have some; -m comment works where -m owner does'
debian bookworm runsc=0.0~20221219.0-2+b3 iptables=1.8.9-2 dash=0.5.12-2 grep=3.8-5
start
cat >"$folder/bookworm/tmp/inside.sh" <<'S'
iptables-legacy -t nat -A OUTPUT -p tcp -m owner --uid-owner 1337 -j RETURN && echo "owner added"
iptables-legacy -t nat -A OUTPUT -p tcp -m comment --comment a -j RETURN 2>/dev/null || echo "comment refused"
echo "save without -t: $(iptables-legacy-save 2>&1 | grep -c "^-A") rules"
echo "save -t nat: $(iptables-legacy-save -t nat 2>/dev/null | grep "^-A")"
[ -e /proc/net/ip_tables_names ] || echo "no /proc/net/ip_tables_names"
S
ln -sf dash "$folder/bookworm/bin/sh"
seen_inside=$(inside "$folder/bookworm/usr/bin/runsc" --platform=ptrace --network=none --ignore-cgroups --net-raw \
    --root="$folder/runsc" do chroot "$folder/bookworm" /bin/sh /tmp/inside.sh 2>&1) || {
    echo "$seen_inside" | tail -n 5
    changed 'runsc do failed'
}
expect 'inside the sandbox' 'owner added
comment refused
save without -t: 0 rules
save -t nat: -A OUTPUT -p tcp -m owner --uid-owner 1337 -j RETURN
no /proc/net/ip_tables_names' "$seen_inside"
