"""The container runtimes of a node: how each is configured and started, gets an image, and shows what it has loaded."""

import datetime
import json
import os
import re
import shutil
import subprocess

# Of the test's own /run: the path of a socket may have 107 characters only.
SOCKET = "/run/node.sock"
IMAGE = "localhost/sandbox:1"

CONTAINERD = """version = {version}
root = "{work}/root"
state = "{work}/state"
disabled_plugins = [{disabled}]
[grpc]
address = "{socket}"
[plugins."{runtime}"]
restrict_oom_score_adj = true # a lower one needs CAP_SYS_RESOURCE
disable_apparmor = true
{sandbox_image}
[plugins."{runtime}".cni]
bin_dir = "{work}/bin" # containerd 2.0 has no other name of it
conf_dir = "{work}/net.d"
[plugins."{runtime}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."{runtime}".containerd.runtimes.runc.options]
Root = "{work}/runc"
{snapshotter}
"""
# Names and places of options in each version of the format.
CONTAINERD_1 = {
    "version": 2,
    "runtime": "io.containerd.grpc.v1.cri",
    "sandbox_image": f'sandbox_image = "{IMAGE}"',
    "snapshotter": '[plugins."io.containerd.grpc.v1.cri".containerd]\nsnapshotter = "native"',
}
CONTAINERD_2 = {
    "version": 3,
    "runtime": "io.containerd.cri.v1.runtime",
    "sandbox_image": "",
    "snapshotter": '[plugins."io.containerd.cri.v1.images"]\nsnapshotter = "native"\n'
    f'[plugins."io.containerd.cri.v1.images".pinned_images]\nsandbox = "{IMAGE}"',
}
# Which need more than a directory: without them no warning is logged. containerd 2 does not start without overlayfs.
DISABLED = ["aufs", "btrfs", "devmapper", "zfs"]

CRIO = """[crio]
root = "{work}/crio-storage"
runroot = "{work}/crio-run"
storage_driver = "vfs"
log_dir = "{work}/logs"
version_file = "{work}/run-version"
version_file_persist = "{work}/version"
clean_shutdown_file = "{work}/clean.shutdown"
[crio.api]
listen = "{socket}"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
conmon = "{conmon}"
pinns_path = "{pinns}"
container_exits_dir = "{work}/exits"
container_attach_socket_dir = "{work}/attach"
log_level = "info"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_root = "{work}/runc"
monitor_path = "{conmon}"
monitor_cgroup = "pod"
[crio.image]
pause_image = "{image}"
pause_command = "/busybox sleep 1000000"
signature_policy = "{work}/policy.json"
[crio.network]
network_dir = "{work}/net.d"
plugin_dirs = ["{work}/bin"]
[crio.nri]
enable_nri = false
"""


class Containerd:
    """containerd 1.6 and later. The programs beside it come first: its shim and `ctr` have its version."""

    # What it calls by name.
    tools = ("containerd-shim-runc-v2", "runc")
    # Its status has the network configurations that it uses.
    shows_networks = True

    def __init__(self, program):
        self.program = shutil.which(program)
        self.search = f"{os.path.dirname(self.program)}:{os.environ['PATH']}"

    def which(self, name):
        return shutil.which(name, path=self.search)

    def configure(self, node):
        version = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=True).stdout
        self.version = tuple(int(part) for part in re.search(r" v?(\d+)\.(\d+)\.", version).groups())
        disabled = ", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in DISABLED)
        options = CONTAINERD_1 if self.version < (2, 0) else CONTAINERD_2
        path = node.path("containerd.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONTAINERD.format(work=node.work, socket=SOCKET, disabled=disabled, **options))
        return [self.program, "--config", path]

    def lost(self, _):
        """What is left of a pod whose ADD had not ended when the runtime crashed: 1.7 removes its namespace without DEL."""
        return ["leases", "results", "state files"] if self.version == (1, 7) else []

    def import_image(self, _, archive):
        command = [self.which("ctr"), "--address", SOCKET, "--namespace", "k8s.io", "images", "import"]
        described = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        # The transfer service of containerd 2 unpacks only for snapshotters that its configuration names.
        local = ["--local"] if "--local" in described else []
        subprocess.run([*command, *local, "--snapshotter", "native", archive], check=True, stdout=subprocess.DEVNULL)

    def has_loaded(self, node, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return any(_is_of(network["Config"]["Source"], text) for network in _networks(_info(node)))

    def loaded_types(self, node, text):
        """The types of the plugins of the list that has just been written; `[None]` if it is not loaded, `None`: not read yet."""
        info = _info(node)
        loaded = [network["Config"] for network in _networks(info) if network["Config"]["Source"] == text]
        types = [[plugin["Network"]["type"] for plugin in config["Plugins"]] for config in loaded]
        failed = info.get("lastCNILoadStatus", "OK") not in ("OK", '"OK"')
        return types or ([None] if failed else None)


class Crio:
    """CRI-O. It keeps no process for a sandbox, pins namespaces of its own, and calls CHECK after ADD."""

    tools = ("conmon", "runc", "pinns", "nsenter", "nft")
    shows_networks = False

    def __init__(self, program):
        self.program = shutil.which(program)
        self.search = f"{os.path.dirname(self.program)}:{os.environ['PATH']}"

    def which(self, name):
        return shutil.which(name, path=self.search)

    def configure(self, node):
        with open(node.path("policy.json"), "w", encoding="utf-8") as file:
            json.dump({"default": [{"type": "insecureAcceptAnything"}]}, file)
        programs = {name: self.which(name) for name in ("conmon", "runc", "pinns")}
        path = node.path("crio.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CRIO.format(work=node.work, socket=SOCKET, image=IMAGE, **programs))
        # The machine's own drop-in files are not read.
        return [self.program, "--config", path, "--config-dir", ""]

    def lost(self, cni_version):
        """As above: CRI-O does not know the pod any more. GC removes the state."""
        return ["leases", "namespaces"] if cni_version == "1.1.0" else ["leases", "namespaces", "state files"]

    def import_image(self, node, archive):
        """CRI-O has no command for that: podman writes into its storage."""
        storage = ["--root", node.path("crio-storage"), "--runroot", node.path("crio-run"), "--storage-driver", "vfs"]
        subprocess.run(["podman", *storage, "load", "--quiet", "--input", archive], check=True, stdout=subprocess.DEVNULL)

    def has_loaded(self, node, path):
        """It shows no configuration; its log has when it begins to read the directory, and each file that it has read."""
        written = os.stat(path).st_ctime
        reading = read = False
        with open(node.path("runtime.log"), encoding="utf-8", errors="replace") as log:
            for line in log:
                if "CNI monitoring event" in line or "Starting CRI-O" in line:
                    reading, read = _time(line) > written, False
                elif reading and "Found CNI network " in line and f" at {path}" in line:
                    read = True
                elif read and "Updated default CNI network name" in line:
                    return True
        return False


def chosen():
    """The runtime of the variables CONTAINERD and CRIO; Debian's containerd without any."""
    if program := os.environ.get("CRIO"):
        return Crio(program)
    return Containerd(os.environ.get("CONTAINERD") or "containerd")


def _info(node):
    return node.cri.call("Status", verbose=True)["info"]


def _networks(info):
    return json.loads(info.get("cniconfig", "{}")).get("Networks") or []


def _is_of(loaded, text):
    """Whether containerd has loaded a file; of a configuration of one plugin it makes a list."""
    return loaded == text or json.loads(loaded)["plugins"] == [json.loads(text)]


def _time(line):
    """When a line of CRI-O's log was written; 0 if it does not begin with a time."""
    found = re.match(r'time="([^"]+)"', line)
    return datetime.datetime.fromisoformat(found[1]).timestamp() if found else 0
