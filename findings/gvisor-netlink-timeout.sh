#!/bin/bash
# A time limit for reads on a netlink socket inside a gVisor sandbox.
. "$(dirname "$0")/lib.sh"
guess 'SO_RCVTIMEO can be set on every socket, as on Linux'
debian bookworm runsc=0.0~20221219.0-2+b3 python3=3.11.2-1+b1
start
cat >"$folder/bookworm/tmp/inside.py" <<'P'
import errno, socket, struct
for name, kind in (('netlink', (socket.AF_NETLINK, socket.SOCK_RAW, 0)), ('udp', (socket.AF_INET, socket.SOCK_DGRAM, 0))):
    try:
        socket.socket(*kind).setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 1, 0))
        print(name, 'accepted')
    except OSError as error:
        print(name, errno.errorcode[error.errno])
P
seen_inside=$(inside "$folder/bookworm/usr/bin/runsc" --platform=ptrace --network=none --ignore-cgroups --net-raw \
    --root="$folder/runsc" do chroot "$folder/bookworm" python3 /tmp/inside.py 2>&1) || {
    echo "$seen_inside" | tail -n 5
    changed 'runsc do failed'
}
expect 'on Linux' 'netlink accepted
udp accepted' "$(on bookworm python3 /tmp/inside.py)"
expect 'inside the sandbox' 'netlink ENOPROTOOPT
udp accepted' "$seen_inside"
