//! A folder of `rules/`: the options and the pod, and what the program makes of them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use istio_iptables::cli::{self, Outcome};
use istio_iptables::facts::Files;
use istio_iptables::model::{Family, FamilyRules, InterfaceAddress, Network, PerFamily};
use istio_iptables::{config, policy, render, routing};
use serde_json::{Map, Value};

/// The contents of `scenario.json`.
pub(crate) struct Scenario {
    /// Name of the folder.
    pub(crate) name: String,
    /// A few words, for the table of all scenarios.
    pub(crate) title: String,
    /// What it is for and who needs it.
    pub(crate) purpose: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    network: Network,
    files: Files,
}

/// What the program makes of it.
pub(crate) struct Made {
    /// The rules of each family.
    pub(crate) rules: PerFamily<FamilyRules>,
    /// Address, policy rules and routes.
    pub(crate) desired: routing::Desired,
    /// The log lines about decisions.
    pub(crate) log: Vec<String>,
}

/// The folder that holds all scenarios.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")
}

/// Every scenario, by name.
pub(crate) fn all() -> Vec<Scenario> {
    let folders = fs::read_dir(root()).expect("rules/ can be read");
    let mut names: Vec<String> = folders
        .map(|entry| entry.expect("rules/ can be read"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("the name is UTF-8"))
        .collect();
    names.sort();
    names.iter().map(|name| Scenario::load(name)).collect()
}

impl Scenario {
    fn load(name: &str) -> Self {
        let path = root().join(name).join("scenario.json");
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{} (every folder of rules/ has one): {error}", path.display()));
        let mut json: Map<String, Value> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = |list: Vec<String>| list.iter().map(|line| format!("{line}\n")).collect::<String>();
        let scenario = Self {
            name: name.to_owned(),
            title: word(&mut json, "title"),
            purpose: word(&mut json, "for"),
            args: list(&mut json, "args"),
            env: variables(&mut json),
            network: Network {
                addresses: list(&mut json, "addresses").iter().map(|line| address(line)).collect(),
                ipv6: true,
            },
            files: Files {
                resolv_conf: Ok(lines(list(&mut json, "resolv_conf"))),
                passwd: lines(list(&mut json, "passwd")),
                group: lines(list(&mut json, "group")),
            },
        };
        assert!(json.is_empty(), "{}: unknown keys {:?}", path.display(), json.keys());
        assert!(
            !scenario.title.is_empty() && !scenario.purpose.is_empty(),
            "{name} does not say what it is for"
        );
        scenario
    }

    /// The command line and the environment as one would type them.
    pub(crate) fn command(&self) -> String {
        let quoted = |text: &String| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:".contains(c);
            if !text.is_empty() && text.chars().all(plain) { text.clone() } else { format!("'{text}'") }
        };
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        // Istio's template passes the program's name once more.
        let args = self.args.iter().filter(|arg| *arg != "istio-iptables").map(quoted);
        env.chain(["istio-iptables".to_owned()]).chain(args).collect::<Vec<_>>().join(" ")
    }

    /// The command line, without the program's name.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        // Istio's template passes the program's name once more.
        self.args.iter().map(String::as_str).filter(|arg| *arg != "istio-iptables")
    }

    /// The environment.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The pod's files.
    pub(crate) const fn files(&self) -> &Files {
        &self.files
    }

    /// The pod's addresses.
    pub(crate) const fn network(&self) -> &Network {
        &self.network
    }

    /// The way of a real run, up to the kernel.
    pub(crate) fn make(&self) -> Made {
        let args = ["istio-iptables"].into_iter().chain(self.arguments());
        let env = self.variables().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let no_file = |_: &Path| Err(io::ErrorKind::NotFound.into());
        let parsed = cli::parse(args.map(OsString::from), env, &mut io::empty(), &no_file);
        let Ok(Outcome::Run(raw)) = parsed else { panic!("{}: {parsed:?}", self.name) };
        let resolved =
            config::resolve(&raw, self.files()).unwrap_or_else(|errors| panic!("{}: {errors:?}", self.name));
        let (config, notices) = resolved.intent.decide(self.network());
        let rules = policy::ruleset(&config);
        let warnings = resolved.warnings.iter().map(|warning| format!("warning: {warning}"));
        let notices =
            notices.iter().map(|notice| format!("{}: {notice}", notice.level().as_str().to_lowercase()));
        Made {
            rules: config.families.iter().map(|family| (family, rules.resolve(family))).collect(),
            desired: routing::Desired::of(&config),
            log: warnings.chain(notices).chain([config.to_string()]).collect(),
        }
    }
}

impl Made {
    /// The rules file of a family, if it has rules.
    pub(crate) fn rules_file(&self, family: Family) -> Option<String> {
        let rules = self.rules.get(&family).filter(|rules| rules.count() > 0)?;
        Some(render::fresh(rules))
    }

    /// The commands of iproute2 that do what the program does over netlink, if there is anything to do.
    pub(crate) fn commands(&self) -> Option<String> {
        let steps =
            routing::plan(&self.desired, &routing::Observed::default(), &routing::Evidence::default());
        assert!(steps.after.is_empty(), "nothing is there that would have to go");
        let lines: String = steps.before.iter().map(|step| format!("{step}\n")).collect();
        (!lines.is_empty()).then_some(lines)
    }
}

fn word(json: &mut Map<String, Value>, key: &str) -> String {
    let value = json.remove(key).unwrap_or_else(|| panic!("the key {key:?} is missing"));
    text(&value)
}

fn list(json: &mut Map<String, Value>, key: &str) -> Vec<String> {
    match json.remove(key) {
        None => Vec::new(),
        Some(Value::Array(items)) => items.iter().map(text).collect(),
        Some(other) => panic!("{key} is a list of texts, not {other}"),
    }
}

fn variables(json: &mut Map<String, Value>) -> Vec<(String, String)> {
    let mut variables = match json.remove("env") {
        None => Vec::new(),
        Some(Value::Object(all)) => all.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
        Some(other) => panic!("env is an object of texts, not {other}"),
    };
    // In whatever order a JSON object comes.
    variables.sort();
    variables
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text")).to_owned()
}

/// `eth0 10.244.1.7/24`
fn address(line: &str) -> InterfaceAddress {
    let parts = || {
        let (interface, rest) = line.split_once(' ')?;
        let (address, prefix) = rest.split_once('/')?;
        Some(InterfaceAddress {
            interface: interface.to_owned(),
            address: address.parse().ok()?,
            prefix: prefix.parse().ok()?,
        })
    };
    parts().unwrap_or_else(|| panic!("{line:?} is not like \"eth0 10.244.1.7/24\""))
}
