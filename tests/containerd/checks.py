"""What the cases look at: annotations as the injector writes them, packets, errors, and what is left."""

import fnmatch
import json
import os
import subprocess
import sys

import yaml
from node import GATEWAY, GATEWAY6, Sandbox
from packets import PROXY, Servers, ask, call

WORK, PROGRAMS = os.environ["work"], os.environ["PROGRAMS"]
# Kubelet sets it on every pod.
OF_KUBELET = {"kubernetes.io/config.seen": "2024-01-01T00:00:00Z", "kubernetes.io/config.source": "api"}

failures = []


def expect(what, wanted, got):
    """Equal, or a text that the pattern matches."""
    if got == wanted or (isinstance(got, str) and isinstance(wanted, str) and fnmatch.fnmatchcase(got, wanted)):
        print(f"  ok: {what}", flush=True)
    else:
        print(f"  NOT AS PROMISED: {what}: wanted: {wanted}\n  got: {got}", file=sys.stderr, flush=True)
        failures.append(what)


def injected(annotations, **cni):
    """The annotations of a pod behind the injector, and kubelet's."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }
    values = os.path.join(WORK, "values.json")
    with open(values, "w", encoding="utf-8") as file:
        json.dump({"pilot": {"cni": {"enabled": True, **cni}}}, file)
    done = subprocess.run(
        [f"{PROGRAMS}/sidecar-injector", "inject", "--values", values, "-f", "-"],
        input=json.dumps(pod),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"sidecar-injector: {done.stderr}")
    return {**OF_KUBELET, **yaml.safe_load(done.stdout)["metadata"]["annotations"]}


def traffic(netns, addresses, mapped=None):
    """Who gets the pod's connections, in both directions, and its queries of a name server."""
    streams, datagrams = {"proxy": [15001, 15006], "app": [8000]}, {"proxy": [15053]}
    results = {}
    with Servers(netns, streams, datagrams):
        for gateway, own in zip((GATEWAY, GATEWAY6), addresses):
            family = "IPv6" if ":" in own else "IPv4"
            results[f"outbound {family}"] = call(netns, gateway, 8080)
            results[f"inbound {family}"] = call(None, own, 8000)
            results[f"outbound {family} of the proxy"] = call(netns, gateway, 8080, PROXY)
            results[f"DNS {family}"] = ask(netns, gateway, 53)
        if mapped is not None:
            results["port of the node"] = call(None, GATEWAY, mapped)
    return results


def shown(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def wanted(addresses, captured, dns=False, mapped=None):
    results = {}
    for gateway, own in zip((GATEWAY, GATEWAY6), addresses):
        family = "IPv6" if ":" in own else "IPv4"
        outbound, inbound = ("proxy 15001", "proxy 15006") if captured else ("world 8080", "app 8000")
        results[f"outbound {family}"] = f"{outbound} for {shown(gateway, 8080)}"
        results[f"inbound {family}"] = f"{inbound} for {shown(own, 8000)}"
        results[f"outbound {family} of the proxy"] = f"world 8080 for {shown(gateway, 8080)}"
        results[f"DNS {family}"] = "proxy 15053" if dns else "world 53"
    if mapped is not None:
        results["port of the node"] = f"{inbound} for {shown(addresses[0], 8000)}"
    return results


def expect_traffic(what, pod, captured, dns=False, mapped=None):
    expect(what, wanted(pod.addresses, captured, dns, mapped), traffic(pod.netns, pod.addresses, mapped))


def expect_clean(node, what="nothing is left"):
    expect(what, {}, node.leftovers())


def expect_refused(node, what, message, annotations, name="refused"):
    """A pod does not start. The runtime's error, which becomes the pod's event, has a short message of ours."""
    error = Sandbox(node, name, annotations).error()
    expect(what, f'*plugin type="istio-cni"*(add): {message}', error)
    length = len(error.partition("(add): ")[2])
    expect(f"the message has {length} characters, 300 at most", True, length <= 300)
    expect_clean(node, "nothing is left of the refused pod")
