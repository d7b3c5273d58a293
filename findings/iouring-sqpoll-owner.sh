#!/bin/bash
# The user of a connection that io_uring opens, with and without a kernel thread that polls the queue (SQPOLL).
. "$(dirname "$0")/lib.sh"
guess 'the user of the process that submits the request, as with socket(2)'
debian trixie nftables=1.1.3-1 iproute2=6.15.0-1 liburing2=2.9-1 python3=3.13.5-1
start
on trixie ip link set lo up
on trixie nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }
    add rule ip t o tcp dport 8080 tcp flags & (syn | ack) == syn meta skuid 0 counter
    add rule ip t o tcp dport 8080 tcp flags & (syn | ack) == syn meta skuid 1337 counter'
cat >"$folder/trixie/tmp/ring.py" <<'P'
import ctypes, os, socket, struct, sys
uring = ctypes.CDLL('liburing-ffi.so.2')
uring.io_uring_get_sqe.restype = ctypes.c_void_p
SETUP_SQPOLL = 2
server = socket.create_server(('127.0.0.1', 8080))
ring = ctypes.create_string_buffer(1024)
assert uring.io_uring_queue_init(8, ring, SETUP_SQPOLL if sys.argv[1] == 'sqpoll' else 0) == 0
os.setuid(1337)  # the ring was created by root, the requests come from 1337
address = struct.pack('=H', socket.AF_INET) + struct.pack('!H4s8x', 8080, socket.inet_aton('127.0.0.1'))

def submit(prepare, *arguments):
    entry = ctypes.c_void_p(uring.io_uring_get_sqe(ring))
    prepare(entry, *arguments)
    uring.io_uring_submit(ring)
    completion = ctypes.c_void_p()
    assert uring.io_uring_wait_cqe(ring, ctypes.byref(completion)) == 0
    result = struct.unpack('=Qi', ctypes.string_at(completion, 12))[1]
    uring.io_uring_cqe_seen(ring, completion)
    return result

fd = submit(uring.io_uring_prep_socket, socket.AF_INET, socket.SOCK_STREAM, 0, 0)
assert fd > 0, fd
assert submit(uring.io_uring_prep_connect, fd, ctypes.c_char_p(address), 16) == 0
P
on trixie python3 /tmp/ring.py plain
expect 'without SQPOLL, SYNs of uid 0 and 1337' '0 1' "$(counters trixie ip t o)"
on trixie python3 /tmp/ring.py sqpoll
expect 'after a second call with SQPOLL' '1 1' "$(counters trixie ip t o)"
