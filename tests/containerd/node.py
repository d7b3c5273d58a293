"""A node: a container runtime with directories of its own, a chain of plugins, and the image of its sandboxes."""

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import tarfile
import time

import runtimes
from cri import Cri, CriError

GATEWAY, GATEWAY6 = "10.88.0.1", "fd00:88::1"
NETWORK = "pods"
HERE = os.path.dirname(os.path.abspath(__file__))
NETWORK_PLUGINS = os.environ.get("NETWORK_PLUGINS") or "/usr/lib/cni"
# Where Go's libcni keeps results, whatever the runtime's configuration says.
RESULTS = "/var/lib/cni/results"
# How long something may take that happens by itself: never reached unless it does not happen.
PATIENCE = 120


def wait_for(what, condition):
    """Waits until a condition holds; its value."""
    until = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not so after {PATIENCE} s")
        time.sleep(0.05)
    return value


class Node:
    """The node. Processes end with the process namespace that tests/containerd/run makes."""

    def __init__(self, work, programs):
        self.work, self.programs = work, programs
        for name in ("bin", "net.d", "ipam"):
            os.makedirs(self.path(name))
        for name in ("bridge", "host-local", "loopback", "portmap"):
            os.symlink(f"{NETWORK_PLUGINS}/{name}", self.path("bin", name))
        shutil.copy(f"{HERE}/hold", self.path("bin", "hold"))
        ipam = {
            "type": "host-local",
            "dataDir": self.path("ipam"),
            "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        }
        plugins = [
            {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ]
        self.version = _newest_version(self.path("bin", "bridge"))
        self.original = json.dumps({"cniVersion": self.version, "name": NETWORK, "plugins": plugins}, indent=3) + "\n\n"
        self.list = self.path("net.d", "10-pods.conflist")
        self.write_list(self.original)
        # The plugin would make it, with an IPv6 address that is checked for duplicates first: no source of calls meanwhile.
        for command in (
            # Without an address of its own it has the lowest one of its ports, so it changes with pods, and CHECK of the plugin
            # fails, which CRI-O calls after each ADD.
            "link add cni0 address 02:00:00:00:00:01 type bridge",
            f"address add {GATEWAY}/16 dev cni0",
            f"address add {GATEWAY6}/64 dev cni0 nodad",
            "link set cni0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        self.runtime = runtimes.chosen()
        self.command = self.runtime.configure(self)
        self.log = open(self.path("runtime.log"), "ab")
        self.cri, self.process, self.search = None, None, self.runtime.search

    def path(self, *names):
        return os.path.join(self.work, *names)

    # --- the runtime -----------------------------------------------------------------------------------------------

    def start(self):
        environment = {**os.environ, "PATH": self.search}
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, env=environment)
        if self.cri:
            self.cri.close()  # it may not have noticed yet
        self.cri = Cri(runtimes.SOCKET)
        self.cri.call("Version")

    def kill(self):
        """As a crash ends it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self, search):
        """With another PATH, which its plugins inherit."""
        self.process.terminate()
        self.process.wait()
        self.search = search
        self.start()

    @contextlib.contextmanager
    def without_iptables(self):
        tools, before = self.path("tools"), self.search
        os.makedirs(tools)
        for name in self.runtime.tools:
            os.symlink(self.runtime.which(name), os.path.join(tools, name))
        self.restart(tools)
        try:
            yield
        finally:
            self.restart(before)

    def import_image(self):
        archive = self.path("image.tar")
        _write_image(archive, self.path("layer.tar"))
        self.runtime.import_image(self, archive)
        wait_for("the runtime lists the image", lambda: self.cri.call("ListImages").get("images"))

    # --- network configuration -------------------------------------------------------------------------------------

    def read_list(self):
        with open(self.list, encoding="utf-8") as file:
            return file.read()

    def write_list(self, text):
        # In the directory itself: containerd 1.6 heeds the rename of a file away, not that of one into it.
        temporary = self.path("net.d", ".temporary")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, self.list)

    def edit_list(self, edit):
        """Changes the plugins by a function of their list, and waits until the runtime uses them."""
        value = json.loads(self.read_list())
        edit(value["plugins"])
        self.write_list(json.dumps(value))
        self.wait_for_list()

    def configurations(self):
        """The files in the directory of network configurations, with their text."""
        texts = {}
        for name in _names(self.path("net.d")):
            with open(self.path("net.d", name), encoding="utf-8") as file:
                texts[name] = file.read()
        return texts

    def wait_for_list(self, path=None):
        """The runtime watches the directory: it uses a change a moment later."""
        wait_for("the runtime uses the network configuration", lambda: self.runtime.has_loaded(self, path or self.list))

    def loaded_types(self, text):
        """The types of the plugins of the list that has just been written, as it is loaded; `None` if it is not."""
        return wait_for("the network configuration is read", lambda: self.runtime.loaded_types(self, text))[0]

    def istio_cni(self, command, *options, program=None):
        """The node agent's program; what it printed, of both streams."""
        dirs = [f"--net-dir={self.path('net.d')}", f"--run-dir={self.path('run')}"]
        if command != "audit":
            dirs.append(f"--bin-dir={self.path('bin')}")
        done = subprocess.run(
            [program or f"{self.programs}/istio-cni", command, *options, *dirs],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def install(self, *options, program=None, used=None):
        # Others use the processors, too: no verdict may depend on how long a command takes.
        options = ["--once", "--deadline-ms=120000", "--exclude-namespaces=kube-system,excluded", *options]
        status, text = self.istio_cni("install", *options, program=program)
        if status != 0:
            raise RuntimeError(f"istio-cni install: exit {status}: {text}")
        self.wait_for_list(used)

    @contextlib.contextmanager
    def agent(self, *options):
        """The agent, until the end of the block. Gives what waits for a line of its log, of those after the last one."""
        dirs = [f"--net-dir={self.path('net.d')}", f"--bin-dir={self.path('bin')}", f"--run-dir={self.path('run')}"]
        options = ["--listen=127.0.0.1:0", "--exclude-namespaces=kube-system,excluded", "--no-dry-add", *options]
        program = f"{self.programs}/istio-cni"
        log = self.path("agent.log")
        with open(log, "wb") as file:
            process = subprocess.Popen([program, "install", *options, *dirs], stdout=file, stderr=file)
        with open(log, encoding="utf-8") as lines:

            def next_line(text):
                return next((line for line in lines if text in line), None)

            try:
                yield lambda text: wait_for(f"the agent logs '{text}'", lambda: next_line(text))
            finally:
                process.terminate()
                process.wait()

    # --- what a pod leaves -----------------------------------------------------------------------------------------

    def state(self):
        return _names(self.path("run", "state"))

    def remove_lost(self):
        """Removes what a runtime has left of pods that it does not know any more."""
        for name in _names("/run/netns"):
            subprocess.run(["ip", "netns", "delete", name], check=True)
        for folder in (self.path("ipam", NETWORK), self.path("run", "state"), RESULTS):
            for name in _names(folder):
                os.unlink(os.path.join(folder, name))

    def leftovers(self):
        """What is there of sandboxes, by kind: nothing when all are removed."""
        leases = [name for name in _names(self.path("ipam", NETWORK)) if name[0].isdigit() or name.startswith("fd")]
        found = {
            "state files": self.state(),
            "leases": leases,
            "namespaces": _names("/run/netns"),
            "results": _names(RESULTS),
            "sandboxes": [item["id"] for item in self.cri.call("ListPodSandbox").get("items", [])],
        }
        return {kind: names for kind, names in found.items() if names}


class Sandbox:
    """A pod's sandbox, as kubelet asks for it."""

    def __init__(self, node, name, annotations, namespace="default", attempt=0, ports=()):
        self.node, self.id = node, None
        uid = f"uid-of-{name}"
        self.config = {
            "metadata": {"name": name, "uid": uid, "namespace": namespace, "attempt": attempt},
            "hostname": name,
            "log_directory": node.path("logs", name),
            "port_mappings": [{"container_port": to, "host_port": of} for of, to in ports],
            "labels": {
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": namespace,
                "io.kubernetes.pod.uid": uid,
            },
            "annotations": annotations,
            # Containers have process namespaces of their own, as in pods without `shareProcessNamespace`.
            "linux": {"cgroup_parent": os.environ["CGROUP"], "security_context": {"namespace_options": {"pid": 1}}},
        }

    def run(self):
        self.id = self.node.cri.call("RunPodSandbox", config=self.config)["pod_sandbox_id"]
        response = self.node.cri.call("PodSandboxStatus", pod_sandbox_id=self.id, verbose=True)
        network = response["status"]["network"]
        self.addresses = [network["ip"], *(more["ip"] for more in network.get("additional_ips", []))]
        namespaces = json.loads(response["info"]["info"])["runtimeSpec"]["linux"]["namespaces"]
        self.netns = next(one["path"] for one in namespaces if one["type"] == "network")
        return self

    def error(self):
        """The message with which it is refused; empty if it runs."""
        try:
            self.run()
        except CriError as error:
            return str(error)
        return ""

    def stop(self):
        self.node.cri.call("StopPodSandbox", pod_sandbox_id=self.id)

    def remove(self):
        self.stop()
        self.node.cri.call("RemovePodSandbox", pod_sandbox_id=self.id)

    def rules(self):
        """All rules in the pod, without counters, as the kernel lists them."""
        listing = [["nft", "--stateless", "list", "ruleset"], ["iptables-legacy-save"], ["ip6tables-legacy-save"]]
        texts = []
        for command in listing:
            done = subprocess.run(["nsenter", f"--net={self.netns}", *command], capture_output=True, text=True, check=True)
            texts.append("\n".join(line.split(" [")[0] for line in done.stdout.splitlines() if not line.startswith("#")))
        return "\n".join(texts).strip()

    def __enter__(self):
        return self.run()

    def __exit__(self, *_):
        self.remove()


def _newest_version(plugin):
    """Of CNI 1, which a network plugin has."""
    done = subprocess.run([plugin], env={"CNI_COMMAND": "VERSION"}, input=b"{}", capture_output=True, check=True)
    return max(version for version in json.loads(done.stdout)["supportedVersions"] if version in ("1.0.0", "1.1.0"))


def _names(folder):
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _write_image(archive, layer):
    """An image in which busybox sleeps, in the form of `docker save`: made here, from no registry."""
    with tarfile.open(layer, "w") as tar:
        tar.add(os.path.realpath(shutil.which("busybox")), "busybox")
    with open(layer, "rb") as file:
        content = file.read()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "config": {"Cmd": ["/busybox", "sleep", "1000000"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(content).hexdigest()]},
    }
    manifest = [{"Config": "config.json", "RepoTags": ["localhost/sandbox:1"], "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": content,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(archive, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
