#!/bin/bash
# Keys of nft's JSON input with a spelling mistake, and the check that the Python module offers.
. "$(dirname "$0")/lib.sh"
guess 'nft refuses a key that it does not know; json_validate of the Python module finds a wrong command'
debian bookworm python3-nftables=1.0.6-2+deb12u2 python3=3.11.2-1+b1 python3-jsonschema=4.10.3-1 nftables=1.0.6-2+deb12u2
debian trixie nftables=1.1.3-1
start
cat >"$folder/rules.json" <<'J'
{"nftables": [
  {"add": {"table": {"family": "inet", "name": "t"}}},
  {"add": {"chain": {"family": "inet", "table": "t", "name": "i", "type": "filter", "hook": "input", "prio": 0, "polcy": "drop"}}},
  {"add": {"rule": {"family": "inet", "table": "t", "chain": "i", "coment": "ssh", "expr": [
    {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22, "rigth": 23}}, {"accept": null}]}}}]}
J
for suite in bookworm trixie; do
    cp "$folder/rules.json" "$folder/$suite/tmp/"
    expect "$suite: exit code with polcy, coment, rigth" 0 "$(on "$suite" nft -j -f /tmp/rules.json >/dev/null 2>&1; echo $?)"
    expect "$suite: the policy is accept, the comment is lost" 'type filter hook input priority filter; policy accept; tcp dport 22 accept' \
        "$(on "$suite" nft list chain inet t i | sed '1,2d;/^\t*}/d' | xargs)"
    on "$suite" nft flush ruleset
done
cat >"$folder/bookworm/tmp/check.py" <<'P'
import nftables
for command in ({'tabel': {'name': 't'}}, {'add': {'tabel': {'name': 't'}}}, {'ad': 1}):
    nftables.Nftables().json_validate({'nftables': [command]})
print('valid')
P
expect 'json_validate of {"tabel": …}, {"add": {"tabel": …}}, {"ad": 1}' valid "$(on bookworm python3 /tmp/check.py)"
