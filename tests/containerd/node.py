"""A node: containerd with directories of its own, a chain of plugins, and the image of its sandboxes."""

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

from cri import Cri, CriError

GATEWAY, GATEWAY6 = "10.88.0.1", "fd00:88::1"
NETWORK = "pods"
# Of the test's own /run: the path of a socket may have 107 characters only.
SOCKET = "/run/node.sock"
HERE = os.path.dirname(os.path.abspath(__file__))
DEBIAN_PLUGINS = "/usr/lib/cni"
# Where Go's libcni keeps results, whatever the runtime's configuration says.
RESULTS = "/var/lib/cni/results"
# How long something may take that happens by itself: never reached unless it does not happen.
PATIENCE = 120

CONTAINERD = """version = 2
root = "{work}/root"
state = "{work}/state"
disabled_plugins = [{disabled}]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/sandbox:1"
restrict_oom_score_adj = true # a lower one needs CAP_SYS_RESOURCE
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{work}/bin"
conf_dir = "{work}/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{work}/runc"
"""
# Which need more than a directory: without them no warning is logged. containerd 2 does not start without overlayfs.
DISABLED = ["aufs", "btrfs", "devmapper", "zfs"]


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
            os.symlink(f"{DEBIAN_PLUGINS}/{name}", self.path("bin", name))
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
        self.original = json.dumps({"cniVersion": "1.0.0", "name": NETWORK, "plugins": plugins}, indent=3) + "\n\n"
        self.list = self.path("net.d", "10-pods.conflist")
        self.write_list(self.original)
        disabled = ", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in DISABLED)
        # The plugin would make it, with an IPv6 address that is checked for duplicates first: no source of calls meanwhile.
        for command in (
            "link add cni0 type bridge",
            f"address add {GATEWAY}/16 dev cni0",
            f"address add {GATEWAY6}/64 dev cni0 nodad",
            "link set cni0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        with open(self.path("containerd.toml"), "w", encoding="utf-8") as file:
            file.write(CONTAINERD.format(work=work, socket=SOCKET, disabled=disabled))
        self.log = open(self.path("containerd.log"), "ab")
        self.cri, self.process, self.search = None, None, os.environ["PATH"]

    def path(self, *names):
        return os.path.join(self.work, *names)

    # --- containerd ------------------------------------------------------------------------------------------------

    def start(self):
        command = [shutil.which("containerd"), "--config", self.path("containerd.toml")]
        environment = {**os.environ, "PATH": self.search}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        if self.cri:
            self.cri.close()  # it may not have noticed yet
        self.cri = Cri(SOCKET)
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
        for name in ("containerd-shim-runc-v2", "runc"):
            os.symlink(shutil.which(name), os.path.join(tools, name))
        self.restart(tools)
        try:
            yield
        finally:
            self.restart(before)

    def import_image(self):
        archive = self.path("image.tar")
        _write_image(archive, self.path("layer.tar"))
        command = ["ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import"]
        described = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        # The transfer service of containerd 2 unpacks only for snapshotters that its configuration names.
        local = ["--local"] if "--local" in described else []
        subprocess.run([*command, *local, "--snapshotter", "native", archive], check=True, stdout=subprocess.DEVNULL)
        wait_for("containerd lists the image", lambda: self.cri.call("ListImages").get("images"))

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
        """Changes the plugins by a function of their list, and waits until containerd uses them."""
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
        """containerd watches the directory: it uses a change a moment later."""
        with open(path or self.list, encoding="utf-8") as file:
            text = file.read()

        def is_loaded():
            info = self.cri.call("Status", verbose=True)["info"]
            networks = json.loads(info.get("cniconfig", "{}")).get("Networks") or []
            return any(_is_of(network["Config"]["Source"], text) for network in networks)

        wait_for("containerd uses the network configuration", is_loaded)

    def loaded_types(self, text):
        """The types of the plugins of the list that has just been written, as containerd loads it; `None` if it does not."""

        def outcome():
            info = self.cri.call("Status", verbose=True)["info"]
            networks = json.loads(info.get("cniconfig", "{}")).get("Networks") or []
            loaded = [network["Config"] for network in networks if network["Config"]["Source"] == text]
            types = [[plugin["Network"]["type"] for plugin in config["Plugins"]] for config in loaded]
            failed = info.get("lastCNILoadStatus", "OK") not in ("OK", '"OK"')
            return types or ([None] if failed else None)

        return wait_for("containerd has read the network configuration", outcome)[0]

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
            "linux": {"cgroup_parent": os.environ["CGROUP"]},
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


def _is_of(loaded, text):
    """Whether containerd has loaded a file; of a configuration of one plugin it makes a list."""
    return loaded == text or json.loads(loaded)["plugins"] == [json.loads(text)]


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
