#!/bin/bash
# pyroute2 on the two things that a TPROXY set-up consists of: a route of type local and `fib daddr type local`.
. "$(dirname "$0")/lib.sh"
guess 'route(type="local") does what `ip route add local` does; a rule with fib is decoded as nft lists it'
debian bookworm nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 python3=3.11.2-1+b1
pypi pyroute2==0.9.7
cp -a "$folder/python" "$folder/bookworm/tmp/python"
start
on bookworm ip link set lo up

cat >"$folder/bookworm/tmp/route.py" <<'P'
import sys
sys.path.insert(0, '/tmp/python')
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
with IPRoute() as ip:
    for scope in ({}, {'scope': 254}):
        try:
            ip.route('add', dst='0.0.0.0/0', type='local', oif=1, table=133, **scope)
            print('added', end=' ')
        except NetlinkError as error:
            print(error.code, end=' ')
P
on bookworm ip route add local 0.0.0.0/0 dev lo table 134
expect 'ip route add local: scope' 'local default dev lo scope host ' "$(on bookworm ip route show table 134)"
expect 'route() of pyroute2 without scope (22 is EINVAL), with the scope host' '22 added ' "$(on bookworm python3 /tmp/route.py)"

cat >"$folder/bookworm/tmp/fib.py" <<'P'
import sys
sys.path.insert(0, '/tmp/python')
from pyroute2.nftables.main import NFTables
with NFTables() as nft:
    for rule in nft.get_rules():
        for expression in rule.get_attr('NFTA_RULE_EXPRESSIONS'):
            if expression.get_attr('NFTA_EXPR_NAME') == 'fib':
                data = expression.get_attr('NFTA_EXPR_DATA')
                print('frozenset({' + ', '.join(sorted(map(repr, data.get_attr('NFTA_FIB_RESULT')))) + '})', data.get_attr('NFTA_FIB_FLAGS'))
P
on bookworm nft 'add table ip t; add chain ip t p { type filter hook prerouting priority 0; }
    add rule ip t p fib daddr type local accept'
expect 'nft --debug=netlink' 'fib daddr type => reg 1' "$(on bookworm nft --debug=netlink list ruleset | grep -o 'fib .* reg 1')"
expect 'pyroute2 (the kernel has FIB_RESULT_ADDRTYPE, F_DADDR)' "frozenset({'NFT_FIB_RESULT_OIF', 'NFT_FIB_RESULT_UNSPEC'}) NFTA_FIB_F_MARK" "$(on bookworm python3 /tmp/fib.py)"
