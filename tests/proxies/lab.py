"""A pod and the world around it, two network namespaces joined by a veth pair, and `istio-iptables` in the pod."""

import fnmatch
import os
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "containerd"))
from packets import inside  # noqa: E402

BINARY, WORK = os.environ["BINARY"], os.environ["work"]
# Of the world and of the pod.
GATEWAYS, ADDRESSES = ("10.77.1.2", "fd77:1::2"), ("10.77.1.1", "fd77:1::1")
# Which side began a connection is seen by its port, and in TPROXY mode the proxy never picks one that the client uses.
POD_PORTS, WORLD_PORTS = (32768, 45000), (45001, 60999)
APP = (1000, 1000)

failures = []


def expect(what, wanted, got):
    """Equal, or a text that the pattern matches."""
    if got == wanted or (isinstance(got, str) and isinstance(wanted, str) and fnmatch.fnmatchcase(got, wanted)):
        print(f"  ok: {what}", flush=True)
    else:
        print(f"  NOT AS PROMISED: {what}: wanted: {wanted}\n  got: {got}", file=sys.stderr, flush=True)
        failures.append(what)


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not after {seconds} s")
        time.sleep(0.02)


def run(*command, **more):
    """What a command prints; an error with that if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
    return done.stdout


class Pod:
    """The world is the namespace of the caller."""

    made = 0

    def __init__(self):
        Pod.made += 1
        self.number = Pod.made
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        self.netns = f"/proc/{self.holder.pid}/ns/net"
        here = os.readlink("/proc/self/ns/net")
        wait_for("a namespace", lambda: os.readlink(self.netns) != here)
        run("ip", "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        for in_pod, link, addresses in ((False, "pod0", GATEWAYS), (True, "eth0", ADDRESSES)):
            command = self.command if in_pod else lambda *words: list(words)
            for address in addresses:
                family = ["/64", "nodad"] if ":" in address else ["/24"]
                run(*command("ip", "address", "add", address + family[0], *family[1:], "dev", link))
            run(*command("ip", "link", "set", "lo", "up"))
            run(*command("ip", "link", "set", link, "up"))
        # As every pod has it: explain and check name a pod without one.
        for gateway in GATEWAYS:
            run(*self.command("ip", "-6" if ":" in gateway else "-4", "route", "add", "default", "via", gateway, "dev", "eth0"))
        for low_high, set_in in ((POD_PORTS, self.inside), (WORLD_PORTS, lambda function: function())):
            set_in(lambda ports=low_high: _write("/proc/sys/net/ipv4/ip_local_port_range", "%d %d" % ports))
        # 500 connections begin at once.
        self.inside(lambda: _write("/proc/sys/net/ipv4/tcp_max_syn_backlog", "4096"))

    def command(self, *words):
        """The words of a command that runs in the pod."""
        return ["nsenter", f"--net={self.netns}", "--", *words]

    def inside(self, function, user=(0, 0)):
        """Runs a function on a thread in the pod."""
        return inside(self.netns, function, user)

    def istio_iptables(self, *options):
        """What a run prints; it must succeed."""
        return run(*self.command(BINARY, *options))

    def answer(self, *words, whole=False):
        """Status and first line of a query, or all that it prints."""
        done = subprocess.run(self.command(BINARY, *words), capture_output=True, text=True, check=False)
        return done.returncode, done.stdout if whole else done.stdout.split("\n")[0]

    def remove(self):
        self.holder.kill()
        self.holder.wait()
        subprocess.run(["ip", "link", "delete", "pod0"], capture_output=True, check=False)


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
