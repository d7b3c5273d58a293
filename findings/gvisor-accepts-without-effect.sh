#!/bin/bash
# What a proxy and a check of rules rely on, inside a gVisor sandbox.
. "$(dirname "$0")/lib.sh"
guess 'IP_TRANSPARENT and SO_MARK work or are refused; rules count the packets that they redirect'
debian bookworm runsc=0.0~20221219.0-2+b3 python3=3.11.2-1+b1 iptables=1.8.9-2 iproute2=6.1.0-3
start
cat >"$folder/bookworm/tmp/inside.py" <<'P'
import errno, socket, subprocess
def attempt(name, call):
    try:
        value = call()
        print(name, 'accepted' if value is None else value)
    except OSError as error:
        print(name, errno.errorcode[error.errno])
def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
for name, level, option, value in (('IP_TRANSPARENT', socket.SOL_IP, 19, 1), ('SO_MARK', socket.SOL_SOCKET, 36, 5)):
    app = socket.socket()
    attempt(f'set {name}:', lambda: app.setsockopt(level, option, value))
    attempt(f'get {name}:', lambda: app.getsockopt(level, option))
    if name == 'IP_TRANSPARENT':
        attempt('bind to 192.0.2.1:', lambda: app.bind(('192.0.2.1', 0)))
run('ip', 'link', 'set', 'lo', 'up')
run('iptables-legacy', '-t', 'nat', '-A', 'OUTPUT', '-p', 'tcp', '--dport', '80', '-j', 'REDIRECT', '--to-ports', '15001')
server = socket.create_server(('127.0.0.1', 15001))
app = socket.create_connection(('127.0.0.1', 80))
print('redirected to port', server.accept()[0].getsockname()[1])
print('packets of the rule:', run('iptables-legacy', '-t', 'nat', '-nvxL', 'OUTPUT').splitlines()[2].split()[0])
P
on_linux() { on bookworm python3 /tmp/inside.py; }
in_sandbox() {
    inside "$folder/bookworm/usr/bin/runsc" --platform=ptrace --network=none --ignore-cgroups --net-raw \
        --root="$folder/runsc" do chroot "$folder/bookworm" python3 /tmp/inside.py 2>&1 | cat
}
expect 'on Linux' 'set IP_TRANSPARENT: accepted
get IP_TRANSPARENT: 1
bind to 192.0.2.1: accepted
set SO_MARK: accepted
get SO_MARK: 5
redirected to port 15001
packets of the rule: 1' "$(on_linux)"
expect 'inside the sandbox' 'set IP_TRANSPARENT: accepted
get IP_TRANSPARENT: ENOPROTOOPT
bind to 192.0.2.1: EADDRNOTAVAIL
set SO_MARK: accepted
get SO_MARK: ENOPROTOOPT
redirected to port 15001
packets of the rule: 0' "$(in_sandbox)"
