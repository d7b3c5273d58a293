"""What is promised under a container runtime, and in a chain of podman's: each case starts pods and looks at rules, packets,
errors and what is left. Arguments are the names of cases; without any, all are run."""

import base64
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import traceback
import urllib.request

from checks import (
    OF_KUBELET,
    PROGRAMS,
    WORK,
    expect,
    expect_clean,
    expect_refused,
    expect_traffic,
    failures,
    injected,
    traffic,
    wanted,
)
from cri import CriError
from node import GATEWAY, NETWORK, RESULTS, Node, Sandbox, wait_for
from packets import Servers, call

DUAL_STACK = "{proxyMetadata: {ISTIO_DUAL_STACK: 'true'}}"
DNS = "{proxyMetadata: {ISTIO_DUAL_STACK: 'true', ISTIO_META_DNS_CAPTURE: 'true'}}"
TPROXY = "sidecar.istio.io/interceptionMode"
MANY = int(os.environ.get("SANDBOXES", "100"))
UPGRADES = int(os.environ.get("UPGRADES", "50"))


def captured(node):
    """Injected pods, with each backend: the installer changes the entry, the runtime reads it again."""
    redirect = injected({"proxy.istio.io/config": DUAL_STACK})
    tproxy = injected({"proxy.istio.io/config": DUAL_STACK, TPROXY: "TPROXY"})
    dns = injected({"proxy.istio.io/config": DNS})
    for backend in ("nftables", "iptables-nft", "iptables-legacy"):
        node.install(f"--backend={backend}")
        with Sandbox(node, "redirect", redirect, ports=[(8081, 8000)]) as pod:
            expect_traffic(f"{backend}: REDIRECT", pod, captured=True, mapped=8081)
            expect(f"{backend}: its state", [f"{pod.id}.eth0.json"], node.state())
        with Sandbox(node, "tproxy", tproxy) as pod:
            expect_traffic(f"{backend}: TPROXY", pod, captured=True)
        with Sandbox(node, "dns", dns) as pod:
            expect_traffic(f"{backend}: DNS capture", pod, captured=True, dns=True)
        expect_clean(node)
    of_istio = injected({TPROXY: "REDIRECT"}, captureAnnotation=False)
    node.install('--capture={"dual_stack": true}')
    with Sandbox(node, "istio", of_istio) as pod:
        expect_traffic("by Istio's annotations alone", pod, captured=True)
    node.install()


def not_captured(node):
    """Pods that are none of ours, and pods that must not start."""
    with_init = injected({"proxy.istio.io/config": DUAL_STACK}, enabled=False)
    bad = {**injected({}, captureAnnotation=False), "traffic.sidecar.istio.io/excludeInboundPorts": "80,http"}
    for what, annotations, namespace in (
        ("a pod that is not injected", OF_KUBELET, "default"),
        ("a pod with istio-init", with_init, "default"),
        ("a wrong annotation in an excluded namespace", bad, "excluded"),
    ):
        with Sandbox(node, "other", annotations, namespace) as pod:
            expect(f"{what}: no rule", "", pod.rules())
            expect_traffic(f"{what}: nothing is captured", pod, captured=False)
            expect(f"{what}: no state", [], node.state())
    wrong = '*traffic.sidecar.istio.io/excludeInboundPorts*"http"*'
    expect_refused(node, "a wrong annotation: the error names it", wrong, bad)
    node.install("--backend=iptables-legacy")
    with node.without_iptables():
        wrong = "*--backend iptables-legacy cannot be used*"
        expect_refused(node, "rules cannot be written: the error says why", wrong, injected({}))
    node.install()


def without_annotations(node):
    """The entry has no `capabilities`: the runtime passes no annotations."""
    node.edit_list(lambda plugins: plugins[-1].pop("capabilities"))
    for what, annotations in (("an injected pod", injected({})), ("another pod", OF_KUBELET)):
        wrong = '*unknown whether pod default/unknown is captured: annotations: *"capabilities"*'
        expect_refused(node, f"{what} does not start", wrong, annotations, "unknown")
    with Sandbox(node, "system", injected({}), namespace="kube-system") as pod:
        expect("a pod of an excluded namespace starts", "", pod.rules())
    expect_clean(node)
    node.install("--replace-istio")  # without `capabilities` it may be Istio's entry
    with Sandbox(node, "again", injected({"proxy.istio.io/config": DUAL_STACK})) as pod:
        expect_traffic("installed again: captured", pod, captured=True)


def lists(node):
    """Which lists containerd loads, and with which plugins: the installer edits these, and no other."""
    with_plugin = '{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"},{"type":"b",%s}]}'
    fields = (
        '"capabilities":["portMappings"]',
        '"capabilities":{"portMappings":"true"}',
        '"capabilities":{"portMappings":null}',
        '"ipam":"host-local"',
        '"ipam":{"type":1}',
        '"ipam":{"type":null,"ranges":[[{}]]}',
        '"dns":["10.0.0.10"]',
        '"dns":{"nameservers":"10.0.0.10"}',
        '"dns":{"nameservers":null,"Search":["a",null]}',
        '"CNIVersion":1',
        '"prevResult":[]',
        '"TYPE":1',
        '"Type":"c"',
        '"type":null',
        '"type":"c"',
    )
    texts = (
        '{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"}],"plugins":[{"type":"b"}]}',
        '{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"}],"Plugins":[{"type":"b"}]}',
        '{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"}],"plugins":null}',
        '{"cniVersion":"1.0.0","name":"x","plugins":[{"Type":"a","type":null}]}',
        '{"cniVersion":"1.0.0","name":"x","name":"y","plugins":[{"type":"a"}]}',
        '{"cniVersion":"1.0.0","name":"x","name":null,"plugins":[{"type":"a"}]}',
        '{"cniVersion":"9.9.9","cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"}]}',
        '{"cniVersion":"1.0.0","name":"x"}',
        *(with_plugin % field for field in fields),
    )
    for text in texts:
        node.write_list(text)
        os.utime(node.list, (0, 0))  # It is not being written.
        loaded = node.loaded_types(text)
        status, printed = node.istio_cni("install", "--once", "--no-dry-add")
        if loaded is None:
            expect(f"not edited: {text}", (1, text), (status, node.read_list()))
        else:
            expect(f"installed: {text}", 0, status)
            expect("its plugins, and the entry", [*loaded, "istio-cni"], node.loaded_types(node.read_list()))
        node.write_list(node.original)
        node.wait_for_list()
    node.install()


def killed(node):
    """The runtime is killed while a pod starts, while one runs and while one is stopped; kubelet does what it always does."""
    annotations = injected({"proxy.istio.io/config": DUAL_STACK})
    with Sandbox(node, "reference", annotations) as pod:
        reference = pod.rules()
    # CRI-O calls DEL with the plugins of ADD.
    node.edit_list(lambda plugins: plugins.append({"type": "hold", "directory": WORK}))
    running = Sandbox(node, "running", annotations).run()
    starting = Sandbox(node, "starting", annotations)
    error = _killed_while_held(node, starting.run)
    expect("killed behind ADD: the call fails", True, error != "")
    with Sandbox(node, "starting", annotations, attempt=1) as pod:
        expect("the pod starts at the second attempt, captured", reference, pod.rules())
    expect_traffic("the pod that was running is captured", running, captured=True)
    error = _killed_while_held(node, running.stop)
    expect("killed before DEL: the call fails", True, error != "")
    running.stop()
    running.stop()
    expect("a pod stopped twice, after the kill: its state is removed", False, f"{running.id}.eth0.json" in node.state())
    # Kubelet removes each sandbox that it finds and does not need.
    for item in node.cri.call("ListPodSandbox")["items"]:
        node.cri.call("StopPodSandbox", pod_sandbox_id=item["id"])
        node.cri.call("RemovePodSandbox", pod_sandbox_id=item["id"])
    if lost := node.runtime.lost(node.version):
        expect("the runtime has left these of the pod that was starting", lost, sorted(node.leftovers()))
        node.remove_lost()
    expect_clean(node)
    node.edit_list(lambda plugins: plugins.pop())


def _killed_while_held(node, function):
    """Kills the runtime when the plugin behind ours has been called; the error of the function, which called the runtime."""
    holding, held = (os.path.join(WORK, name) for name in ("holding", "held"))
    open(holding, "w").close()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        called = pool.submit(function)
        wait_for("the plugin is called", lambda: os.path.exists(held) or called.done())
        node.kill()
        os.unlink(holding)
        error = called.exception()
    os.unlink(held)
    if error is not None and not isinstance(error, CriError):
        raise error
    node.start()
    node.wait_for_list()
    return "" if error is None else str(error)


def many(node):
    """As after a restart of the node: all pods at once."""
    annotations = injected({"proxy.istio.io/config": DUAL_STACK})
    with Sandbox(node, "reference", annotations) as pod:
        reference = pod.rules()
    log = os.path.getsize(node.path("runtime.log"))
    pods = [Sandbox(node, f"pod-{number}", annotations) for number in range(MANY)]
    with concurrent.futures.ThreadPoolExecutor(MANY) as pool:
        started = time.monotonic()
        errors = [error for error in pool.map(Sandbox.error, pods) if error]
        added = time.monotonic()
        expect(f"{MANY} pods at once: no error", [], errors[:3])
        expect("each has the rules of a captured pod", {reference}, {pod.rules() for pod in pods})
        outbound = {call_of_app(pod) for pod in pods}
        expect("each pod's connection goes to its own proxy", {f"proxy 15001 for {GATEWAY}:8080"}, outbound)
        expect("each has its state", sorted(f"{pod.id}.eth0.json" for pod in pods), node.state())
        removing = time.monotonic()
        list(pool.map(Sandbox.remove, pods))
        removed = time.monotonic()
    expect_clean(node)
    with open(node.path("runtime.log"), encoding="utf-8") as file:
        file.seek(log)
        lines = [json.loads(line) for line in file if line.startswith("{")]
    took = sorted(line["total_us"] / 1000 for line in lines if line["msg"] == "captured")
    print(
        f"  measured: started in {added - started:.1f} s, removed in {removed - removing:.1f} s; "
        f"istio-cni's ADD: median {statistics.median(took):.1f} ms, longest {took[-1]:.1f} ms"
    )


def call_of_app(pod):
    with Servers(pod.netns, {"proxy": [15001]}):
        return call(pod.netns, GATEWAY, 8080)


def slow_loopback(node):
    """containerd calls the plugin `loopback`, which refuses other addresses on `lo`, at the same time as the list."""
    plugin = node.path("bin", "loopback")
    real = os.readlink(plugin)
    os.unlink(plugin)
    with open(plugin, "w", encoding="utf-8") as file:
        file.write(
            "#!/bin/sh\n"
            '[ "$CNI_COMMAND" != ADD ] || { sleep 1; nsenter --net="$CNI_NETNS" ip link set lo up; sleep 1; }\n'
            f"exec {real}\n"
        )
    os.chmod(plugin, 0o755)
    tproxy = injected({"proxy.istio.io/config": DUAL_STACK, TPROXY: "TPROXY"})
    for backend in ("nftables", "iptables-nft"):
        node.install(f"--backend={backend}")
        with Sandbox(node, "slow", tproxy) as pod:
            expect_traffic(f"{backend}: a pod whose loopback interface is late is captured", pod, captured=True)
    node.install()
    os.unlink(plugin)
    os.symlink(real, plugin)
    expect_clean(node)


def upgraded(node):
    """The program is replaced again and again while pods start and stop."""
    annotations = injected({"proxy.istio.io/config": DUAL_STACK})
    with Sandbox(node, "reference", annotations) as pod:
        reference = pod.rules()
    other = node.path("other", "istio-cni")
    os.mkdir(os.path.dirname(other))
    shutil.copy(f"{PROGRAMS}/istio-cni", other)
    with open(other, "ab") as file:
        file.write(b"another version")
    done, found = threading.Event(), []

    def start_pods(number):
        count = 0
        while not done.is_set():
            with Sandbox(node, f"loop-{number}-{count}", annotations) as pod:
                found.append(pod.rules())
            count += 1

    with concurrent.futures.ThreadPoolExecutor() as pool:
        loops = [pool.submit(start_pods, number) for number in range(3)]
        before = len(found)
        try:
            for number in range(UPGRADES):
                node.install(program=other if number % 2 == 0 else None)
        finally:
            started = len(found) - before
            done.set()
        errors = [str(loop.exception()) for loop in loops if loop.exception()]
    expect(f"{UPGRADES} upgrades while pods start: no error", [], errors)
    expect(f"{started} pods started meanwhile, at least {UPGRADES // 10}", True, started >= UPGRADES // 10)
    expect("all are captured", {reference}, set(found))
    expect_clean(node)


def wait_until_guarded(address):
    """Until the agent guards the one pod that is captured."""

    def is_guarded():
        with urllib.request.urlopen(f"http://{address}/metrics") as metrics:
            return b"istio_cni_guarded_pods 1\n" in metrics.read()

    wait_for("the pod is guarded", is_guarded)


def guarded(node):
    """Rules of a running pod are deleted by hand: the agent names the program, and writes them again."""
    annotations = injected({"proxy.istio.io/config": DUAL_STACK})
    for backend, command, program in (
        ("nftables", "nft flush ruleset", "nft"),
        ("nftables", "nft flush chain inet istio-proxy-nat istio-output", "nft"),
        ("iptables-nft", "iptables-nft -t nat -F", "iptables-nft"),
        # Of iptables-legacy, the kernel announces nothing: the next audit finds it.
        ("iptables-legacy", "iptables-legacy -t nat -F", None),
    ):
        node.install(f"--backend={backend}")
        with Sandbox(node, "guarded", annotations) as pod:
            rules = pod.rules()
            with node.agent(f"--backend={backend}") as logged:
                wait_until_guarded(json.loads(logged("serving /healthz, /readyz and /metrics"))["address"])
                subprocess.run(["nsenter", f"--net={pod.netns}", *command.split()], check=True)
                drift = json.loads(logged("drift: "))
                expect(f"{command}: the pod", "default/guarded", drift["pod"])
                named = f"changed by {program} (pid " in drift["msg"] if program else "changed by" not in drift["msg"]
                expect(f"{command}: the program is named, where the kernel announces it", True, named)
                logged("repaired: ")
                expect(f"{command}: the rules are those of before", rules, pod.rules())
                expect_traffic(f"{command}: repaired", pod, captured=True)
    node.install()
    expect_clean(node)


def late(node):
    """Pods that the runtime has set up before the plugin was in its list: the agent captures them from outside."""
    annotations = injected({"proxy.istio.io/config": DUAL_STACK})
    for backend in ("nftables", "iptables-nft", "iptables-legacy"):
        expect("uninstall", 0, node.istio_cni("uninstall")[0])
        node.wait_for_list()
        with Sandbox(node, "late", annotations) as pod, Sandbox(node, "plain", OF_KUBELET) as plain:
            expect_traffic(f"{backend}: without the plugin", pod, captured=False)
            node.install(f"--backend={backend}")
            status, text = node.istio_cni("audit")
            expect("audit names the pod", (1, True), (status, "default/late  none     uncaptured  no rules: " in text))
            with node.agent(f"--backend={backend}") as logged:
                address = json.loads(logged("serving /healthz, /readyz and /metrics"))["address"]
                logged("repaired: started without capture at ")
                wait_until_guarded(address)
                expect_traffic(f"{backend}: captured from outside", pod, captured=True)
                expect("its state", [f"{pod.id}.eth0.json"], node.state())
                expect("another pod has no rules", "", plain.rules())
                rules = pod.rules()
                if backend != "iptables-legacy":
                    subprocess.run(["nsenter", f"--net={pod.netns}", "nft", "flush", "ruleset"], check=True)
                    expect("the guard names what removes them", True, "changed by nft (pid " in logged("drift: "))
                    logged("repaired: ")
                    expect("and writes them again", rules, pod.rules())
            expect("audit finds it captured", 0, node.istio_cni("audit")[0])
        # They have ended without an agent, and CRI-O does not call plugins that it has not called for ADD.
        with node.agent(f"--backend={backend}"):
            wait_for("no state is left", lambda: not node.state())
        expect_clean(node)
    node.install()


def uninstalled(node):
    """istio-cni is removed while captured pods run."""
    annotations = injected({"proxy.istio.io/config": DUAL_STACK})
    node.write_list(node.original)
    node.install()
    first, second = (Sandbox(node, name, annotations).run() for name in ("first", "second"))
    status, text = node.istio_cni("uninstall", "--binary")
    named = f"{NETWORK}-{first.id}-eth0" in text
    expect("uninstall --binary names the cached results of running pods", (1, True), (status, named))
    expect("the list is that of before, to the last byte", node.original, node.read_list())
    expect("no state is left", [], node.state())
    node.wait_for_list()
    expect_traffic("running pods stay captured", first, captured=True)
    with Sandbox(node, "new", annotations) as pod:
        expect("a new pod starts without capture", "", pod.rules())
    first.remove()
    # A pod whose entry comes back before it is deleted: DEL without state.
    node.install()
    second.remove()
    expect_clean(node)
    expect("uninstall --binary then removes the program", 0, node.istio_cni("uninstall", "--binary")[0])
    expect("it is gone", False, os.path.exists(node.path("bin", "istio-cni")))
    node.install()


def single(node):
    """The network is a configuration of one plugin, which becomes a list."""
    annotations = injected({"proxy.istio.io/config": DUAL_STACK})
    os.unlink(node.list)
    before, node.list = node.list, node.path("net.d", "20-pods.conf")
    plugin = {"cniVersion": "1.0.0", "name": NETWORK, **json.loads(node.original)["plugins"][0]}
    text = json.dumps(plugin, indent=1)
    node.write_list(text)
    converted = node.path("net.d", "20-pods-istio.conflist")
    node.install(used=converted)
    with Sandbox(node, "converted", annotations) as pod:
        expect_traffic("a configuration of one plugin: captured", pod, captured=True)
        expect("uninstall", 0, node.istio_cni("uninstall")[0])
        expect("the file is that of before, and alone", {"20-pods.conf": text}, node.configurations())
        node.wait_for_list()
    expect_clean(node)
    os.unlink(node.list)
    node.list = before
    node.write_list(node.original)
    node.install()


def podman(node):
    """podman's CNI: its containers are no pods of Kubernetes."""
    configurations = node.path("podman.d")
    os.mkdir(configurations)
    shutil.copy(node.list, configurations)
    settings = node.path("containers.conf")
    with open(settings, "w", encoding="utf-8") as file:
        file.write(
            "[containers]\ndefault_ulimits = ['nofile=1000:1000', 'nproc=4000:4000']\n"
            "[engine]\ncgroup_manager = 'cgroupfs'\nevents_logger = 'file'\n"
            f"[network]\nnetwork_backend = 'cni'\nnetwork_config_dir = '{configurations}'\n"
            f"cni_plugin_dirs = ['{node.path('bin')}']\n"
        )
    program = ["podman", "--root", node.path("storage"), "--runroot", node.path("podman-run"), "--storage-driver", "vfs"]

    def run(*arguments, **more):
        environment = {**os.environ, "CONTAINERS_CONF": settings}
        done = subprocess.run([*program, *arguments], capture_output=True, env=environment, check=False, **more)
        if done.returncode != 0:
            raise RuntimeError(f"podman {arguments[0]}: {done.stderr.decode()}")
        return done.stdout.decode().strip()

    with open(node.path("layer.tar"), "rb") as layer:
        run("import", "-", "localhost/app", stdin=layer)
    limits = ["--cgroup-parent", os.environ["CGROUP"]]
    run("run", "--detach", "--name", "app", "--network", NETWORK, *limits, "localhost/app", "/busybox", "sleep", "1000000")
    form = "{{.State.Pid}} {{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}}{{end}}"
    pid, *addresses = run("inspect", "--format", form, "app").split()
    netns = f"/proc/{pid}/ns/net"
    expect("a container of podman: nothing is captured", wanted(addresses, captured=False), traffic(netns, addresses))
    [result] = [name for name in os.listdir(RESULTS) if name.startswith(f"{NETWORK}-")]
    with open(os.path.join(RESULTS, result), "rb") as file:
        chain = json.loads(base64.b64decode(json.load(file)["config"]))["plugins"]
    expect("the plugin was in its chain", ["bridge", "portmap", "istio-cni"], [entry["type"] for entry in chain])
    expect("no state", [], node.state())
    run("rm", "--force", "--time", "0", "app")
    expect_clean(node)


CASES = [captured, not_captured, without_annotations, lists, killed, slow_loopback, many, upgraded, guarded, late, uninstalled, single, podman]


def print_log(node):
    """What the runtime and the plugins complain of."""
    with open(node.path("runtime.log"), encoding="utf-8", errors="replace") as file:
        lines = [line for line in file if "level=info" not in line and '"level":"info"' not in line]
    sys.stderr.writelines(lines[-40:])


def not_run(case, node):
    """Why a case cannot be run on this node; `None` if it can."""
    if case is lists and not node.runtime.shows_networks:
        return "this runtime does not show which plugins it has loaded"
    if case is podman and node.version != "1.0.0":
        return f"podman reads no list of CNI {node.version}"
    return None


def main():
    by_name = {case.__name__: case for case in CASES}
    if unknown := [name for name in sys.argv[1:] if name not in by_name]:
        sys.exit(f"containerd: {unknown[0]}: no such case, there are: {' '.join(by_name)}")
    chosen = [by_name[name] for name in sys.argv[1:] or by_name]
    node = Node(WORK, PROGRAMS)
    node.start()
    version = node.cri.call("Version")
    print(f"{version['runtime_name']} {version['runtime_version']}:", flush=True)
    node.import_image()
    node.install()
    # The world: this namespace, at the other end of the bridge.
    with Servers(None, {"world": [8080]}, {"world": [53]}):
        for case in chosen:
            if reason := not_run(case, node):
                print(f"{case.__name__}: not run: {reason}", flush=True)
                continue
            started = time.monotonic()
            print(f"{case.__name__}:", flush=True)
            try:
                case(node)
            except Exception:
                traceback.print_exc()
                failures.append(case.__name__)
                break  # the next ones would find what this one left
            print(f"  ({time.monotonic() - started:.1f} s)", flush=True)
    if failures:
        print_log(node)
        sys.exit(f"containerd: {len(failures)} step(s) were not as promised")
    print("containerd: injected pods were captured, refused ones named the reason, and nothing was left of any")


main()
