#!/bin/bash
# Events of conntrack for a connection that was open before the program began to listen.
. "$(dirname "$0")/lib.sh"
guess 'from then on the listener gets every change and end, also of older connections'
debian bookworm nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 conntrack=1:1.4.7-1+b2 python3=3.11.2-1+b1
start
on bookworm ip link set lo up
on bookworm nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }; add rule ip t o ct state new counter'
cat >"$folder/bookworm/tmp/events.py" <<'P'
import socket, subprocess, sys, time
old, new = int(sys.argv[1]), int(sys.argv[1]) + 1
server = socket.create_server(('127.0.0.1', 7000))
def call(port):
    client = socket.socket()
    client.bind(('127.0.0.1', port))
    client.connect(('127.0.0.1', 7000))
    return client, server.accept()[0]
ends = [*call(old)]
listener = subprocess.Popen(['conntrack', '-E'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
time.sleep(0.5)
ends += call(new)
for end in ends:
    end.close()
time.sleep(0.3)
subprocess.run(['conntrack', '-D', '-p', 'tcp', '--dport', '7000'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
time.sleep(0.3)
listener.terminate()
events = listener.stdout.read().splitlines()
for port in (old, new):
    mine = [line for line in events if f'sport={port} ' in line]
    kinds = [line.split('[')[1].split(']')[0] for line in mine]
    print(f"{port}: {' '.join(dict.fromkeys(kinds)) or 'nothing'}")
P
mode() { inside sh -c "echo $1 >/proc/sys/net/netfilter/nf_conntrack_events"; on bookworm python3 /tmp/events.py "$2"; }
expect 'nf_conntrack_events' 2 "$(inside cat /proc/sys/net/netfilter/nf_conntrack_events)"
expect 'opened before (7001) and after (7002) conntrack -E began' '7001: nothing
7002: NEW UPDATE DESTROY' "$(mode 2 7001)"
expect 'the same with nf_conntrack_events=1' '8001: UPDATE DESTROY
8002: NEW UPDATE DESTROY' "$(mode 1 8001)"
