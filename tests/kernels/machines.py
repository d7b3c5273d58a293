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
    """Packets through the rules of a backend, re-runs, clean-up, TPROXY, and the rules as the kernel lists them."""
    word, save = BACKENDS[backend]
    at = f"{word}_{stack}"
    filters = {
        "capture": [
            f"inbound::{at}::an_inbound_call_reaches_the_proxy_with_its_destination",
            f"inbound::{at}::excluded_inbound_port_is_not_captured",
            f"outbound::{at}::a_call_of_the_app_is_captured_with_its_destination",
            f"outbound::{at}::excluded_range_is_not_captured",
        ],
        "DNS": [f"dns::{at}::queries_to_the_name_server_are_captured", f"dns::{at}::proxy_queries_reach_the_name_server"],
        "TPROXY": [
            f"tproxy::{at}::an_inbound_call_keeps_source_and_destination",
            f"tproxy::{at}::the_app_sees_the_real_caller_through_the_proxy",
        ],
        "TPROXY, a second run": [f"tproxy::{at}::a_second_run_changes_nothing_for_callers"],
    }
    cases = [Case(f"{backend}: {name}", f"passes netns {' '.join(tests)}") for name, tests in filters.items()]
    for mode, options in [("REDIRECT", CAPTURE), ("TPROXY", TPROXY)]:
        command = f"listed '{save}' {options} --backend {backend}"
        cases.append(Case(f"{backend}: rules of {mode}", command))
        command = f"repeated {options} --backend {backend}"
        cases.append(Case(f"{backend}: {mode} again, and clean-up", command))
    return cases


def chooses(reason, *options):
    """`auto` takes a backend and logs this reason."""
    return Case(f"auto: {reason}", f"logs 0 'backend {reason}' pod istio-iptables -i '*' -b '*' {' '.join(options)}")


def refuses(backend, code, text):
    """A backend that this machine cannot have is refused: exit code and text."""
    command = f"logs {code} '{text}' pod istio-iptables -i '*' -b '*' --backend {backend}"
    return Case(f"{backend}: exit {code}, {text}", command)


GALLERY = [
    Case("gallery: iptables-nft", "passes gallery_kernel every_rules_file_round_trips_through_nft"),
    Case("gallery: iptables-legacy", "passes gallery_kernel every_rules_file_round_trips_through_legacy"),
    Case("gallery: nftables", "passes gallery_kernel native::text_and_messages_make_the_same_tables"),
]
BY_DEFAULT = chooses("iptables-nft: the kernel has nf_tables and the tool is there")
EVERYTHING = [BY_DEFAULT, *of_backend("iptables-nft"), *of_backend("iptables-legacy"), *of_backend("nftables")]


@dataclass(frozen=True)
class Machine:
    """A kernel, what it lacks, and the cases."""

    name: str
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
LEGACY_TABLES = ("ip6?_tables", "ip6?table_.*")
MACHINES = [
    Machine("5.4", "linux-image-virtual", "focal", EVERYTHING),
    Machine("5.10", CLOUD, "bullseye", EVERYTHING + GALLERY),
    Machine("6.1", CLOUD, "bookworm", EVERYTHING),
    Machine("6.12", CLOUD, "trixie", EVERYTHING),
    Machine("newest", CLOUD, "sid", EVERYTHING + GALLERY),
]


@dataclass(frozen=True)
class Arch:
    """How a machine of an architecture is run, and where its programs are."""

    emulator: list
    package: str
    console: str
    triple: str
    strip: str


ARCHES = {
    "amd64": Arch(
        ["qemu-system-x86_64", "-cpu", "max"], "qemu-system-x86", "ttyS0", "x86_64-unknown-linux-gnu",
        "x86_64-linux-gnu-strip",
    ),
}
