#!/bin/bash
# A BPF program at the egress of a cgroup, with which systemd carries out IPAddressDeny=, and REDIRECT.
. "$(dirname "$0")/lib.sh"
guess 'the program belongs to the socket and sees the destination that the app calls, whatever the rules do later'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
groups=$folder/bookworm/sys/fs/cgroup
mounted() { nsenter --target "$holder" --net --mount "$@"; }
mkdir -p "$groups"
mounted mount -t cgroup2 none "$groups"
cat >"$folder/bookworm/tmp/deny.py" <<'P'
# Drops what leaves a cgroup for an IPv4 address: deny.py CGROUP ADDRESS
import ctypes, os, socket, struct, sys

def step(code, to=0, source=0, jump=0, value=0):
    return struct.pack('<BBhi', code, to | source << 4, jump, value)

def bpf(command, *fields):
    block = ctypes.create_string_buffer(b''.join(fields).ljust(128, b'\0'), 128)
    result = libc.syscall(321, command, block, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), 'bpf')
    return result

libc = ctypes.CDLL(None, use_errno=True)
address, = struct.unpack('<i', socket.inet_aton(sys.argv[2]))
program = ctypes.create_string_buffer(b''.join([
    step(0xb7, 2, value=16),                      # offset of the destination in the IPv4 header
    step(0xbf, 3, 10), step(0x07, 3, value=-4),   # where to
    step(0xb7, 4, value=4),
    step(0x85, value=26),                         # bpf_skb_load_bytes
    step(0x61, 1, 10, -4),
    step(0xb7, 0, value=1),
    step(0x56, 1, jump=1, value=address),         # another address: pass
    step(0xb7, 0, value=0),
    step(0x95)]))
license = ctypes.create_string_buffer(b'GPL')
loaded = bpf(5, struct.pack('<IIQQ', 8, 10, ctypes.addressof(program), ctypes.addressof(license)),
             bytes(44), struct.pack('<I', 1))
bpf(8, struct.pack('<III', os.open(sys.argv[1], os.O_RDONLY), loaded, 1))
P
at_peer python3 -m http.server 80 >/dev/null 2>&1 &
inside python3 -m http.server 15001 >/dev/null 2>&1 &
listening 15001
until inside bash -c 'exec 3<>/dev/tcp/10.0.0.2/80' 2>/dev/null; do sleep 0.1; done
# Calls 10.0.0.2:80 from a cgroup that must not send to an address.
call() {
    local group=findings-$$
    mounted mkdir "$groups/$group"
    mounted chroot "$folder/bookworm" python3 /tmp/deny.py "/sys/fs/cgroup/$group" "$1"
    mounted bash -c "echo \$\$ >'$groups/$group/cgroup.procs'; exec timeout 2 bash -c 'exec 3<>/dev/tcp/10.0.0.2/80'" 2>/dev/null && echo connected || echo dropped
    for _ in {1..50}; do mounted rmdir "$groups/$group" 2>/dev/null && break || sleep 0.1; done
}
expect 'without rules: 10.0.0.2 is denied' dropped "$(call 10.0.0.2)"
expect 'without rules: 127.0.0.1 is denied' connected "$(call 127.0.0.1)"
on bookworm iptables-nft -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001
expect 'with REDIRECT: 10.0.0.2 is denied' connected "$(call 10.0.0.2)"
expect 'with REDIRECT: 127.0.0.1 is denied' dropped "$(call 127.0.0.1)"
