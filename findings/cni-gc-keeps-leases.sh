#!/bin/bash
# GC of the bridge plugin and its IPAM plugin, with which a runtime gives back what pods have left that a crash has lost.
. "$(dirname "$0")/lib.sh"
guess 'GC removes the leases of attachments that are not in its list, or says that it cannot'
debian sid containernetworking-plugins=1.9.1+ds1-1
start
nsenter --target "$holder" --mount touch "$folder/sid/tmp/pod"
nsenter --target "$holder" --mount unshare --net="$folder/sid/tmp/pod" true
# plugin NAME COMMAND FIELDS
plugin() {
    printf '{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "bridge": "br", "ipam": {"type": "host-local", "dataDir": "/tmp/leases",
        "ranges": [[{"subnet": "10.1.0.0/24"}]]}%s}' "$3" |
        CNI_COMMAND=$2 CNI_CONTAINERID=${4:-} CNI_NETNS=/tmp/pod CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni on sid "/usr/lib/cni/$1"
}
leases() { find "$folder/sid/tmp/leases" -name '10.*' -printf '%f\n' | paste -sd,; }
plugin bridge ADD '' lost >/dev/null
expect 'after ADD: leases' 10.1.0.2 "$(leases)"
for name in bridge host-local; do
    expect "GC by $name without a valid attachment" 'exit 0' "$(plugin $name GC ', "cni.dev/valid-attachments": [], "cni.dev/attachments": []'; echo "exit $?")"
    expect "after it: leases" 10.1.0.2 "$(leases)"
done
plugin bridge DEL '' lost
expect 'after DEL: leases' '' "$(leases)"
