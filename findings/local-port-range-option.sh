#!/bin/bash
# IP_LOCAL_PORT_RANGE (a socket's range of source ports) outside net.ipv4.ip_local_port_range.
. "$(dirname "$0")/lib.sh"
guess 'the source port is taken from the range of the socket, or setting it is an error'
debian bookworm iproute2=6.1.0-3 python3=3.11.2-1+b1
start
on bookworm ip link set lo up
inside bash -c 'echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range'
cat >"$folder/bookworm/tmp/range.py" <<'P'
import socket, struct, sys
low, high = int(sys.argv[1]), int(sys.argv[2])
server = socket.create_server(('127.0.0.1', 8080))
inside = 0
for _ in range(20):
    client = socket.socket()
    client.setsockopt(socket.SOL_IP, 51, struct.pack("I", high << 16 | low))
    client.connect(('127.0.0.1', 8080))
    inside += low <= client.getsockname()[1] <= high
print(f'{inside} of 20 in the range')
P
expect 'range within the sysctl' '20 of 20 in the range' "$(on bookworm python3 /tmp/range.py 40000 41000)"
expect 'range below the sysctl, no error' '0 of 20 in the range' "$(on bookworm python3 /tmp/range.py 20000 21000)"
