//! Figures for `docs/performance.md`: what each plugin of a chain costs, as a container runtime runs it.
//! Nothing is asserted but that every command succeeds. Needs root, and Debian's containernetworking-plugins.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "fails by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use netlab::Namespace;
use serde_json::{Value, json};

const DEBIAN: &str = "/usr/lib/cni";
const STATUS: &str = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"]}"#;

struct Options {
    bin: PathBuf,
    runs: usize,
    write: Option<PathBuf>,
}

fn options() -> Options {
    let mut options = Options { bin: PathBuf::new(), runs: 50, write: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--bin" => options.bin = value().into(),
            "--runs" => options.runs = value().parse().expect("--runs: a number"),
            "--write" => options.write = Some(value().into()),
            "--bench" => {} // cargo says so
            other => panic!("{other}: --bin, --runs and --write are accepted"),
        }
    }
    assert!(options.bin.exists(), "--bin: the static binary (make cni)");
    options
}

/// A file that a process reads from its beginning.
fn file_of(text: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

struct Call<'a> {
    program: &'a Path,
    command: &'a str,
    container: &'a str,
    netns: &'a str,
    input: &'a Value,
}

impl Call<'_> {
    /// Runs it where the calling thread is; the time from just before it is started to its end, and what it
    /// printed.
    fn run(&self) -> (Duration, Value) {
        let mut command = Command::new(self.program);
        let mut output = tempfile::tempfile().unwrap();
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs([
                ("CNI_COMMAND", self.command),
                ("CNI_CONTAINERID", self.container),
                ("CNI_NETNS", self.netns),
            ])
            .envs([("CNI_IFNAME", "eth0"), ("CNI_PATH", DEBIAN)])
            .env(
                "CNI_ARGS",
                format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME={}", self.container),
            )
            .stdin(Stdio::from(file_of(&self.input.to_string())))
            .stdout(Stdio::from(output.try_clone().unwrap()))
            .stderr(Stdio::null());
        let begin = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let status = child.wait().unwrap();
        let took = begin.elapsed();
        output.rewind().unwrap();
        let text = std::io::read_to_string(output).unwrap();
        assert!(status.success(), "{} {}: {text}", self.program.display(), self.command);
        (took, serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

/// The plugins of the chain, in their order; ours with each backend comes last.
fn plugins(options: &Options, folder: &Path, run: &Path) -> Vec<(String, PathBuf, Value)> {
    let debian = |name: &str, more: Value| {
        let mut entry = json!({"type": name});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (format!("{name} (Go)"), Path::new(DEBIAN).join(name), entry)
    };
    let ipam = json!({"type": "host-local", "dataDir": folder.join("ipam"), "ranges": [[{"subnet": "10.88.0.0/16"}]]});
    let ours = |name: &str, backend: &str| {
        let entry = json!({
            "type": "istio-cni", "cni_agent_run_dir": run, "backend": backend,
            "plugin_log_level": "warn", "deadline_ms": 60_000,
            "capabilities": {"io.kubernetes.cri.pod-annotations": true}
        });
        (name.to_owned(), options.bin.clone(), entry)
    };
    vec![
        debian("bridge", json!({"bridge": "cni0", "isGateway": true, "ipam": ipam})),
        debian("portmap", json!({})),
        debian("tuning", json!({"sysctl": {"net.core.somaxconn": "500"}})),
        ours("**istio-cni**, nftables", "nftables"),
        ours("**istio-cni**, iptables-nft", "iptables-nft"),
    ]
}

fn input(entry: &Value, version: &str, result: &Value) -> Value {
    let mut input = entry.clone();
    input["name"] = json!("bench");
    input["cniVersion"] = json!(version);
    if !result.is_null() {
        input["prevResult"] = result.clone();
    }
    input["runtimeConfig"] = match entry["type"].as_str() {
        Some("istio-cni") => json!({"io.kubernetes.cri.pod-annotations": {
            "kubernetes.io/config.source": "api", "sidecar.istio.io/status": STATUS
        }}),
        Some("portmap") => {
            json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]})
        }
        _ => json!({}),
    };
    input
}

type Times = BTreeMap<(String, usize), Vec<Duration>>;

const COMMANDS: [&str; 6] = ["VERSION", "STATUS", "ADD", "ADD again", "CHECK", "DEL"];

/// One pod through the chain, with each backend of ours in turn.
fn pod(node: &Namespace, plugins: &[(String, PathBuf, Value)], run: usize, times: &mut Times) {
    let (debian, ours) = plugins.split_at(3);
    for own in ours {
        let pod = Namespace::with_loopback();
        let (netns, container) = (pod.path(), format!("pod{run}"));
        let chain: Vec<_> = debian.iter().chain([own]).collect();
        let mut result = Value::Null;
        let mut measure = |at: usize, (name, program, entry): &(String, PathBuf, Value), result: &Value| {
            let ours = entry["type"] == "istio-cni";
            let version = if COMMANDS[at] == "STATUS" { "1.1.0" } else { "1.0.0" };
            let input = input(entry, version, result);
            let command = COMMANDS[at].split(' ').next().unwrap();
            let call = Call { program, command, container: &container, netns: &netns, input: &input };
            let (took, printed) = node.run(|| call.run());
            // Those before ours are measured once.
            if ours || own.0 == plugins[3].0 {
                times.entry((name.clone(), at)).or_default().push(took);
            }
            printed
        };
        for plugin in &chain {
            measure(0, plugin, &Value::Null);
        }
        measure(1, own, &Value::Null);
        for plugin in &chain {
            result = measure(2, plugin, &result);
        }
        measure(3, own, &result);
        // Debian's tuning and bridge of this version have CHECK, too, but do less.
        measure(4, own, &result);
        for plugin in chain.iter().rev() {
            measure(5, plugin, &result);
        }
    }
}

/// ADDs of ours at once: from the first start to the last end.
fn at_once(count: usize, (_, program, entry): &(String, PathBuf, Value)) -> Duration {
    let pods: Vec<Namespace> = (0..count).map(|_| Namespace::with_loopback()).collect();
    let input = input(entry, "1.0.0", &json!({"cniVersion": "1.0.0"}));
    let begin = Barrier::new(count + 1);
    thread::scope(|scope| {
        let all: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(at, pod)| {
                let (begin, input) = (&begin, &input);
                scope.spawn(move || {
                    let (netns, container) = (pod.path(), format!("many{at}"));
                    begin.wait();
                    Call { program, command: "ADD", container: &container, netns: &netns, input }.run();
                })
            })
            .collect();
        begin.wait();
        let start = Instant::now();
        all.into_iter().for_each(|one| one.join().unwrap());
        start.elapsed()
    })
}

fn median(times: &mut [Duration]) -> String {
    times.sort();
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    let (least, most) = (times.first().unwrap(), times.last().unwrap());
    format!("{:.2} ({:.2}–{:.2})", ms(&times[times.len() / 2]), ms(least), ms(most))
}

fn report(
    options: &Options,
    plugins: &[(String, PathBuf, Value)],
    times: &mut Times,
    many: &mut [(usize, Vec<Duration>)],
) -> String {
    let size = std::fs::metadata(&options.bin).unwrap().len();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let mut text = format!(
        "Command: `make bench-cni`. {} pods, plugins in turn; {} linux, Linux {}, {} CPUs, load average {}. The binary is {size} bytes (static, stripped). \
         Milliseconds: median (minimum–maximum).\n\n| | {} |\n|---|{}\n",
        options.runs,
        std::env::consts::ARCH,
        kernel.trim().split('-').next().unwrap_or_default(),
        thread::available_parallelism().unwrap(),
        load.split(' ').next().unwrap_or_default(),
        COMMANDS.join(" | "),
        "---|".repeat(COMMANDS.len()),
    );
    for (name, ..) in plugins {
        let cell =
            |at| times.get_mut(&(name.clone(), at)).map_or_else(|| "–".to_owned(), |times| median(times));
        let cells: Vec<String> = (0..COMMANDS.len()).map(cell).collect();
        writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
    }
    text.push_str("\n| ADDs at once, nftables | all done after, ms |\n|---|---|\n");
    for (count, times) in many {
        writeln!(text, "| {count} | {} |", median(times)).unwrap();
    }
    text
}

fn main() {
    let options = options();
    // As on a node: the leases of host-local are on the disk, the state of istio-cni, in /run, in memory.
    let (folder, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let node = Namespace::with_loopback();
    let plugins = plugins(&options, folder.path(), run.path());
    let mut times = Times::new();
    pod(&node, &plugins, 0, &mut Times::new()); // the bridge, and what the kernel loads
    for run in 1..=options.runs {
        pod(&node, &plugins, run, &mut times);
    }
    let mut many: Vec<(usize, Vec<Duration>)> =
        [1, 10, 100].map(|count| (count, (0..5).map(|_| at_once(count, &plugins[3])).collect())).into();
    let text = report(&options, &plugins, &mut times, &mut many);
    println!("{text}");
    if let Some(path) = &options.write {
        let page = std::fs::read_to_string(path).unwrap();
        let (begin, end) = ("<!-- cni: begin (written by make bench-cni) -->\n", "<!-- cni: end -->");
        let (head, rest) = page.split_once(begin).expect("the page has the beginning");
        let (_, tail) = rest.split_once(end).expect("the page has the end");
        std::fs::write(path, format!("{head}{begin}\n{text}\n{end}{tail}")).unwrap();
    }
}
