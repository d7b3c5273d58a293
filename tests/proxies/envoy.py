"""Envoy with a static configuration in the shape of the sidecar's, in a pod."""

import json
import os
import subprocess
import urllib.request

from lab import ADDRESSES, GATEWAYS, WORK, wait_for

BINARY = os.environ["ENVOY"]
OUTBOUND, INBOUND, DNS, ADMIN = 15001, 15006, 15053, 15000
# The port of a service in the world whose endpoint is the app of the pod itself, at this port.
OWN_SERVICE, OWN_ENDPOINT = 8081, 8080
MARK = 1337
# What the DNS filter knows by itself, and what it asks the name server in the world for.
KNOWN_NAME, KNOWN_ADDRESSES = "mesh.test", ("240.240.0.1", "2001:2::1")
EXTENSIONS = "type.googleapis.com/envoy.extensions.filters"


def _address(address, port, protocol="TCP"):
    return {"socket_address": {"protocol": protocol, "address": address, "port_value": port}}


def _proxy(cluster):
    typed = {"@type": f"{EXTENSIONS}.network.tcp_proxy.v3.TcpProxy", "stat_prefix": cluster, "cluster": cluster}
    return [{"name": "envoy.filters.network.tcp_proxy", "typed_config": typed}]


def _cluster(name, source=None):
    cluster = {"name": name, "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "20s"}
    if source:
        cluster["upstream_bind_config"] = {"source_address": {"address": source, "port_value": 0}}
    return cluster


def _own_cluster(address):
    endpoint = {"endpoint": {"address": _address(address, OWN_ENDPOINT)}}
    name = f"own {address}"
    endpoints = {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}
    return {"name": name, "type": "STATIC", "connect_timeout": "20s", "load_assignment": endpoints}


def _listener(name, port, direction, chains, filters):
    blackhole = {"filter_chain_match": {"destination_port": port}, "filters": _proxy("BlackHoleCluster")}
    return {
        "name": name,
        "address": _address("0.0.0.0", port),
        "additional_addresses": [{"address": _address("::", port)}],
        "traffic_direction": direction,
        "listener_filters": filters,
        "filter_chains": [blackhole, *chains],
    }


def _filter(name, kind, **more):
    return {"name": name, "typed_config": {"@type": f"{EXTENSIONS}.{kind}", **more}}


def _dns_listener(address):
    addresses = {"address_list": {"address": list(KNOWN_ADDRESSES)}}
    table = {"virtual_domains": [{"name": KNOWN_NAME, "endpoint": addresses}]}
    resolvers = [_address(gateway, 53, "UDP") for gateway in GATEWAYS[:1]]
    c_ares = {
        "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
        "resolvers": resolvers,
        "dns_resolver_options": {"no_default_search_domain": True},
    }
    resolver = {"name": "envoy.network.dns_resolver.cares", "typed_config": c_ares}
    client = {"resolver_timeout": "20s", "typed_dns_resolver_config": resolver, "max_pending_lookups": 256}
    dns = _filter(
        "envoy.filters.udp.dns_filter",
        "udp.dns_filter.v3.DnsFilterConfig",
        stat_prefix="dns",
        server_config={"inline_dns_table": table},
        client_config=client,
    )
    return {"name": f"dns {address}", "address": _address(address, DNS, "UDP"), "listener_filters": [dns]}


def config(mode):
    """As istiod writes it: a REDIRECT proxy calls the app from 127.0.0.6 and ::6, a TPROXY one from the client's address."""
    original_dst = _filter("envoy.filters.listener.original_dst", "listener.original_dst.v3.OriginalDst")
    sources, filters = ("127.0.0.6", "::6"), [original_dst]
    if mode == "TPROXY":
        original_src = "listener.original_src.v3.OriginalSrc"
        sources = (None, None)
        filters = [original_dst, _filter("envoy.filters.listener.original_src", original_src, mark=MARK)]
    inbound = [
        {
            "filter_chain_match": {"prefix_ranges": [{"address_prefix": prefix, "prefix_len": 0}]},
            "filters": _proxy(f"InboundPassthroughClusterIpv{version}"),
        }
        for prefix, version in (("0.0.0.0", 4), ("::", 6))
    ]
    outbound = [
        {
            "filter_chain_match": {
                "destination_port": OWN_SERVICE,
                "prefix_ranges": [{"address_prefix": gateway, "prefix_len": 128 if ":" in gateway else 32}],
            },
            "filters": _proxy(f"own {address}"),
        }
        for gateway, address in zip(GATEWAYS, ADDRESSES)
    ] + [{"filters": _proxy("PassthroughCluster")}]
    listeners = [
        _listener("virtualOutbound", OUTBOUND, "OUTBOUND", outbound, [original_dst]),
        {**_listener("virtualInbound", INBOUND, "INBOUND", inbound, filters), "transparent": mode == "TPROXY"},
        *(_dns_listener(address) for address in ("127.0.0.1", "::1")),
    ]
    clusters = [
        {"name": "BlackHoleCluster", "type": "STATIC", "connect_timeout": "20s"},
        _cluster("PassthroughCluster"),
        *(_cluster(f"InboundPassthroughClusterIpv{version}", source) for version, source in zip((4, 6), sources)),
        *(_own_cluster(address) for address in ADDRESSES),
    ]
    return {
        "admin": {"address": _address("127.0.0.1", ADMIN)},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


class Envoy:
    """Envoy in a pod: as user and group 1337, in TPROXY mode as root with the group 1337, as the sidecar runs.

    `descriptors` is the number of files that each generation may have open."""

    def __init__(self, pod, mode, user=None, descriptors=None):
        self.pod, self.mode, self.epoch, self.processes = pod, mode, 0, []
        self.user = user if user is not None else 0 if mode == "TPROXY" else 1337
        self.limit = ["prlimit", f"--nofile={descriptors}:{descriptors}", "--"] if descriptors else []
        self.file = os.path.join(WORK, f"envoy-{mode}.json")
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(config(mode), file)
        self.start()

    def start(self):
        """Starts it, or its next generation: that takes the listeners over, and the one before drains and ends."""
        keep = ["--inh-caps", "+net_admin", "--ambient-caps", "+net_admin"] if self.mode == "TPROXY" else []
        user = ["setpriv", f"--reuid={self.user}", "--regid=1337", "--clear-groups", *(keep if self.user else [])]
        options = ["--config-path", self.file, "--restart-epoch", str(self.epoch), "--base-id", str(self.pod.number)]
        times = ["--drain-time-s", "6", "--parent-shutdown-time-s", "8", "--concurrency", "2"]
        log = open(os.path.join(WORK, f"envoy-{self.pod.number}.log"), "a", encoding="utf-8")
        with log:
            command = self.pod.command(*self.limit, *user, "--", BINARY, *options, *times, "--log-level", "warning")
            # It is killed with the stage, not with the thread that starts it.
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        self.epoch += 1
        wait_for(f"Envoy, generation {self.epoch}", self._is_live)

    def _is_live(self):
        process = self.processes[-1]
        if process.poll() is not None:
            raise RuntimeError(f"Envoy ended with {process.returncode}")
        try:
            info = json.loads(self.admin("server_info"))
        except OSError:
            return False
        return info["state"] == "LIVE" and info["command_line_options"]["restart_epoch"] == self.epoch - 1

    def admin(self, path, method="GET"):
        request = urllib.request.Request(f"http://127.0.0.1:{ADMIN}/{path}", method=method)
        return self.pod.inside(lambda: urllib.request.urlopen(request, timeout=20).read().decode())

    def drain(self):
        """Has it drain its listeners: they accept connections until the end of the drain time."""
        self.admin("drain_listeners?graceful", method="POST")

    def hot_restart(self):
        """Returns once the generation before has ended."""
        before = self.processes[-1]
        self.start()
        before.wait(60)

    def kill(self):
        self.processes[-1].kill()
        self.processes[-1].wait()
        self.epoch = 0

    def ends(self):
        """Whether it ends by itself."""
        try:
            self.processes[-1].wait(20)
        except subprocess.TimeoutExpired:
            return False
        self.epoch = 0
        return True

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
