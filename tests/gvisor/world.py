"""The other end of the veth pair: servers that say who called and which, a name server, and a client on request."""

import socket
import socketserver
import threading

TIMEOUT = 5


def call(address, port):
    """What the server at an address and port says, or the error."""
    try:
        with socket.create_connection((address, port), TIMEOUT) as connection:
            return connection.makefile().readline().strip()
    except OSError as error:
        return type(error).__name__


class Says(socketserver.BaseRequestHandler):
    def handle(self):
        family = "IPv6" if self.server.address_family == socket.AF_INET6 else "IPv4"
        self.request.sendall(f"the world, {family}, port {self.server.server_address[1]}\n".encode())
        while data := self.request.recv(100):
            self.request.sendall(data)


class Calls(socketserver.StreamRequestHandler):
    """Each line is an address and a port to call."""

    def handle(self):
        for line in self.rfile:
            address, port = line.decode().split()
            self.wfile.write(f"{call(address, int(port))}\n".encode())


class Resolves(socketserver.BaseRequestHandler):
    def handle(self):
        _, channel = self.request
        channel.sendto(b"the world's name server", self.client_address)


def serve(kind, handler, address, port):
    class Server(kind):
        allow_reuse_address = True
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    threading.Thread(target=Server((address, port), handler).serve_forever).start()


for ip in ("10.77.0.2", "fd77::2"):
    for number in (8080, 9091):
        serve(socketserver.ThreadingTCPServer, Says, ip, number)
    serve(socketserver.ThreadingUDPServer, Resolves, ip, 53)
serve(socketserver.ThreadingTCPServer, Calls, "10.77.0.2", 7000)
