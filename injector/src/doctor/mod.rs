//! Finds out why pods are not injected, or not created: takes saved objects of a cluster and returns
//! findings. No I/O.
//!
//! Each file checks one thing, in the order in which a request passes them: the API server, the webhook
//! configuration, the certificates, the Service and its endpoints, the config, the namespaces, the pods.
//! `messages` reads the cluster's own reports of failed calls.

mod apiserver;
mod cluster;
mod config;
mod finding;
mod hooks;
mod mesh;
mod messages;
mod namespaces;
mod overlap;
mod pods;
mod policies;
mod report;
mod roles;
mod serving;
mod trust;

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::Value;

pub use finding::{Finding, Problem, Severity};
pub use report::{as_json, as_text};

use crate::decide::Webhooks;
use crate::object::owner;
use cluster::Cluster;
use hooks::Installation;

/// Options of the diagnosis.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespaces whose pods should be injected; empty: all with an injection label.
    pub namespaces: Vec<String>,
    /// The one namespace whose Services, ConfigMaps and the like were read; none: those of all.
    pub read: Option<String>,
    /// The current time, for certificates.
    pub now: SystemTime,
}

/// The findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
    /// What was not checked, and why.
    pub unchecked: Vec<String>,
    /// The number of objects.
    pub objects: usize,
    /// The owners of objects that findings are about.
    pub owners: BTreeMap<String, String>,
}

impl Diagnosis {
    /// Whether anything is broken.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.findings.iter().any(|finding| finding.problem.severity() == Severity::Broken)
    }

    /// The owner of the object of a finding.
    fn owner(&self, finding: &Finding) -> Option<&str> {
        // The object comes first, a part of it may follow.
        let title = finding.object.split([',', ':']).next().unwrap_or_default();
        self.owners.get(title).map(String::as_str)
    }

    fn found(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn not_checked(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.unchecked.contains(&what) {
            self.unchecked.push(what);
        }
    }
}

/// What the checks read, and the diagnosis that they add to.
struct Context<'a> {
    cluster: &'a Cluster<'a>,
    installations: &'a [Installation<'a>],
    /// The selectors of all installations.
    webhooks: &'a Webhooks,
    options: &'a Options,
    diagnosis: Diagnosis,
}

impl Context<'_> {
    /// Whether `--namespace` names this one, or none at all.
    fn is_requested(&self, namespace: &str) -> bool {
        self.options.namespaces.is_empty() || self.is_named(namespace)
    }

    /// Whether `--namespace` names this one.
    fn is_named(&self, namespace: &str) -> bool {
        self.options.namespaces.iter().any(|one| one == namespace)
    }
}

/// Runs all checks.
#[must_use]
pub fn examine(objects: &[Value], options: &Options) -> Diagnosis {
    let cluster = Cluster::new(objects);
    let (objects, owners) = (cluster.count(), owners(&cluster));
    let mut diagnosis = Diagnosis { objects, owners, ..Diagnosis::default() };
    let installations = hooks::installations(&cluster, &mut diagnosis);
    let webhooks = hooks::webhooks(&installations, &mut diagnosis);
    let mut context =
        Context { cluster: &cluster, installations: &installations, webhooks: &webhooks, options, diagnosis };
    for installation in &installations {
        hooks::examine(installation, &mut context.diagnosis);
    }
    for installation in installations.iter().flat_map(Installation::by_service) {
        backend(&mut context, &installation);
    }
    if !webhooks.all.is_empty() {
        overlap::examine(&mut context);
        namespaces::examine(&mut context);
        mesh::examine(&mut context);
        pods::examine(&mut context);
    }
    messages::examine(&mut context);
    let mut diagnosis = context.diagnosis;
    diagnosis.findings.sort_by_key(|finding| (finding.problem.severity(), finding.problem));
    diagnosis
}

/// Who owns the objects of an installation: they may be managed by Helm, by istiod or by this program, and
/// changes by hand do not last.
fn owners(cluster: &Cluster<'_>) -> BTreeMap<String, String> {
    const KINDS: [&str; 5] =
        ["MutatingWebhookConfiguration", "ConfigMap", "Service", "Deployment", "NetworkPolicy"];
    let all = KINDS.iter().flat_map(|kind| cluster.all(kind));
    all.filter_map(|object| Some((cluster::title(object), owner(object)?))).collect()
}

/// What is called, and what is behind it.
fn backend(context: &mut Context<'_>, installation: &Installation<'_>) {
    if let (Some(called), Some(read)) = (installation.service, &context.options.read)
        && called.namespace != read
    {
        return context.diagnosis.not_checked(format!(
            "Service, certificate and config of {}: only namespace {read} was read; --istio-namespace {} reads its own",
            installation.title(),
            called.namespace
        ));
    }
    let backend = serving::examine(context, installation);
    policies::examine(context, installation, &backend);
    roles::examine(context, installation, &backend);
    trust::examine(context, installation, &backend);
    config::examine(context, installation, &backend);
    apiserver::examine(context, installation);
}
