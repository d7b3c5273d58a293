#!/bin/bash
# Three netlink sockets. One deletes a table of nftables, one that has done nothing is closed, one makes another change. Who waits?
. "$(dirname "$0")/lib.sh"
guess 'the kernel frees what was deleted in the background; neither closing a socket that has done nothing nor another change waits'
debian bookworm nftables=1.0.6-2+deb12u2 python3=3.11.2-1+b1
start
cat >"$folder/bookworm/tmp/close.py" <<'P'
import socket, statistics, struct, subprocess, threading, time
BATCH_BEGIN, BATCH_END, ADD_TABLE, DELETE_TABLE, NFTABLES, REQUEST, ACK = 0x10, 0x11, 10 << 8, 10 << 8 | 2, 10, 1, 4
def message(kind, flags, family, subsystem, attributes=b''):
    body = struct.pack('!BBH', family, 0, subsystem) + attributes
    return struct.pack('=IHHII', 16 + len(body), kind, REQUEST | flags, 1, 0) + body
def change(kind, table):
    name = struct.pack('=HH4s', 6, 1, table + b'\0')
    return (message(BATCH_BEGIN, 0, 0, NFTABLES) + message(kind, ACK, socket.AF_INET, 0, name)
            + message(BATCH_END, 0, 0, NFTABLES))
def made(by, kind, table):
    by.send(change(kind, table))
    assert struct.unpack('=i', by.recv(4096)[16:20])[0] == 0
def opened():
    found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    found.bind((0, 0))
    return found
def measured(is_deleted):
    subprocess.run(['nft', 'table ip t { chain c { type filter hook output priority 0; counter; }; }'], check=True)
    time.sleep(0.1)
    changing, idle, other = opened(), opened(), opened()
    if is_deleted:
        made(changing, DELETE_TABLE, b't')
    taken = []
    def timed(action, *given):
        start = time.perf_counter()
        action(*given)
        taken.append(time.perf_counter() - start)
    closing = threading.Thread(target=timed, args=[idle.close])
    closing.start()
    time.sleep(0.0005)
    start = time.perf_counter()
    made(other, ADD_TABLE, b'u')
    changed = time.perf_counter() - start
    closing.join()
    changing.close(), other.close()
    subprocess.run(['nft', 'flush', 'ruleset'], check=True)
    return taken[0], changed
rounds = {is_deleted: [measured(is_deleted) for _ in range(15)] for is_deleted in (False, True)}
for number, name in enumerate(['close', 'another change']):
    usual, after = (statistics.median(one[number] for one in rounds[is_deleted]) for is_deleted in (False, True))
    print(name, 'at least five times as long' if after > 5 * max(usual, 0.0001) else 'as long')
P
expect 'right after the deletion, beside the same without one' 'close at least five times as long
another change at least five times as long' "$(on bookworm python3 /tmp/close.py)"
seen 'the kernel waits in close() of any netfilter socket of the network namespace until what was deleted is freed, and every other change waits for that'
