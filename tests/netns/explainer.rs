//! What `explain` says of a packet, to be compared with what the kernel does with it.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use istio_iptables::cli::{self, Outcome};
use istio_iptables::config;
use istio_iptables::explain::{self, Pod};
use istio_iptables::facts::Files;
use istio_iptables::model::Network;

/// A connection, or a query, that a test makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// As in `--from`.
    pub(crate) from: String,
    pub(crate) to: SocketAddr,
    pub(crate) is_udp: bool,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}{}", self.from, self.to, if self.is_udp { ", UDP" } else { "" })
    }
}

/// The options of a run, and what it finds in its pod.
#[derive(Clone, Debug)]
pub(crate) struct Explainer {
    pub(crate) args: Vec<String>,
    pub(crate) env: Option<(&'static str, &'static str)>,
    pub(crate) resolv_conf: &'static str,
    pub(crate) network: Network,
}

impl Explainer {
    /// The proxy's port that the packet goes to; `None` if it is not captured.
    pub(crate) fn port(&self, flow: &Flow) -> Option<u64> {
        let report = self.report(flow);
        let port = report["port"].as_u64();
        match report["verdict"].as_str() {
            Some("captured") => Some(port.expect("a captured packet has a port")),
            Some("not-captured") => None,
            _ => panic!("{flow}: {report}"),
        }
    }

    fn report(&self, flow: &Flow) -> serde_json::Value {
        let (to, proto) = (flow.to.to_string(), if flow.is_udp { "udp" } else { "tcp" });
        let question = ["--from", &flow.from, "--to", &to, "--proto", proto, "--output", "json"];
        let program = ["istio-iptables", "explain"].into_iter();
        let args = program.chain(self.args.iter().map(String::as_str)).chain(question).map(OsString::from);
        let env = self.env.map(|(name, value)| (name.into(), value.into()));
        let no_file = |_: &std::path::Path| Err(io::ErrorKind::NotFound.into());
        let Ok(Outcome::Run(raw)) = cli::parse(args, env, &mut io::empty(), &no_file) else {
            panic!("{:?} cannot be read", self.args)
        };
        let files = Files {
            passwd: String::new(),
            group: String::new(),
            resolv_conf: Ok(self.resolv_conf.to_owned()),
        };
        let resolved = config::resolve(&raw, &files).expect("valid options");
        let query = resolved.query.expect("a question");
        let (config, _) = resolved.intent.decide(&self.network);
        let pod = Pod { config: &config, given: &resolved.given, network: &self.network, live: None };
        serde_json::from_str(&explain::report(&query, &pod).text).expect("JSON")
    }
}
