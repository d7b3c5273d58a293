"""The processes of the demo, each under its own user.

    actors.py UID app NAME PORT...     answers every connection with one line that has its name
    actors.py UID proxy                listens where captured traffic goes and passes it on to where it was going
    actors.py UID ask ADDRESS PORT     connects and prints the line that comes back
"""

import encodings.idna  # noqa: F401  loaded now: another user may not be able to read this Python's files
import os
import socket
import struct
import sys
import threading

SO_ORIGINAL_DST = 80
INBOUND_SOURCE = "127.0.0.6"  # traffic from this source was captured already: the rules do not capture it again


def become(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def listen(port, respond):
    """Listens when it returns; responds in a thread of its own."""
    listener = socket.create_server(("0.0.0.0", port))

    def serve():
        while True:
            connection, caller = listener.accept()
            with connection:
                respond(connection, caller)

    threading.Thread(target=serve).start()


def app(name, ports):
    def respond(connection, caller):
        connection.sendall(f"{name} here, called by {caller[0]}\n".encode())

    for port in ports:
        listen(port, respond)


def original_destination(connection):
    """Where the caller wanted to go: the kernel remembers it, and Envoy asks in the same way."""
    port, address = struct.unpack_from("!2xH4s", connection.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
    return socket.inet_ntoa(address), port


def proxy():
    def passes_on(direction, source):
        def respond(connection, _caller):
            address, port = original_destination(connection)
            connection.sendall(f"proxy ({direction}, for {address}:{port}), then ".encode())
            with socket.create_connection((address, port), 30, (source, 0)) as onward:
                connection.sendall(onward.makefile("rb").readline())

        return respond

    listen(15001, passes_on("outbound", "0.0.0.0"))
    listen(15006, passes_on("inbound", INBOUND_SOURCE))


def ask(address, port):
    with socket.create_connection((address, port), 30) as connection:
        connection.settimeout(30)
        print(connection.makefile().readline(), end="")


def main(uid, role, *arguments):
    become(int(uid))
    if role == "app":
        app(arguments[0], map(int, arguments[1:]))
    elif role == "proxy":
        proxy()
    elif role == "ask":
        ask(arguments[0], int(arguments[1]))
    else:
        sys.exit(f"unknown part: {role}")


main(*sys.argv[1:])
