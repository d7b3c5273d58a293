"""Servers of both families that say who called them where, and what calls them."""

import contextlib
import selectors
import socket
import struct
import threading
import time

from lab import APP, wait_for
from packets import inside

TIMEOUT = 20
# For a name that the DNS filter does not know.
FORWARDED_ADDRESS = "192.0.2.53"


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class Server:
    """Greets each connection with `NAME|called|caller|port`, echoes until `end` or the end of what it is sent, and says `bye` then."""

    def __init__(self, netns, name, ports):
        self.selector, self.name, self.is_open = selectors.DefaultSelector(), name, True
        for port in ports:
            for address in ("0.0.0.0", "::"):
                listener = inside(netns, lambda at=(address, port): self._listen(*at), APP)
                self.selector.register(listener, selectors.EVENT_READ, self._accept)
        threading.Thread(target=self._serve, daemon=True).start()

    @staticmethod
    def _listen(address, port):
        listener = socket.socket(family(address), socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ":" in address:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(4096)
        return listener

    def _serve(self):
        while self.is_open:
            for key, _ in self.selector.select(0.2):
                try:
                    key.data(key.fileobj)
                except OSError:
                    self._close(key.fileobj)

    def _accept(self, listener):
        connection, caller = listener.accept()
        called = connection.getsockname()
        self.selector.register(connection, selectors.EVENT_READ, self._echo)
        connection.sendall(f"{self.name}|{called[0]}|{caller[0]}|{caller[1]}\n".encode())

    def _echo(self, connection):
        data = connection.recv(65536)
        connection.sendall(data or b"bye\n")
        if data in (b"", b"end\n"):
            self._close(connection)

    def _close(self, connection):
        self.selector.unregister(connection)
        connection.close()

    def close(self):
        self.is_open = False


class NameServer:
    """Has one address for every name."""

    def __init__(self):
        self.sockets = []
        for address in ("0.0.0.0", "::"):
            server = socket.socket(family(address), socket.SOCK_DGRAM)
            if ":" in address:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            server.bind((address, 53))
            self.sockets.append(server)
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    @staticmethod
    def _serve(server):
        while True:
            try:
                query, caller = server.recvfrom(512)
            except OSError:
                return
            server.sendto(_response(query, FORWARDED_ADDRESS), caller)


def _question(query):
    return query[12 : query.index(b"\0", 12) + 5]


def _response(query, address):
    question = _question(query)
    is_v4 = question[-4:-2] == b"\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(address) if is_v4 else b""
    return query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(is_v4), 0, 0) + question + answer


def resolve(pod, server, name, number=1):
    """The IPv4 address of a name, as this name server says; the response comes from that address."""

    def ask():
        with socket.socket(family(server), socket.SOCK_DGRAM) as client:
            client.settimeout(TIMEOUT)
            client.connect((server, 53))
            labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
            client.send(struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1")
            response = client.recv(512)
            found = response.find(b"\0\4", 12 + len(_question(response)))
            return socket.inet_ntoa(response[found + 2 : found + 6]) if found > 0 else "no address"

    return pod.inside(ask, APP)


class Connection:
    """One connection, of the app in a pod or of the world, and what the server said of it."""

    def __init__(self, netns, address, port, source=0, timeout=TIMEOUT):
        self.stream, self.buffer = inside(netns, lambda: self._socket(address, source, timeout), APP), b""
        try:
            self.stream.connect((address, port))
            self.server, self.called, self.caller, self.caller_port = self.read_line().split("|")
        except OSError:
            self.stream.close()
            raise

    @staticmethod
    def _socket(address, source, timeout):
        stream = socket.socket(family(address), socket.SOCK_STREAM)
        stream.settimeout(timeout)
        if source:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stream.bind(("", source))
        return stream

    def read_line(self):
        while b"\n" not in self.buffer:
            data = self.stream.recv(65536)
            if not data:
                raise ConnectionError("closed")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    @property
    def through_proxy(self):
        """Whether the server was called by another socket than this one: the proxy's."""
        return (self.caller, int(self.caller_port)) != self.stream.getsockname()[:2]

    def echo(self, text="still there"):
        self.stream.sendall(f"{text}\n".encode())
        return self.read_line() == text

    def ended_by_server(self):
        self.stream.sendall(b"end\n")
        while self.stream.recv(65536):
            pass

    def half_close(self, text):
        """What comes back once this side has sent its last word."""
        self.stream.sendall(f"{text}\n".encode())
        self.stream.shutdown(socket.SHUT_WR)
        return [self.read_line(), self.read_line()]

    def close(self):
        self.stream.close()

    def account(self):
        """Who answered, at which address, called by whom, and on which way."""
        way = "proxy" if self.through_proxy else "direct"
        return f"{self.server} at {self.called} called by {self.caller}: {way}"


def account(netns, address, port, **more):
    """The account of one connection, or the error."""
    try:
        with contextlib.closing(Connection(netns, address, port, **more)) as connection:
            return connection.account()
    except OSError as error:
        return f"error: {error}"


class Load:
    """New connections one after another on each way, and some that stay open, until it ends. Each result has its time."""

    def __init__(self, ways):
        self.ways, self.done, self.results, self.lost, self.held = ways, threading.Event(), [], [], []
        self.hold()
        self.threads = [threading.Thread(target=self._open, args=(way,), daemon=True) for way in ways]
        self.threads.append(threading.Thread(target=self._keep, daemon=True))
        for thread in self.threads:
            thread.start()

    def hold(self):
        """Opens those that stay open."""
        self.held = [(way, Connection(*way[1:])) for way in self.ways for _ in range(8)]

    def _open(self, way):
        while not self.done.is_set():
            started = time.monotonic()
            found = account(*way[1:])
            self.results.append((started, time.monotonic(), way, found))
            time.sleep(0.002)

    def _keep(self):
        while not self.done.is_set():
            for way, connection in list(self.held):
                try:
                    connection.echo()
                except OSError as error:
                    if (way, connection) in self.held:
                        self.held.remove((way, connection))
                        self.lost.append((way[0], repr(error)))
            time.sleep(0.02)

    def await_results(self, number):
        """Waits for so many that begin from now on."""
        begin = time.monotonic()
        wait_for(f"{number} connections", lambda: sum(result[0] > begin for result in list(self.results)) >= number)

    def not_as(self, wanted, begin=0):
        """What was found where another account was wanted, of connections that began since then."""
        return [found for started, _, way, found in list(self.results) if started > begin and found != wanted[way]]

    def release(self):
        """Closes what stayed open."""
        held, self.held = self.held, []
        for _, connection in held:
            connection.close()

    def end(self):
        self.done.set()
        for thread in self.threads:
            thread.join()
        self.release()
