"""Servers that report what reached them, and calls, each in a network namespace."""

import ctypes
import os
import platform
import socket
import struct
import threading

TIMEOUT = 30
# User and group of connections and servers. In TPROXY mode, the proxy is root, and known by its group.
APP, PROXY, SERVER_OF_PROXY = (0, 0), (1337, 1337), (0, 1337)
_CLONE_NEWNET = 0x40000000
_SETRESUID, _SETRESGID = {"x86_64": (117, 119), "aarch64": (147, 149)}[platform.machine()]
_IP_TRANSPARENT, _IPV6_TRANSPARENT = 19, 75
_ORIGINAL_DST = 80  # SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def inside(netns, function, user=APP):
    """Runs a function in a namespace (None: this one). A socket stays there, and belongs to the user who made it."""
    result = []

    def run():
        try:
            if netns is not None:
                with open(netns, "rb") as file:
                    _checked(_libc.setns(file.fileno(), _CLONE_NEWNET))
            # The system calls change this thread alone; the C library's functions would change all.
            for number, one in ((_SETRESGID, user[1]), (_SETRESUID, user[0])):
                _checked(_libc.syscall(number, one, one, one))
            result.append((function(), None))
        except OSError as error:
            result.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


def _family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _shown(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _destination(connection, family):
    """Where a connection was going before the kernel redirected it."""
    try:
        return _original_destination(connection, family)
    except FileNotFoundError:  # no rule of the namespace needs connection tracking
        return _shown(*connection.getsockname()[:2])


def _original_destination(connection, family):
    if family == socket.AF_INET:
        raw = connection.getsockopt(socket.IPPROTO_IP, _ORIGINAL_DST, 16)
        return _shown(socket.inet_ntop(family, raw[4:8]), struct.unpack("!H", raw[2:4])[0])
    raw = connection.getsockopt(socket.IPPROTO_IPV6, _ORIGINAL_DST, 28)
    return _shown(socket.inet_ntop(family, raw[8:24]), struct.unpack("!H", raw[2:4])[0])


class Servers:
    """Servers of both families in a namespace: `{"name": ports}`. Each responds with `name PORT for DESTINATION`; a UDP server, in
    `datagrams`, with `name PORT`. That of the proxy is on loopback, as the proxy's name server is."""

    def __init__(self, netns, streams, datagrams=None):
        self.sockets = []
        for kind, servers in ((socket.SOCK_STREAM, streams), (socket.SOCK_DGRAM, datagrams or {})):
            for name, ports in servers.items():
                for port in ports:
                    on_loopback = kind == socket.SOCK_DGRAM and name == "proxy"
                    for address in ("127.0.0.1", "::1") if on_loopback else ("0.0.0.0", "::"):
                        self._serve(netns, kind, name, address, port)

    def _serve(self, netns, kind, name, address, port):
        family = _family(address)

        def bind():
            server = socket.socket(family, kind)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                server.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, 1)
            else:
                server.setsockopt(socket.IPPROTO_IP, _IP_TRANSPARENT, 1)
            server.bind((address, port))
            if kind == socket.SOCK_STREAM:
                server.listen(64)
            return server

        server = inside(netns, bind, SERVER_OF_PROXY if name == "proxy" else APP)
        self.sockets.append(server)
        serve = self._accept if kind == socket.SOCK_STREAM else self._respond
        threading.Thread(target=serve, args=(server, family, f"{name} {port}"), daemon=True).start()

    @staticmethod
    def _accept(server, family, name):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return  # closed
            with connection:
                try:
                    connection.sendall(f"{name} for {_destination(connection, family)}".encode())
                except OSError as error:
                    # The caller sees a response that it does not expect.
                    connection.sendall(f"{name}: {error}".encode())

    @staticmethod
    def _respond(server, _family, name):
        while True:
            try:
                _, caller = server.recvfrom(64)
            except OSError:
                return
            if caller is None:
                return  # closed
            server.sendto(name.encode(), caller)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.sockets:
            try:
                server.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits
            except OSError:
                pass  # a UDP socket without a peer; it is woken all the same
            server.close()


def call(netns, address, port, user=APP):
    """What a server responds to a TCP connection."""

    def connect():
        made = socket.socket(_family(address), socket.SOCK_STREAM)
        made.settimeout(TIMEOUT)
        made.connect((address, port))
        return made

    try:
        with inside(netns, connect, user) as made:
            response = b""
            while chunk := made.recv(256):
                response += chunk
            return response.decode()
    except OSError as error:
        return f"no response: {error}"


def ask(netns, address, port, user=APP):
    """What a server responds to a UDP datagram."""

    def connect():
        made = socket.socket(_family(address), socket.SOCK_DGRAM)
        made.settimeout(TIMEOUT)
        made.connect((address, port))
        made.send(b"?")
        return made

    try:
        with inside(netns, connect, user) as made:
            return made.recv(256).decode()
    except OSError as error:
        return f"no response: {error}"
