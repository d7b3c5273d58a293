#!/bin/bash
# The crate iptables, as an agent asks whether its rule is there, and adds it if not.
. "$(dirname "$0")/lib.sh"
guess '`exists` is an error when iptables fails for another reason than a missing rule, as in the Go library'
debian bookworm iptables=1.8.9-2 util-linux=2.38.1-5+deb12u3
mkdir -p "$folder/exists/src"
cat >"$folder/exists/src/main.rs" <<'R'
fn main() {
    let tables = iptables::new(false).expect("iptables is in the path");
    for rule in ["-p tcp -j ACCEPT", "-p tcp --dprt 80", "-p tcp -j NOWHERE", "-m nothing"] {
        println!("{rule}: {:?}", tables.exists("filter", "OUTPUT", rule).map_err(|error| error.to_string()));
    }
}
R
cargo_build "$folder/exists" iptables==0.6.0
ln -s xtables-nft-multi "$folder/bookworm/usr/sbin/iptables"
cp "$folder/exists/program" "$folder/bookworm/tmp/"
start
rules='-p tcp -j ACCEPT: Ok(FOUND)
-p tcp --dprt 80: Ok(false)
-p tcp -j NOWHERE: Ok(false)
-m nothing: Ok(false)'
on bookworm iptables -A OUTPUT -p tcp -j ACCEPT
expect 'a rule that is there, an unknown option, a chain and a match that do not exist' "${rules/FOUND/true}" "$(on bookworm /tmp/program)"
expect 'the same without NET_ADMIN, where iptables itself says "Permission denied"' "${rules/FOUND/false}" \
    "$(on bookworm setpriv --bounding-set -net_admin /tmp/program)"
