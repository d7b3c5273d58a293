//! Bad options as a user types them: each error names the option, the value and what is accepted, in one
//! line.

use std::process::Command;

use crate::pod::BUILT;

/// A command line, and what its only error contains.
type Case = (&'static [&'static str], &'static [&'static str]);

const PORT: &str = "a plain port number from 1 to 65535";
const RANGE: &str = "an address range such as 10.0.0.0/8 or fd00::/8";
const ID: &str = "a decimal number from 0 to 4294967294";
const NAME: &str = "an interface name: 1 to 15 characters";
const BOOLEAN: &str = "true or false";
const TO: &str = "ADDRESS:PORT, such as 10.0.0.1:443";
const KEEP_ONE: &str = "keep one of them";
const ONE_PACKET: &str =
    "--to as well: it describes one packet; without --to, every kind of traffic is listed";
const FORMAT: &str = "text or json";

const COMMANDS: &[Case] = &[
    (&["--nosuch"], &["\"--nosuch\"", "--help"]),
    (&["-Z"], &["\"-Z\"", "--help"]),
    (&["--envoy-prot", "1"], &["did you mean --envoy-port (-p)?"]),
    (&["foo"], &["\"foo\"", "sub-commands are apply, "]),
    (&["cleanupp"], &["did you mean cleanup?"]),
    (&["explain", "foo"], &["--to: \"foo\"", TO]),
    (&["--dry-run", "false"], &["--dry-run=false"]),
    (&["--envoy-port"], &["--envoy-port needs a value: PORT"]),
    (&["-p"], &["--envoy-port needs a value: PORT"]),
    (&["--pid"], &["--pid needs a value: "]),
    (&["-p", "--dry-run"], &["(-p): \"--dry-run\"", PORT, "is the value missing"]),
    (&["diff"], &["name both", "options, live or a file"]),
    (&["diff", "options"], &["name both", "options, live or a file"]),
    (&["show", "extra"], &["\"extra\""]),
];

const QUESTIONS: &[Case] = &[
    (&["explain", "--to", "10.0.0.1"], &["--to: \"10.0.0.1\"", TO, "add the port"]),
    (&["explain", "--to", "fd00::5:80"], &["--to: ", TO, "add the port, with the address in brackets"]),
    (&["explain", "--to", "[fd00::5]"], &["--to: ", TO, "add the port"]),
    (&["explain", "--to", "[fe80::1%eth0]:80"], &["--to: ", TO, "--out or --in"]),
    (&["explain", "--to", "http://10.0.0.1:80/x"], &["--to: ", TO, "leave the scheme and the path out"]),
    (&["explain", "10.0.0.1"], &["--to: \"10.0.0.1\"", TO, "add the port"]),
    (&["explain", "--to", "host:80"], &["--to: \"host:80\"", TO, "give the address"]),
    (&["explain", "--to", "10.0.0.1:0"], &["--to: ", TO, "port 0"]),
    (&["explain", "--to", "10.0.0.1:99999"], &["--to: ", TO]),
    (&["explain", "--to", "::1:80"], &["--to: ", TO]),
    (&["explain", "--to", ""], &["--to needs a value: ADDRESS:PORT"]),
    (&["explain", "--in", ""], &["--in needs a value: "]),
    (&["explain", "--bundle="], &["--bundle needs a value: FILE"]),
    (&["explain", "--from", "me"], &["--from: \"me\"", "app, proxy, outside, kernel, uid:N"]),
    (&["explain", "--from", "uid:x"], &["--from: \"uid:x\"", "uid:N,gid:N"]),
    (&["explain", "--from", "uid:5,gid:x"], &["--from: \"uid:5,gid:x\"", "uid:N,gid:N"]),
    (&["explain", "--proto", "icmp"], &["--proto: \"icmp\"", "tcp or udp"]),
    (&["explain", "--to", "1.1.1.1:1", "--src", "x"], &["--src: \"x\"", "ADDRESS or ADDRESS:PORT"]),
    (&["explain", "--to", "1.1.1.1:1", "--src", "::1"], &["--src: \"::1\"", "same family", "1.1.1.1"]),
    (&["explain", "--src", "1.1.1.1"], &["--src: \"1.1.1.1\"", ONE_PACKET]),
    (
        &["explain", "--to", "1.1.1.1:1", "--in", "eth0"],
        &["--in: \"eth0\"", "expected --out", "--from outside"],
    ),
    (&["explain", "--from", "outside", "--out", "eth0"], &["--out: \"eth0\"", "expected --in"]),
    (&["explain", "--from", "outside", "--in", "e+"], &["--in: \"e+\"", "the name of one interface"]),
    (&["explain", "--from", "proxy"], &["--from: \"proxy\"", ONE_PACKET]),
    (&["explain", "--live", "--from", "app"], &["--from: \"app\"", ONE_PACKET]),
    (&["explain", "--live", "--proto", "udp"], &["--proto: \"udp\"", ONE_PACKET]),
    (&["explain", "--out", "eth0"], &["--out: \"eth0\"", ONE_PACKET]),
    (&["explain", "--from", "outside", "--in", "eth0"], &["--from: \"outside\"", ONE_PACKET]),
    (&["explain", "--mark", "1", "--state", "new"], &["--mark: \"1\"", ONE_PACKET]),
    (&["explain", "--connmark", "1"], &["--connmark: \"1\"", ONE_PACKET]),
    (&["explain", "--state", "established"], &["--state: \"established\"", ONE_PACKET]),
    (&["explain", "--mark", "x"], &["--mark: \"x\"", "a number from 0 to 4294967295"]),
    (&["explain", "--connmark", "-1"], &["--connmark: \"-1\"", "a number from 0 to 4294967295"]),
    (&["explain", "--state", "x"], &["--state: \"x\"", "new, established or invalid"]),
    (&["explain", "--output", "xml"], &["--output: \"xml\"", FORMAT]),
    (&["explain", "--output", "mermaid"], &["--output: \"mermaid\"", "add --to"]),
    (&["explain", "--color", "blue"], &["--color: \"blue\"", "auto, always or never"]),
    (&["show", "--output", "yaml"], &["--output: \"yaml\"", FORMAT]),
    (&["check", "--output", "yaml"], &["--output: \"yaml\"", FORMAT]),
];

const RUNS: &[Case] = &[
    (&["--pid="], &["--pid: \"\"", "the number of a process"]),
    (&["--pid", "0"], &["--pid: \"0\"", "from 1 to 2147483647"]),
    (&["--pid", "x"], &["--pid: \"x\"", "from 1 to 2147483647"]),
    (&["--network-namespace="], &["--network-namespace: \"\"", "the path of a network namespace"]),
    (&["--pid", "1", "--network-namespace", "/x"], &["--network-namespace and --pid", KEEP_ONE]),
    (&["--config="], &["--config: \"\"", "the path of a JSON file, or - for standard input"]),
    (&["--config", "/nosuch"], &["config file /nosuch: cannot be read: No such file"]),
    (&["--config", "/etc"], &["config file /etc: cannot be read: Is a directory"]),
    (&["--config", "/etc/passwd"], &["config file /etc/passwd: ", "line 1", "expected one JSON object"]),
    (&["--config", "-"], &["config file standard input: it is empty", "expected one JSON object"]),
    (&["--backend", "foo"], &["--backend: \"foo\"", "auto, iptables, iptables-nft"]),
    (&["--force-iptables-binary", "x"], &["\"x\"", "legacy or nft"]),
    (&["--backend=iptables", "--native-nftables"], &["--backend and --native-nftables", KEEP_ONE]),
    (&["--native-nftables=maybe"], &["\"maybe\"", BOOLEAN]),
    (&["--cni-mode=1x"], &["--cni-mode: \"1x\"", BOOLEAN]),
    (&["--dry-run="], &["--dry-run", "\"\"", BOOLEAN]),
    (&["--rules-file="], &["--rules-file: \"\"", "a path"]),
    (&["--rules-file", "-x"], &["--rules-file: \"-x\"", "a path", "is the value missing"]),
    (&["--probe-timeout", "5"], &["--probe-timeout: \"5\"", "5s, 1m30s or 500ms", "5s?"]),
    (&["--probe-timeout", "-1s"], &["--probe-timeout: \"-1s\"", "a duration above zero"]),
    (&["--iptables-probe-port", "0"], &["--iptables-probe-port: \"0\"", PORT]),
    (&["--log_output_level", "foo"], &["\"foo\"", "none, fatal, error, warn, info and debug"]),
    (&["--log-format", "xml"], &["--log-format: \"xml\"", FORMAT]),
    (&["--log_as_json=2"], &["--log_as_json: \"2\"", BOOLEAN]),
    (&["--cleanup-only", "--skip-rule-apply"], &["--cleanup-only and --skip-rule-apply", KEEP_ONE]),
    (
        &["cleanup", "--skip-rule-apply"],
        &["--skip-rule-apply: no effect with cleanup", "leave it out", "cleanup --help"],
    ),
    (
        &["show", "-b", "x"],
        &["--istio-inbound-ports (-b): no effect with show", "leave it out", "show --help"],
    ),
];

const TRAFFIC: &[Case] = &[
    (&["--ip-family", "v4"], &["--ip-family: \"v4\"", "auto, ipv4, ipv6 or dual"]),
    (&["--dual-stack", "--ip-family", "ipv4"], &["--dual-stack and --ip-family", KEEP_ONE]),
    (&["-m", "tproxi"], &["(-m): \"tproxi\"", "REDIRECT or TPROXY"]),
    (&["-m", "none"], &["(-m): \"none\"", "REDIRECT or TPROXY", "to capture nothing"]),
    (&["-m", "TPROXY", "-t", "0"], &["(-t): \"0\"", "from 1 to 4294967295"]),
    (&["-m", "TPROXY", "-t", "1338"], &["(-t): \"1338\"", "other than 1338"]),
    (&["-m", "TPROXY", "-r", "254"], &["(-r): \"254\"", "from 1 to 252"]),
    (&["-t", "x"], &["(-t): \"x\"", "a number from 1"]),
    (&["-r", "x"], &["(-r): \"x\"", "from 1 to 252"]),
    (&["-u", "root"], &["(-u): \"root\"", ID]),
    (&["-u", ","], &["(-u): \",\"", "in a loop"]),
    (&["-g", "-1"], &["(-g): \"-1\"", ID]),
    (&["-i", "10.0.0.0/33"], &["(-i): \"10.0.0.0/33\"", RANGE, "from 0 to 32"]),
    (&["-i", "fd00::/129"], &["(-i): \"fd00::/129\"", RANGE]),
    (&["-i", "foo"], &["(-i): \"foo\"", RANGE]),
    (&["-i", "*,10.0.0.0/8"], &["(-i): \"*\"", RANGE, "must be the only item"]),
    (&["-x", "*"], &["(-x): \"*\"", "to capture no outbound traffic"]),
    (&["-x", "10.0.0"], &["(-x): \"10.0.0\"", RANGE]),
    (&["-c", "a b"], &["(-c): \"a b\"", NAME]),
    (&["-c", "averyveryverylongname"], &["(-c): \"averyveryverylongname\"", NAME]),
    (&["-k", "a/b"], &["(-k): \"a/b\"", NAME]),
    (&["-o", "0"], &["(-o): \"0\"", PORT]),
    (&["-q", "1-5"], &["(-q): \"1-5\"", PORT, "list the ports"]),
    (&["-d", "http"], &["(-d): \"http\"", PORT]),
    (&["-b", ","], &["(-b): \",\"", "`*` for all"]),
    (&["-b", "*,80"], &["(-b): \"*\"", "must be the only item"]),
    (&["-p", "65536"], &["(-p): \"65536\"", PORT]),
    (&["-z", "080"], &["(-z): \"080\"", PORT]),
    (&["-e", "x"], &["(-e): \"x\"", PORT]),
];

/// What people type who know kubectl, istioctl, iptables, nft and tcpdump.
const OTHER_PROGRAMS: &[Case] = &[
    (&["show", "--follow"], &["\"--follow\"", "`show --watch`"]),
    (&["show", "-f"], &["\"-f\"", "--bundle FILE"]),
    (&["check", "--format", "json"], &["\"--format\"", "`-o json`"]),
    (&["check", "-n"], &["--dry-run (-n)", "leave it out", "change nothing"]),
    (&["cleanup", "-n", "shop"], &["\"shop\"", "-n is --dry-run here", "`kubectl capture`"]),
    (&["bundle", "-o", "x"], &["\"--output\"", "`istio-iptables bundle > FILE`"]),
    (&["bundle", "--output", "pod.json"], &["\"--output\"", "`istio-iptables bundle > FILE`"]),
    (&["-o", "json"], &["(-o): \"json\"", PORT, "`-o json` is the format of check"]),
    (&["check", "--pid", "mypod"], &["--pid: \"mypod\"", "`--network-namespace NAME`", "`kubectl capture"]),
    (&["guard", "--repair"], &["\"--repair\"", "`guard --action repair`"]),
    (&["guard", "--action", "Fix"], &["--action: \"Fix\"", "did you mean repair?"]),
    (&["guard", "--action", "reapir"], &["--action: \"reapir\"", "did you mean repair?"]),
    (&["-v"], &["\"-v\"", "`--log_output_level debug`", "`--version`"]),
    (&["explain", "-vv"], &["\"-v\"", "`--log_output_level debug`"]),
    (&["check", "--verbose"], &["\"--verbose\"", "`--log_output_level debug`"]),
    (&["check", "--strict"], &["\"--strict\"", "`sidecar-injector check --strict`"]),
    (&["completion", "bash"], &["\"completion\"", "cli_docs -- bash"]),
    (&["explain", "--from", "client", "1.1.1.1:1"], &["--from: \"client\"", "outside is another pod"]),
    (&["explain", "--from", "envoy", "1.1.1.1:1"], &["--from: \"envoy\"", "did you mean proxy?"]),
    (&["explain", "--from", "Proxy", "1.1.1.1:1"], &["--from: \"Proxy\"", "did you mean proxy?"]),
    (&["explain", "--from", "prxy", "1.1.1.1:1"], &["--from: \"prxy\"", "did you mean proxy?"]),
    (&["explain", "--to", "10.0.0.1:80-90"], &["--to: ", TO, "one address and one port"]),
    (&["explain", "--to", "10.0.0.0/8:80"], &["--to: ", TO, "one address and one port"]),
    (&["explain", "--to", "*:80"], &["--to: ", TO, "one address and one port"]),
    (&["explain", "--proto", "https"], &["--proto: \"https\"", "did you mean tcp?"]),
    (&["explain", "--expect", "bypassed"], &["--expect: \"bypassed\"", "did you mean not-captured?"]),
    (&["show", "-o", "wide"], &["--output: \"wide\"", FORMAT, "--wide"]),
    (&["-L"], &["\"-L\"", "`show`"]),
    (&["-t", "nat"], &["(-t): \"nat\"", "-t is a mark, not a table", "`show`"]),
    (&["nat"], &["\"nat\"", "`show`"]),
    (&["undo"], &["\"undo\"", "`cleanup`"]),
    (&["validate"], &["\"validate\"", "`check`"]),
    (&["check", "--live"], &["\"--live\"", "without it"]),
    (&["cleanup", "--force"], &["\"--force\"", "cleanup needs none"]),
    (&["explain", "-p", "tcp"], &["(-p): \"tcp\"", "--proto the protocol"]),
    (&["explain", "--from", "ingress", "1.1.1.1:1"], &["--from: \"ingress\"", "outside is another pod"]),
    (&["-S"], &["\"-S\"", "`show`"]),
    (&["-F"], &["\"-F\"", "`cleanup`"]),
    (&["list", "ruleset"], &["\"list\"", "`show`"]),
    (&["describe"], &["\"describe\"", "`explain`"]),
    (&["analyze"], &["\"analyze\"", "`explain`"]),
    (&["kube-inject"], &["\"kube-inject\"", "`sidecar-injector inject`"]),
    (&["--context", "prod"], &["\"--context\"", "`kubectl capture explain pod/NAME`"]),
    (&["--backend", "legacy"], &["--backend: \"legacy\"", "did you mean iptables-legacy?"]),
    (&["--backend", "nft"], &["--backend: \"nft\"", "did you mean iptables-nft, or nftables"]),
    (&["--ip-family", "IPv4"], &["--ip-family: \"IPv4\"", "did you mean ipv4?"]),
    (&["--ip-family", "both"], &["--ip-family: \"both\"", "did you mean dual?"]),
];

/// Names that options, annotations and rules have elsewhere.
const OTHER_NAMES: &[Case] = &[
    (&["--exclude-outbound-ports", "80"], &["mean --istio-local-outbound-ports-exclude (-o)?"]),
    (&["--istio-outbound-ports-exclude=80"], &["mean --istio-local-outbound-ports-exclude (-o)?"]),
    (&["--istio-exclude-outbound-port", "80"], &["mean --istio-local-outbound-ports-exclude (-o)?"]),
    (&["--exclude-inbound-ports", "80"], &["mean --istio-local-exclude-ports (-d)?"]),
    (&["--inbound-ports-exclude", "80"], &["mean --istio-local-exclude-ports (-d)?"]),
    (&["--exclude-outbound-ip-ranges", "10.0.0.0/8"], &["mean --istio-service-exclude-cidr (-x)?"]),
    (&["--excludeOutboundIPRanges", "10.0.0.0/8"], &["mean --istio-service-exclude-cidr (-x)?"]),
    (&["--includeOutboundIPRanges", "10.0.0.0/8"], &["mean --istio-service-cidr (-i)?"]),
    (&["--includeInboundPorts", "80"], &["mean --istio-inbound-ports (-b)?"]),
    (&["--excludeInboundPorts", "80"], &["mean --istio-local-exclude-ports (-d)?"]),
    (&["--includeOutboundPorts", "80"], &["mean --istio-outbound-ports (-q)?"]),
    (&["--excludeOutboundPorts", "80"], &["mean --istio-local-outbound-ports-exclude (-o)?"]),
    (&["--excludeInterfaces", "eth1"], &["mean --istio-exclude-interfaces (-c)?"]),
    (&["--kubevirtInterfaces", "eth1"], &["mean --kube-virt-interfaces (-k)?"]),
    (&["--interceptionMode", "TPROXY"], &["mean --istio-inbound-interception-mode (-m)?"]),
    (
        &["traffic.sidecar.istio.io/excludeOutboundPorts=80"],
        &["mean --istio-local-outbound-ports-exclude (-o)?"],
    ),
    (&["traffic.sidecar.istio.io/kubevirtInterfaces=eth1"], &["mean --kube-virt-interfaces (-k)?"]),
    (&["--tproxy"], &["\"--tproxy\"", "`-m TPROXY`"]),
    (&["--uid", "5"], &["\"--uid\"", "mean --proxy-uid (-u)?"]),
    (&["--gid", "5"], &["\"--gid\"", "mean --proxy-gid (-g)?"]),
    (&["--exclude-cidr", "10.0.0.0/8"], &["mean --istio-service-exclude-cidr (-x)?"]),
    (&["--exclude-ports", "80"], &["-d excludes inbound ports, -o outbound ones"]),
    (&["--dns"], &["--redirect-dns"]),
    (&["--ipv6"], &["`--ip-family ipv6`"]),
    (&["--dport", "80"], &["explain takes --to ADDRESS:PORT", "-b (inbound) or -q (outbound ports)"]),
    (&["-s", "10.0.0.0/8"], &["explain takes --src ADDRESS", "a run none"]),
    (&["-D", "OUTPUT", "1"], &["\"-D\"", "options describe traffic, not rules"]),
];

/// Values in the wrong place, or in another form.
const OTHER_VALUES: &[Case] = &[
    (&["explain", "live"], &["--to: \"live\"", "did you mean --live?"]),
    (&["explain", "--to", "10.3.4.5:http"], &[TO, "the number of the port"]),
    (&["explain", "--to", "[fd00::5]:http"], &[TO, "the number of the port"]),
    (&["explain", "--to", "10.3.4.5/443"], &[TO, "a colon is before the port"]),
    (&["explain", "--to", "10.3.4.5", "80"], &["\"80\"", "ADDRESS:PORT"]),
    (&["explain", "fd00::5", "80"], &["\"80\"", "ADDRESS:PORT"]),
    (&["explain", "10.3.4.5", "443", "--from", "outside"], &["\"443\"", "ADDRESS:PORT"]),
    (&["explain", "--to", "10.3.4.5:1", "10.3.4.5:2"], &["\"10.3.4.5:2\"", "one destination"]),
    (
        &["explain", "--live", "-n", "default", "pod/web"],
        &["\"pod/web\"", "`kubectl capture explain pod/NAME`"],
    ),
    (
        &["explain", "--live", "pod/web", "-n", "default"],
        &["\"default\"", "`kubectl capture explain pod/NAME`"],
    ),
    (&["-d", "10.0.0.0/8"], &["(-d): \"10.0.0.0/8\"", PORT, "-i captures ranges, -x excludes them"]),
    (&["-c", "10.0.0.0/8"], &["(-c): \"10.0.0.0/8\"", NAME, "-i captures ranges, -x excludes them"]),
    (&["-b", "80,fd00::1"], &["(-b): \"fd00::1\"", PORT, "-i captures ranges, -x excludes them"]),
    (&["-i", "eth0"], &["(-i): \"eth0\"", RANGE, "-c excludes an interface"]),
    (&["-o", "eth0"], &["(-o): \"eth0\"", PORT, "-c excludes an interface"]),
    (&["-u", "istio-proxy"], &["(-u): \"istio-proxy\"", ID, "the variable ENVOY_USER takes a name"]),
    (&["-u", "1.00068e+09"], &["(-u): \"1.00068e+09\"", ID, "quote it"]),
    (&["-p", "1.5001e+04"], &["(-p): \"1.5001e+04\"", PORT, "quote it"]),
    (&["--probe-timeout", "5min"], &["\"5min\"", "minutes are m"]),
    (&["bundle", "pod.json"], &["\"pod.json\"", "did you mean `istio-iptables bundle > pod.json`?"]),
    (&["diff", "live", "live", "live"], &["\"live\"", "diff compares two rule sets"]),
    (&["observe", "--to", "10.3.4.5:80"], &["\"10.3.4.5:80\"", "--port takes the port"]),
];

/// A terminal of 80 columns and 24 lines.
const ONE_SCREEN: usize = 80 * 12;

#[test]
fn every_bad_option_is_one_line_with_option_value_and_what_is_accepted() {
    let all = [COMMANDS, QUESTIONS, RUNS, TRAFFIC, OTHER_PROGRAMS, OTHER_NAMES, OTHER_VALUES];
    for (words, expected) in all.into_iter().flatten() {
        let ended = Command::new(&*BUILT).args(*words).env_clear().output().unwrap();
        let log = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(64), "{words:?}: {log}");
        assert!(ended.stdout.is_empty() && log.len() < ONE_SCREEN, "{words:?}: {log}");
        let [line] = log.lines().collect::<Vec<_>>()[..] else { panic!("{words:?}: {log}") };
        assert!(line.contains("\terror\tbad option: "), "{words:?}: {line}");
        for part in *expected {
            assert!(line.contains(part), "{words:?}: {part:?} is not in {line}");
        }
    }
}
