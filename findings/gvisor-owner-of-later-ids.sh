#!/bin/bash
# Whose packets a socket sends that root makes as the proxy's user, before it becomes root again, inside a gVisor sandbox.
. "$(dirname "$0")/lib.sh"
guess 'the user who made the socket: the owner match asks the socket, as on Linux'
debian bookworm runsc=0.0~20221219.0-2+b3 python3=3.11.2-1+b1 iptables=1.8.9-2 iproute2=6.1.0-3
start
cat >"$folder/bookworm/tmp/inside.py" <<'P'
import os, socket, subprocess
def run(*command):
    subprocess.run(command, check=True)
run('ip', 'link', 'set', 'lo', 'up')
run(*'iptables-legacy -t nat -A OUTPUT -p tcp --dport 80 -m owner --uid-owner 1337 -j REDIRECT --to-ports 15001'.split())
servers = {port: socket.create_server(('127.0.0.1', port)) for port in (80, 15001)}
def reached(made_as, sent_as):
    os.seteuid(made_as)
    app = socket.socket()
    os.seteuid(0)
    os.seteuid(sent_as)
    app.connect(('127.0.0.1', 80))
    os.seteuid(0)
    app.send(b'!')
    for port, server in servers.items():
        server.settimeout(0.5)
        try:
            return server.accept() and port
        except TimeoutError:
            pass
for made_as, sent_as in ((0, 0), (1337, 1337), (1337, 0), (0, 1337)):
    print(f'made as {made_as}, sent as {sent_as}: port {reached(made_as, sent_as)}')
P
on_linux() { on bookworm python3 /tmp/inside.py; }
in_sandbox() {
    inside "$folder/bookworm/usr/bin/runsc" --platform=ptrace --network=none --ignore-cgroups --net-raw \
        --root="$folder/runsc" do chroot "$folder/bookworm" python3 /tmp/inside.py 2>&1 | cat
}
expect 'on Linux' 'made as 0, sent as 0: port 80
made as 1337, sent as 1337: port 15001
made as 1337, sent as 0: port 15001
made as 0, sent as 1337: port 80' "$(on_linux)"
expect 'inside the sandbox' 'made as 0, sent as 0: port 80
made as 1337, sent as 1337: port 15001
made as 1337, sent as 0: port 80
made as 0, sent as 1337: port 15001' "$(in_sandbox)"
