"""The virtual machines of `make kernels`, and the cases that run on each. A machine is data."""

from dataclasses import dataclass

# Names of a backend: in the netns tests, as a value of --backend, and what lists its rules.
BACKENDS = {
    "iptables-nft": ("nft", "iptables-nft-save"),
    "iptables-legacy": ("legacy", "iptables-legacy-save"),
    "nftables": ("native", "nft list ruleset"),
}
CAPTURE = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020"
TPROXY = "-p 15001 -z 15006 -u 1337 -m TPROXY -i '*' -b '*' -d 15090,15021,15020"


@dataclass(frozen=True)
class Case:
    """One row of the report. `command` is run by `init`; functions of `init` are at hand."""

    name: str
    command: str


def of_backend(backend, stack="dual"):
    """Packets through the rules of a backend, and runs: the rules as the kernel lists them, a second run, clean-up."""
    word, save = BACKENDS[backend]
    at = f"{word}_{stack}"
    filters = {
        "capture": [
            f"inbound::{at}::an_inbound_call_reaches_the_proxy_with_its_destination",
            f"inbound::{at}::excluded_inbound_port_is_not_captured",
            f"outbound::{at}::a_call_of_the_app_is_captured_with_its_destination",
        ],
        "DNS": [f"dns::{at}::queries_to_the_name_server_are_captured"],
        "TPROXY": [
            f"tproxy::{at}::a_second_run_changes_nothing_for_callers",
            f"tproxy::{at}::the_app_sees_the_real_caller_through_the_proxy",
        ],
    }
    ending = "" if stack == "dual" else ", IPv4"
    cases = []
    for mode, options in [("REDIRECT", CAPTURE), ("TPROXY", TPROXY)]:
        name = f"{backend}: {mode} as listed, a second run, clean-up{ending}"
        cases.append(Case(name, f"repeated '{save}' {options} --backend {backend}"))
    for name, tests in filters.items():
        cases.append(Case(f"{backend}: {name}{ending}", f"passes netns {' '.join(tests)}"))
    return cases


# A run, and one without iptables-nft in PATH.
RUN = "istio-iptables -i '*' -b '*'"
NO_NFT = "without_nft"


def chooses(reason, prefix=""):
    """`auto` takes a backend and logs this reason."""
    name = f"auto, no iptables-nft in PATH: {reason}" if prefix else f"auto: {reason}"
    return Case(name, f"logs 0 'backend {reason}' {prefix} {RUN}")


def refuses(backend, code, text, reason=None):
    """A backend that this machine cannot have is refused: exit code, text, and the reason for the table if it is another."""
    return Case(f"{backend}: exit {code}, {reason or text}", f"logs {code} '{text}' {RUN} --backend {backend}")


def lacking(modules, case):
    """The same where modules are missing."""
    return Case(f"without {modules}: {case.name}", f"lacks '{modules}' {case.command}")


# Before the cases that send packets: the kernel keeps a network namespace, and so the modules of its rules, until the
# last orphaned TCP connection in it has timed out, which takes minutes.
MISSING_MODULES = [
    lacking("nft_compat", refuses("iptables-nft", 70, "denies nft_compat: load it (`modprobe ")),
    lacking("nft_compat", chooses("nftables: iptables-nft cannot be used, and the kernel has nf_tables")),
    lacking("nft_compat", Case("iptables: legacy", f"logs 0 'backend iptables-legacy: ' {RUN} --backend iptables")),
    lacking("nft_chain_nat", refuses("iptables-nft", 70, "denies nft_chain_nat: load it (`modprobe ")),
    lacking("nft_chain_nat", refuses("nftables", 70, "denies nft_chain_nat: load it (`modprobe ")),
    lacking("nft_chain_nat", chooses("iptables-legacy: it is the only usable variant")),
    lacking("nf_nat", refuses("iptables-nft", 70, "denies nf_nat, ")),
    lacking("nf_nat", refuses("iptables-legacy", 70, "denies nf_nat, ")),
    lacking("nf_nat", refuses("auto", 69, "no backend can be used; found: the kernel has nf_tables; iptables-nft: ")),
    lacking("nf_conntrack", refuses("iptables-nft", 70, "denies nf_conntrack, ")),
    lacking("xt_REDIRECT", refuses("iptables-nft", 70, "denies xt_REDIRECT: load it (`modprobe ")),
    lacking("xt_REDIRECT", refuses("iptables-legacy", 70, "denies xt_REDIRECT: load it (`modprobe ")),
    lacking("xt_REDIRECT", refuses("iptables", 69, "`modprobe -a xt_REDIRECT` (iptables-nft)")),
    lacking("xt_owner", refuses("iptables-legacy", 70, "denies xt_owner: load it (`modprobe ")),
    lacking("iptable_nat", refuses("iptables-legacy", 70, "iptable_nat")),
    lacking("nf_tables ip_tables", refuses("auto", 69, "(iptables-legacy), or `modprobe -a nf_tables` (iptables-nft)")),
]
GALLERY = [
    Case("gallery: iptables-nft", "passes gallery_kernel every_rules_file_round_trips_through_nft"),
    Case("gallery: iptables-legacy", "passes gallery_kernel every_rules_file_round_trips_through_legacy"),
]
NFT, LEGACY, NATIVE = "iptables-nft", "iptables-legacy", "nftables"
BY_DEFAULT = chooses("iptables-nft: the kernel has nf_tables and the tool is there")
WITHOUT_NFT = chooses("nftables: the kernel has nf_tables, and no iptables-nft is in PATH", NO_NFT)
EVERYTHING = [BY_DEFAULT, WITHOUT_NFT, *of_backend(NFT), *of_backend(LEGACY), *of_backend(NATIVE)]
# NAT in tables of the family inet came with Linux 5.2.
NO_NATIVE = [
    BY_DEFAULT,
    chooses("iptables-legacy: it is the only usable variant", NO_NFT),
    Case("auto: logs why not native nftables", f"logs 0 'native nftables is not used: needs Linux 5.2' {NO_NFT} {RUN}"),
    refuses(NATIVE, 69, "native nftables: needs Linux 5.2 or later"),
    *of_backend(NFT),
    *of_backend(LEGACY),
]
DEMO = [Case("demo", "bash /demo/run /usr/bin/istio-iptables")]
NO_NF_TABLES = [
    chooses("iptables-legacy: it is the only usable variant"),
    refuses(NFT, 69, "the kernel has no nf_tables"),
    refuses(NATIVE, 69, "the kernel has no nf_tables"),
    *of_backend(LEGACY),
]
NO_LEGACY = [
    BY_DEFAULT,
    refuses(LEGACY, 70, "denies ip_tables, iptable_nat: load them (`modprobe ", "the kernel has no ip_tables"),
    *of_backend(NFT),
    *of_backend(NATIVE),
]
NO_IPV6 = [BY_DEFAULT, *of_backend(NFT, "v4"), *of_backend(LEGACY, "v4"), *of_backend(NATIVE, "v4")]


@dataclass(frozen=True, eq=False)
class Machine:
    """A kernel, what it lacks, and the cases."""

    name: str
    # In the table of the README, behind the kernel's version.
    described: str
    # Metapackage and release: the newest kernel of that series.
    kernel: str
    release: str
    cases: list
    arch: str = "amd64"
    # MB
    memory: int = 512
    command_line: str = ""
    # Regular expressions: modules that this machine does not have, nor what depends on them.
    without: tuple = ()


CLOUD = "linux-image-cloud-amd64"
MACHINES = [
    Machine("4.15", "Ubuntu 18.04", "linux-image-virtual", "bionic", NO_NATIVE),
    Machine("5.4", "Ubuntu 20.04", "linux-image-virtual", "focal", EVERYTHING),
    Machine("5.10", "Debian 11, 320 MB", CLOUD, "bullseye", EVERYTHING + DEMO + GALLERY, memory=320),
    Machine("6.1", "Debian 12", CLOUD, "bookworm", MISSING_MODULES + EVERYTHING),
    Machine("6.12", "Debian 13", CLOUD, "trixie", EVERYTHING),
    Machine("newest", "Debian unstable", CLOUD, "sid", EVERYTHING + DEMO + GALLERY),
    Machine("no-nf_tables", "without nf_tables", CLOUD, "bookworm", NO_NF_TABLES, without=("nf_tables",)),
    Machine("no-legacy", "without legacy tables", CLOUD, "bookworm", NO_LEGACY, without=("ip6?_tables",)),
    Machine("no-ipv6", "`ipv6.disable=1`", CLOUD, "bookworm", NO_IPV6, command_line="ipv6.disable=1"),
    Machine("arm64", "Debian 13", "linux-image-cloud-arm64", "trixie", EVERYTHING + DEMO + GALLERY, arch="arm64"),
]


@dataclass(frozen=True)
class Arch:
    """How a machine of an architecture is run, and where its programs are."""

    emulator: list
    package: str
    console: str
    triple: str
    strip: str
    # For the kernel.
    command_line: str = ""


ARCHES = {
    "amd64": Arch(
        ["qemu-system-x86_64", "-cpu", "max"], "qemu-system-x86", "ttyS0", "x86_64-unknown-linux-gnu",
        "x86_64-linux-gnu-strip",
        # A busy computer lets the check of the timer fail, and the kernel panics.
        "no_timer_check",
    ),
    "arm64": Arch(
        # The usual pointer authentication is slow to emulate.
        ["qemu-system-aarch64", "-machine", "virt", "-cpu", "max,pauth-impdef=on"], "qemu-system-arm", "ttyAMA0",
        "aarch64-unknown-linux-gnu", "aarch64-linux-gnu-strip",
    ),
}
