#!/bin/bash
# The uid of a socket as `ss -e` (sock_diag) shows it and as the owner match sees it.
. "$(dirname "$0")/lib.sh"
guess 'sock_diag and -m owner name the same user; it stays after fchown and until the connection is gone'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
on bookworm ip link set lo up
for user in 0 1337; do on bookworm iptables-nft -A OUTPUT -p tcp --dport 8080 --syn -m owner --uid-owner "$user"; done

cat >"$folder/bookworm/tmp/owner.py" <<'P'
import os, socket, subprocess, time
def ss(name, *query):
    text = subprocess.run(['ss', '-Htnae', *query], capture_output=True, text=True).stdout
    fields = [f for f in text.split() if f.startswith(('uid:', 'ino:'))]
    shown = [f for f in fields if f.startswith('uid:')] or ['uid:0']
    print(f'{name}: {text.split()[0]} {shown[0]}', 'ino:0' if 'ino:0' in fields else 'ino:N')
server = socket.create_server(('127.0.0.1', 8080))
client = socket.socket()
os.fchown(client.fileno(), 1337, -1)
client.connect(('127.0.0.1', 8080))
accepted = server.accept()[0]
ss('opened by root, fchown to 1337', 'dport', '=', ':8080')
client.close()
time.sleep(0.2)
ss('closed by the client', 'dport', '=', ':8080')
P
expect 'ss -e' 'opened by root, fchown to 1337: ESTAB uid:1337 ino:N
closed by the client: FIN-WAIT-2 uid:0 ino:0' "$(on bookworm python3 /tmp/owner.py)"
expect 'SYN with --uid-owner 0, with --uid-owner 1337' '1 0' "$(counters bookworm ip filter OUTPUT)"
