#!/bin/bash
# A listener with SO_BINDTODEVICE, called by a process of the same machine: as a sidecar calls the app, from 127.0.0.6, and from its own address.
. "$(dirname "$0")/lib.sh"
guess 'such calls arrive on lo, so a listener on eth0 refuses them and one on lo takes them'
debian bookworm iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
cat >"$folder/bookworm/tmp/call.py" <<'P'
import socket, sys
device, source, destination = sys.argv[1:]
server = socket.create_server((destination, 8080))
server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b'\0')
client = socket.socket()
client.settimeout(1.5)
client.bind((source, 0))
try:
    client.connect((destination, 8080))
    print('connected')
except OSError as error:
    print(error)
P
call() { on bookworm python3 /tmp/call.py "$@"; }
expect 'listener on eth0, from 127.0.0.6' 'timed out' "$(call eth0 127.0.0.6 10.0.0.1)"
expect 'listener on eth0, from its own address' 'connected' "$(call eth0 10.0.0.1 10.0.0.1)"
expect 'listener on lo' '[Errno 111] Connection refused' "$(call lo 127.0.0.6 10.0.0.1)"
seen 'the SYN counts as one of eth0, and the reply to 127.0.0.6 leaves by eth0; a listener on lo is not found'
