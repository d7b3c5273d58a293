"""The first process of the sandbox: runs the binary, the app and the proxy, and compares what they see with what is promised."""

import ctypes
import os
import re
import socket
import socketserver
import struct
import subprocess
import sys
import threading

BINARY = sys.argv[1]
TIMEOUT = 5
LIBC = ctypes.CDLL(None, use_errno=True)
PR_CAPBSET_DROP = 24
CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_NET_RAW, CAP_SETFCAP = 6, 7, 8, 13, 31
APP, PROXY = 1000, 1337
POD = {"IPv4": "10.77.0.1", "IPv6": "fd77::1"}
WORLD = {"IPv4": "10.77.0.2", "IPv6": "fd77::2"}
CAPTURE = ["-u", "1337", "-g", "1337", "-b", "*", "-i", "*", "-d", "9090", "-o", "9091"]
CAPTURE += ["--dual-stack", "--log_output_level", "default:info"]
PROXY_SERVERS = ("the proxy, outbound", (15001,), False), ("the proxy, inbound", (15006,), False)
PROXY_SERVERS += (("the proxy's name server", (15053,), True),)
failures = 0


def expect(what, wanted, seen):
    """A regular expression that what was seen holds."""
    global failures
    if re.search(wanted, seen, re.S):
        print(f"  ok: {what}", flush=True)
        return
    failures += 1
    print(f"  NOT AS PROMISED: {what}: wanted: {wanted}, got:\n{seen}", flush=True)


def output(*command, before=None):
    """Exit code and output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ended = subprocess.run(command, text=True, timeout=60, preexec_fn=before, **pipes)
    return f"exit {ended.returncode}\n{ended.stdout}"


def run(*options):
    return output(BINARY, *options)


def run_without(capabilities, *options):
    def drop():
        # SETPCAP, which dropping takes, is the last to go.
        for capability in sorted(capabilities, key=lambda number: number == CAP_SETPCAP):
            if LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "PR_CAPBSET_DROP")

    return output(BINARY, *options, before=drop)


def run_as_in_pod(*options):
    """With the capabilities of Istio's init container: rules cannot be tried in a network namespace of their own."""
    return run_without((CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_SETFCAP), *options)


def state():
    """All rules and addresses, as other programs see them."""
    tables = [(tool, table) for tool in ("iptables-legacy", "ip6tables-legacy") for table in ("nat", "filter")]
    rules = [output(tool, "-t", table, "-S") for tool, table in tables]
    addresses = re.findall(r"inet6? \S+", output("ip", "address"))
    return "\n".join(rules + sorted(addresses))


def as_user(uid, work):
    """What a child of this user and group returns as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            text = work()
        except OSError as error:
            text = type(error).__name__
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def call(address, port, uid):
    def answer():
        with socket.create_connection((address, port), TIMEOUT) as connection:
            return connection.makefile().readline().strip()

    return as_user(uid, answer)


class Held:
    """An open connection of root to the world."""

    def __init__(self):
        self.socket = socket.create_connection((WORLD["IPv4"], 8080), TIMEOUT)
        self.lines = self.socket.makefile()
        self.greeting = self.lines.readline()

    def echo(self):
        try:
            self.socket.sendall(b"still there\n")
            return self.lines.readline()
        except OSError as error:
            return type(error).__name__


def called(address, port):
    """What the world hears when it calls the pod."""

    def answer():
        with socket.create_connection((WORLD["IPv4"], 7000), TIMEOUT) as connection:
            connection.settimeout(3 * TIMEOUT)
            connection.sendall(f"{address} {port}\n".encode())
            return connection.makefile().readline().strip()

    return as_user(PROXY, answer)


def resolved(address, uid):
    def answer():
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(kind, socket.SOCK_DGRAM) as client:
            client.settimeout(TIMEOUT)
            client.connect((address, 53))
            client.send(b"?")
            return client.recv(100).decode()

    return as_user(uid, answer)


def original(connection):
    """The destination before it was translated (SO_ORIGINAL_DST)."""
    try:
        return destination(connection)
    except OSError:
        return "without another destination"


def destination(connection):
    if connection.family == socket.AF_INET:
        port, address = struct.unpack("!2xH4s8x", connection.getsockopt(socket.SOL_IP, 80, 16))
        return f"{socket.inet_ntoa(address)} {port}"
    port, address = struct.unpack("!2xH4x16s4x", connection.getsockopt(socket.IPPROTO_IPV6, 80, 28))
    return f"{socket.inet_ntop(socket.AF_INET6, address)} {port}"


def serve(uid, *servers):
    """Each is a name, ports, and whether it is a name server. They run in a process of this user."""
    if os.fork() != 0:
        return
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ready = []
    for name, ports, is_resolver in servers:

        class Says(socketserver.BaseRequestHandler):
            text = name

            def handle(self):
                to = original(self.request) if self.text.startswith("the proxy") else ""
                self.request.sendall(f"{self.text} {to}\n".encode())
                while data := self.request.recv(100):
                    self.request.sendall(data)

        class Resolves(socketserver.BaseRequestHandler):
            text = name

            def handle(self):
                self.request[1].sendto(self.text.encode(), self.client_address)

        kind = socketserver.ThreadingUDPServer if is_resolver else socketserver.ThreadingTCPServer
        for kind_of_address in (socket.AF_INET, socket.AF_INET6):
            for port in ports:

                class Server(kind):
                    allow_reuse_address = True
                    daemon_threads = True
                    address_family = kind_of_address

                    def server_bind(self):
                        if self.address_family == socket.AF_INET6:
                            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                        super().server_bind()

                # Like pilot-agent's name server: from another address its replies would be of another connection.
                addresses = ("127.0.0.1", "::1") if is_resolver else ("0.0.0.0", "::")
                address = addresses[kind_of_address == socket.AF_INET6]
                server = Server((address, port), Resolves if is_resolver else Says)
                ready.append(threading.Thread(target=server.serve_forever))
    for thread in ready:
        thread.start()
    threading.Event().wait()


def straight():
    for family in POD:
        expect(f"{family}: out goes straight", f"the world, {family}, port 8080", call(WORLD[family], 8080, APP))
        expect(f"{family}: in goes straight", "^the app", called(POD[family], 8080))


def captured(is_dns):
    for family, pod in POD.items():
        world = WORLD[family]
        expect(f"{family}: out", f"^the proxy, outbound {world} 8080$", call(world, 8080, APP))
        expect(f"{family}: out, by the proxy", "^the world", call(world, 8080, PROXY))
        expect(f"{family}: out, excluded port", "^the world.*9091$", call(world, 9091, APP))
        expect(f"{family}: in", f"^the proxy, inbound {pod} 8080$", called(pod, 8080))
        expect(f"{family}: in, excluded port", "^the app", called(pod, 9090))
        expect(f"{family}: the app to its own pod", "^the app", call(pod, 8080, APP))
        expect(f"{family}: the proxy to its own pod", f"^the proxy, inbound {pod} 8080$", call(pod, 8080, PROXY))
        resolver = "the proxy's name server" if is_dns else "the world's name server"
        expect(f"{family}: DNS", f"^{resolver}$", resolved(world, APP))
        expect(f"{family}: DNS, by the proxy", "^the world's name server$", resolved(world, PROXY))


def refuses(what, code, wanted, *options):
    before = state()
    expect(f"{what} is refused", f"^exit {code}\n.*{wanted}", run(*CAPTURE, *options))
    expect(f"{what}: nothing is written", "^True$", str(state() == before))


def limits(version):
    """What no version has."""
    refuses("TPROXY", 70, rf"\({version}\) has no TPROXY.*use REDIRECT", "-m", "TPROXY")
    refuses("--drop-invalid", 70, rf"\({version}\) has no match of conntrack states.*--drop-invalid", "--drop-invalid")
    empty = output("env", "PATH=/nonexistent", BINARY, *CAPTURE)
    expect("without iptables-legacy", "^exit 69\n.*put iptables-legacy into the image", empty)
    for words in (CAPTURE, ["show"], ["check"], ["--cleanup-only"]):
        seen = run_without((CAP_NET_RAW,), *words)
        expect(f"without NET_RAW: {words[0]}", rf"^exit 77\n.*\({version}\) lets this process open no raw socket.*--net-raw", seen)
    for backend in ("nftables", "iptables-nft"):
        refuses(backend, 69, "gVisor has iptables-legacy only", "--backend", backend)


def is_empty():
    expect("show: no rule", "^exit 0\n.*no capture rule is live", run("show"))
    expect("clean-up of nothing", "^exit 0\n.*already converged, nothing written: no rules", run("--cleanup-only"))


def old(version):
    """A kernel that refuses a rule of Istio."""
    is_empty()
    expect("check: all is missing", "^exit 1\n.*different from what these options make", run("check", *CAPTURE))
    rule = r"IPv4 rule `-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT`"
    refuses("the tunnel port", 70, rf"\({version}\) refuses the {rule}.*newer runsc")
    before = state()
    seen = run_as_in_pod(*CAPTURE)
    expect("refused without a trial", rf"^exit 70\n.*\({version}\) refuses the .*rules?.*`.*! --dport 15008 .*`.* since January 2024", seen)
    expect("nothing is written", "^True$", str(state() == before))
    refuses("DNS capture", 70, rf"\({version}\) has no IPv4 table raw.*newer runsc", "--redirect-dns")
    limits(version)


def current(version):
    """A kernel with all that REDIRECT needs."""
    straight()
    is_empty()
    first = run_as_in_pod(*CAPTURE)
    expect("first run, beside an app that listens", "^exit 0\n.*done: 18 IPv4 rules, 18 IPv6 rules in place", first)
    expect("no warning", r"^(?!.*\bwarn\b)", first)
    probed = run(*CAPTURE, "--skip-rule-apply", "--run-validation")
    expect("validation", "^exit 0\n.*validation passed: the probe was captured: IPv4 .* IPv6", probed)
    serve(PROXY, *PROXY_SERVERS)
    await_listeners(15001, 15006)
    captured(is_dns=False)
    through_proxy = Held()
    expect("a captured connection", "^the proxy, outbound", through_proxy.greeting)
    expect("re-run", "^exit 0\n.*already converged, nothing written", run(*CAPTURE))
    expect("check", "^exit 0\n.*the live rules .* are those of", run("check", *CAPTURE))
    expect("check without options", "^exit 0\n.*-o 9091", run("check"))
    expect("--verify", "^exit 0\n", run(*CAPTURE, "--force-apply", "--verify"))
    expect("show", "^exit 0\n.*--uid-owner 1337.*every-range", run("show"))
    expect("explain", "^exit 0\n[^\n]*: no problem found\n.*captured, 15001", run("explain", "--live"))
    audits_alone_find_changes()
    captured(is_dns=False)
    with_dns = [*CAPTURE, "--redirect-dns", "--capture-all-dns"]
    changed = run(*with_dns)
    expect("change: DNS", "^exit 0\n.*done: ", changed)
    expect("no warning", r"^(?!.*\bwarn\b)", changed)
    captured(is_dns=True)
    expect("re-run", "^exit 0\n.*already converged, nothing written", run(*with_dns))
    expect("check", "^exit 0\n", run("check", *with_dns))
    refuses("a long list of ranges", 70, r"takes \d+ of the \d+ IPv4 rules.*32 KiB", "-x", ranges(400))
    long = [*CAPTURE, "-o", ",".join(str(port) for port in (9091, *range(20000, 20300)))]
    expect("300 excluded ports", "^exit 0\n.*done: ", run(*long))
    expect("check", "^exit 0\n", run("check", *long))
    captured(is_dns=False)
    expect("clean-up", "^exit 0\n.*done: no rules in place", run("--cleanup-only"))
    expect("the captured connection is open", "^still there", through_proxy.echo())
    expect("no rule is left", "^(?!.*ISTIO)(?!.*inet6 ::6)", state())
    straight()
    is_empty()
    limits(version)


def audits_alone_find_changes():
    """`guard` says that the kernel announces nothing, finds a flushed chain and repairs it."""
    words = [BINARY, "guard", *CAPTURE, "--audit", "1", "--action", "repair"]
    guard = subprocess.Popen(words, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def await_line(what, wanted):
        lines = [guard.stderr.readline()]
        while lines[-1] and wanted not in lines[-1]:
            lines.append(guard.stderr.readline())
        expect(f"guard: {what}", re.escape(wanted), "".join(lines))

    await_line("an audit", "an audit at least every 1 s, which alone finds changes: this kernel announces none")
    output("iptables-legacy", "-t", "nat", "-F", "ISTIO_OUTPUT")
    await_line("a repair", "repaired: ")
    guard.terminate()
    _, rest = guard.communicate(timeout=60)
    expect("guard ends", r"^exit 0\n.*guard ends", f"exit {guard.returncode}\n{rest}")


def ranges(number):
    return ",".join(f"10.{index // 256 + 1}.{index % 256}.0/24" for index in range(number))


def await_listeners(*ports):
    for port in ports:
        while call("127.0.0.1", port, PROXY) == "ConnectionRefusedError":
            pass


def main():
    version = re.escape(os.uname().release)
    trial = ["iptables-legacy", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "!", "--dport", "1", "-j", "RETURN"]
    is_current = output("unshare", "--user", "--map-root-user", "--net", *trial).startswith("exit 0")
    print(f"kernel {os.uname().release}, {'captures' if is_current else 'refuses a rule of Istio'}:", flush=True)
    serve(APP, ("the app", (8080, 9090), False))
    await_listeners(8080)
    (current if is_current else old)(version)
    print(f"gvisor: {failures} step(s) not as promised" if failures else "gvisor: all as promised", flush=True)
    os._exit(1 if failures else 0)


main()
