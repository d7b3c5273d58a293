"""What is promised with Envoy as the proxy: each case makes a pod and looks at connections, and at what `check` and
`explain --live` say of it. Arguments are the names of cases; without any, all are run."""

import contextlib
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from envoy import KNOWN_ADDRESSES, KNOWN_NAME, OWN_SERVICE, Envoy
from lab import ADDRESSES, BINARY, GATEWAYS, Pod, expect, failures, wait_for
from traffic import FORWARDED_ADDRESS, Connection, Load, NameServer, Server, account, resolve

MODES = ("REDIRECT", "TPROXY")
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
PASSTHROUGH = ("127.0.0.6", "::6")
# As the injector passes them.
OPTIONS = ["-u", "1337", "-g", "1337", "-i", "*", "-b", "*", "-d", "15090,15021,15020,9090", "-o", "9091", "--dual-stack"]
OTHER_OPTIONS = [*OPTIONS[:-2], "9092", "--dual-stack", "-x", "203.0.113.0/24"]
# How many runs are killed in each mode.
KILLS = 12
# What `check` says first, with its status, and the first line of `explain --live`.
EQUAL = (0, "equal")
NO_RULES = {"check": (1, "different from what these options make"), "live": "1 problem: no capture rule is live"}
NOT_LISTENING = {"live": "1 problem: nothing listens on a port of the proxy"}


class Captured:
    """A pod with Envoy and an app that is captured, or is going to be."""

    def __init__(self, mode, user=None, dns=True, descriptors=None):
        self.mode, self.pod, self.dns = mode, Pod(), ["--redirect-dns", "--capture-all-dns"] if dns else []
        self.app = Server(self.pod.netns, "app", [8080, 9090])
        self.envoy = Envoy(self.pod, mode, user, descriptors)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.envoy.stop()
        self.app.close()
        self.pod.remove()

    def options(self, backend, options=OPTIONS):
        return [*options, "-m", self.mode, "--backend", backend, *self.dns]

    def capture(self, backend, options=OPTIONS):
        self.pod.istio_iptables(*self.options(backend, options))

    def clean_up(self, backend):
        self.pod.istio_iptables("--cleanup-only", "--backend", backend)

    def expect_reports(self, what, backend, options=OPTIONS, check=EQUAL, live=None):
        """What `check` and `explain --live` say first: that all is well, but that Envoy's DNS filter has no TCP, or gets no queries."""
        options = self.options(backend, options)
        status, line = self.pod.answer("check", *options)
        expect(f"{what}: check", check, (status, line.split(":")[0]))
        not_captured = "1 problem: DNS is not captured"
        _, line = self.pod.answer("explain", "--live", *options)
        expect(f"{what}: explain --live", live or (NOT_LISTENING["live"] if self.dns else not_captured), line)

    def first_line(self, backend):
        """The verdict of `explain --live`."""
        return self.pod.answer("explain", "--live", *self.options(backend))[1]

    def outbound(self, port=8080, captured=True):
        """Each way out, with its account."""
        way = "proxy" if captured else "direct"
        return [
            ((f"out to {gateway}", self.pod.netns, gateway, port), f"world at {gateway} called by {address}: {way}")
            for gateway, address in zip(GATEWAYS, ADDRESSES)
        ]

    def inbound(self, port=8080, captured=True):
        """The same for each way in."""
        callers = PASSTHROUGH if captured and self.mode == "REDIRECT" else GATEWAYS
        way = "proxy" if captured else "direct"
        return [
            ((f"in to {address}", None, address, port), f"app at {address} called by {caller}: {way}")
            for address, caller in zip(ADDRESSES, callers)
        ]

    def own(self):
        """The app calls its own pod: by its service out through the proxy and in again, by its address on no proxy's way."""
        callers = PASSTHROUGH if self.mode == "REDIRECT" else ADDRESSES
        by_service = [
            (("to its own service", self.pod.netns, gateway, OWN_SERVICE), f"app at {address} called by {caller}: proxy")
            for gateway, address, caller in zip(GATEWAYS, ADDRESSES, callers)
        ]
        by_address = [
            (("to its own address", self.pod.netns, address, 8080), f"app at {address} called by {address}: direct")
            for address in ADDRESSES
        ]
        return by_service + by_address

    def expect_ways(self, what, ways):
        for number, (way, wanted) in enumerate(ways):
            # A port that the proxy does not happen to have, too, on its way to the pod itself.
            expect(f"{what}: {way[0]}:{way[3]}", wanted, account(*way[1:], source=31000 + number))


def each(function):
    """Runs a case for each mode and backend."""
    def run_all():
        for mode in MODES:
            for backend in BACKENDS:
                function(mode, backend)
    run_all.__name__ = function.__name__
    run_all.__doc__ = function.__doc__
    return run_all


@each
def connections(mode, backend):
    """Destinations, source addresses, calls to the own pod, excluded ports, half-close, 500 at once, DNS."""
    what = f"{mode}, {backend}"
    with Captured(mode) as captured:
        captured.expect_ways(f"{what}: before", captured.outbound(captured=False) + captured.inbound(captured=False))
        captured.expect_reports(f"{what}: before", backend, **NO_RULES)
        captured.capture(backend)
        captured.expect_reports(what, backend)
        captured.expect_ways(what, captured.outbound() + captured.inbound() + captured.own())
        excluded = captured.outbound(9091, captured=False) + captured.inbound(9090, captured=False)
        captured.expect_ways(f"{what}: excluded", excluded)
        expect_half_close(what, captured)
        expect_500(what, captured)
        expect_dns(what, captured.pod)
        captured.clean_up(backend)
        captured.expect_ways(f"{what}: after", captured.outbound(captured=False) + captured.inbound(captured=False))
        captured.expect_reports(f"{what}: after", backend, **NO_RULES)


def expect_half_close(what, captured):
    ways = [way for way, _ in captured.outbound() + captured.inbound()]
    for name, *way in ways:
        with contextlib.closing(Connection(*way)) as connection:
            expect(f"{what}: half-close {name}", ["the last word", "bye"], connection.half_close("the last word"))


def expect_500(what, captured):
    """500 connections are open at once, as many on each way."""
    ways = captured.outbound() + captured.inbound()
    with ThreadPoolExecutor(50) as pool:
        opened = list(pool.map(lambda number: Connection(*ways[number % len(ways)][0][1:]), range(500)))
    echoed = sum(connection.echo() for connection in opened)
    found = Counter(connection.account() for connection in opened)
    for connection in opened:
        connection.close()
    expect(f"{what}: 500 at once", ({wanted: 500 // len(ways) for _, wanted in ways}, 500), (dict(found), echoed))


def expect_dns(what, pod):
    for server in GATEWAYS:
        for name, address in ((KNOWN_NAME, KNOWN_ADDRESSES[0]), ("other.test", FORWARDED_ADDRESS)):
            expect(f"{what}: {name} from {server}", address, resolve(pod, server, name))


@each
def first_capture(mode, backend):
    """A pod is captured while it calls and is called."""
    what = f"{mode}, {backend}"
    with Captured(mode, dns=False) as captured:
        ways = captured.outbound() + captured.inbound()
        load = Load([way for way, _ in ways])
        load.await_results(100)
        captured.capture(backend)
        begin = time.monotonic()
        load.await_results(400)
        expect(f"{what}: direct connections live on", [], load.lost)
        load.end()
        expect_load(what, load, dict(ways), begin, 400)


def life_cycle():
    """Option changes, moves between backends, runs that are killed, hot restart, drain, under load."""
    for mode in MODES:
        with Captured(mode, dns=False) as captured:
            ways = captured.outbound() + captured.inbound()
            load = Load([way for way, _ in ways])
            captured.capture(BACKENDS[0])
            begin = time.monotonic()
            expect(f"{mode}: direct connections live on", [], load.lost)
            load.release()
            load.hold()
            for backend in (*BACKENDS, BACKENDS[0]):
                for options in (OPTIONS, OTHER_OPTIONS):
                    captured.capture(backend, options)
                    captured.expect_reports(f"{mode}: now with {backend}", backend, options)
            for number in range(KILLS):
                kill_run(captured, BACKENDS[number % len(BACKENDS)], OTHER_OPTIONS if number % 2 else OPTIONS)
            captured.capture(BACKENDS[0])
            captured.expect_reports(f"{mode}: after runs that were killed", BACKENDS[0])
            expect(f"{mode}: captured connections live on", [], load.lost)
            load.release()
            captured.envoy.hot_restart()
            captured.expect_reports(f"{mode}: after a hot restart", BACKENDS[0])
            captured.envoy.drain()
            captured.expect_reports(f"{mode}: while the listeners drain", BACKENDS[0])
            captured.envoy.hot_restart()
            load.end()
            captured.expect_reports(f"{mode}: after a drain and a hot restart", BACKENDS[0])
            expect_load(mode, load, dict(ways), begin)


def kill_run(captured, backend, options):
    """Begins a change, and kills it somewhere."""
    command = captured.pod.command(BINARY, *captured.options(backend, options))
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(random.uniform(0.002, 0.1))
    run.kill()
    run.wait()


def expect_load(what, load, wanted, begin, least=1000):
    """No connection is lost, and none is direct that began after the first capture."""
    late = [result for result in load.results if result[0] > begin]
    wrong = [result for result in late if result[3] != wanted[result[2]]]
    early = [result for result in load.results if result[0] <= begin]
    lost = [result for result in early if result[3].startswith("error")]
    expect(f"{what}: {len(late)} connections captured, none lost or direct", ([], []), (lost[:3], wrong[:3]))
    expect(f"{what}: at least {least}", True, len(late) >= least)


@each
def without_envoy(mode, backend):
    """Without a proxy nothing bypasses it; with the next one all is well."""
    what = f"{mode}, {backend}"
    with Captured(mode) as captured:
        captured.capture(backend)
        captured.envoy.kill()
        captured.expect_reports(f"{what}: without Envoy", backend, **NOT_LISTENING)
        for (name, *way), _ in captured.outbound() + captured.inbound():
            expect(f"{what}: without Envoy {name}", "error: *", account(*way, timeout=1))
        captured.envoy.start()
        captured.expect_ways(what, captured.outbound() + captured.inbound())
        captured.expect_reports(what, backend)


@each
def killed_envoy(mode, backend):
    """Envoy is killed and starts again under load: meanwhile connections fail at once or wait, and none bypasses it."""
    what = f"{mode}, {backend}"
    with Captured(mode, dns=False) as captured:
        captured.capture(backend)
        ways = captured.outbound() + captured.inbound()
        wanted = dict(ways)
        load = Load(list(wanted))
        load.await_results(200)
        expect(f"{what}: before the kill, none is lost", ([], []), (load.lost, load.not_as(wanted)))
        held = len(load.held)
        captured.envoy.kill()
        load.await_results(200)
        captured.expect_reports(f"{what}: while Envoy is dead", backend, **NOT_LISTENING)
        captured.envoy.start()
        restarted = time.monotonic()
        load.await_results(200)
        load.end()
        failed = load.not_as(wanted)
        expect(f"{what}: {len(failed)} connections fail, each is refused or reset", [], [text for text in failed if not is_ended(text)])
        expect(f"{what}: at least 100 fail", True, len(failed) >= 100)
        expect(f"{what}: with Envoy, none fails", [], load.not_as(wanted, restarted))
        ended = sum(is_ended(text) for _, text in load.lost)
        expect(f"{what}: {held} open connections are ended", held, ended)
        captured.expect_reports(f"{what}: after the kill", backend)


def is_ended(text):
    """Whether an error tells the app at once."""
    return any(word in text for word in ("refused", "reset", "closed", "Broken pipe"))


@each
def recaptured(mode, backend):
    """Direct connections on the ports of captured ones that have ended outlive the next capture."""
    what = f"{mode}, {backend}"
    with Captured(mode, dns=False) as captured:
        ports = [(way, port) for way, _ in captured.outbound() + captured.inbound() for port in range(31000, 31040)]
        captured.capture(backend)
        for (_, *way), port in ports:
            # The server closes first: the port is free at once.
            with contextlib.closing(Connection(*way, source=port)) as connection:
                connection.ended_by_server()
        captured.expect_reports(f"{what}: captured", backend)
        captured.clean_up(backend)
        captured.expect_reports(f"{what}: cleaned up", backend, **NO_RULES)
        direct = [Connection(*way, source=port) for (_, *way), port in ports]
        ways = {connection.through_proxy for connection in direct}
        expect(f"{what}: connections are direct after the clean-up", {False}, ways)
        captured.capture(backend)
        captured.expect_reports(f"{what}: captured again", backend, live="2 problems, first: DNS is not captured")
        alive = sum(is_alive(connection) for connection in direct)
        expect(f"{what}: direct connections live on", len(direct), alive)
        for connection in direct:
            connection.close()
        wait_for("the end of the direct connections", lambda: captured.first_line(backend) == "1 problem: DNS is not captured", 5)
        captured.expect_reports(f"{what}: direct connections have ended", backend)


def is_alive(connection):
    try:
        return connection.echo()
    except OSError:
        return False


# A loop has soon taken these.
FEW_DESCRIPTORS = 400
USER_IS_NAMED = "*the proxy's connection to the*app is captured again*must run as uid 0 and gid 1337*"


def tproxy_user():
    """In TPROXY mode a proxy of the user 1337 is captured again on its way to the app: it is named. The pod's call to its own
    service ends in a loop that takes all its descriptors, and Envoy."""
    for backend in BACKENDS:
        with Captured("TPROXY", user=1337, dns=False, descriptors=FEW_DESCRIPTORS) as captured:
            captured.capture(backend)
            expect_user_is_named(backend, captured)
            for (name, *way), _ in captured.inbound():
                expect(f"{backend}: {name} gets no answer", "error: *", account(*way, timeout=1))
            for (name, *way), _ in captured.own()[:2]:
                expect(f"{backend}: {name}:{way[2]} gets no answer", "error: *", account(*way, timeout=5))
                expect(f"{backend}: {name}: Envoy ends without descriptors", True, captured.envoy.ends())
                captured.expect_reports(f"{backend}: {name}, behind its loop", backend, **NOT_LISTENING)
                captured.envoy.start()
            expect_user_is_named(f"{backend}, restarted", captured)


def expect_user_is_named(what, captured):
    backend = what.split(",")[0]
    options = captured.options(backend)
    status, text = captured.pod.answer("check", *options, whole=True)
    expect(f"{what}: check is not equal", 1, status)
    expect(f"{what}: check names the user of the proxy", USER_IS_NAMED, text)
    _, text = captured.pod.answer("explain", "--live", *options, whole=True)
    expect(f"{what}: explain --live names the user of the proxy", USER_IS_NAMED, text)
    for address in ADDRESSES:
        to = f"[{address}]:8080" if ":" in address else f"{address}:8080"
        for sender in ("outside", "proxy"):
            _, text = captured.pod.answer("explain", "--live", "--from", sender, "--to", to, whole=True)
            verdict = text.split("\n\n")[0]
            expect(f"{what}: explain {to} from {sender} names the user of the proxy", USER_IS_NAMED, verdict)


CASES = [connections, first_capture, life_cycle, without_envoy, killed_envoy, recaptured, tproxy_user]


def main():
    by_name = {case.__name__: case for case in CASES}
    if unknown := [name for name in sys.argv[1:] if name not in by_name]:
        sys.exit(f"proxies: {unknown[0]}: no such case, there are: {' '.join(by_name)}")
    NameServer()
    world = Server(None, "world", [8080, 9091, 9092])
    for name in sys.argv[1:] or by_name:
        started = time.monotonic()
        print(f"Envoy, {name}:", flush=True)
        try:
            by_name[name]()
        except Exception:
            traceback.print_exc()
            failures.append(name)
        print(f"  ({time.monotonic() - started:.1f} s)", flush=True)
    world.close()
    if failures:
        sys.exit(f"proxies: {len(failures)} step(s) were not as promised")
    print("proxies: Envoy saw every captured connection with its destination, and no excluded one")


main()
