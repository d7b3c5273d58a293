#!/bin/bash
# The crate nftables reads a rule set with a rule of another program that has one flag, as kube-proxy's has.
. "$(dirname "$0")/lib.sh"
guess 'what the crate does not know is kept or left out, or at most that rule is an error; `masquerade` with a flag is known'
debian bookworm nftables=1.0.6-2+deb12u2
debian trixie nftables=1.1.3-1
mkdir -p "$folder/read/src"
cat >"$folder/read/src/main.rs" <<'R'
fn main() {
    match nftables::helper::get_current_ruleset() {
        Ok(read) => println!("{} objects", read.objects.len()),
        Err(error) => println!("{}", error.to_string().split(" at line").next().unwrap_or_default()),
    }
}
R
cargo_build "$folder/read" nftables==0.6.3
start
error='got invalid json: data did not match any variant of untagged enum NfObject'
read_back() {
    cp "$folder/read/program" "$folder/$1/tmp/"
    on "$1" nft flush ruleset
    on "$1" nft "add table ip t; add chain ip t o { type nat hook postrouting priority 100; }
        add rule ip t o $2; add rule ip t o accept"
    on "$1" /tmp/program
}
for suite in bookworm trixie; do
    expect "$suite: masquerade" '5 objects' "$(read_back "$suite" masquerade)"
    expect "$suite: masquerade random,persistent" '5 objects' "$(read_back "$suite" 'masquerade random,persistent')"
    expect "$suite: JSON of nft for two flags" '"flags": ["random", "persistent"]' "$(on "$suite" nft -j list ruleset | grep -o '"flags": [^}]*')"
    for rule in 'masquerade fully-random' 'snat to 10.0.0.1 random' 'meta hour "10:00" accept'; do
        expect "$suite: $rule" "$error" "$(read_back "$suite" "$rule")"
    done
    on "$suite" nft flush ruleset
    expect "$suite: an empty rule set" '1 objects' "$(on "$suite" /tmp/program)"
done
