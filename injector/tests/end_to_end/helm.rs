//! The Helm chart with Helm 3 (three-way patches) and Helm 4 (server-side apply), and GitOps controllers,
//! while the injector runs and writes the caBundle into the same objects.
//!
//! The programs are `HELM3` and `HELM4`, else `helm3` and `helm4` of `KUBEBUILDER_ASSETS` or of the search
//! path.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::api::{Rejected, name, path, until};
use crate::control_plane::Cluster;
use crate::installation::{Installation, manifests};
use crate::replica::Replica;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm");
const IMAGE: &str = "registry.example.com/sidecar-injector:1";
const INIT_IMAGE: &str = "registry.example.com/istio-iptables:1";

/// Each value with the flag of `manifests` that means the same.
const VALUES: [(&str, &[&str]); 5] = [
    ("enableNamespacesByDefault=true", &["--enable-namespaces-by-default"]),
    ("failurePolicy=Ignore", &["--failure-policy", "ignore"]),
    ("validatingPolicy=true", &["--validating-policy"]),
    ("platform=openshift", &["--platform", "openshift"]),
    ("replicas=5", &["--replicas", "5"]),
];

struct Helm {
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Helm {
    /// Fails without a program of that version.
    fn new(version: u32) -> Self {
        let file = format!("helm{version}");
        let given = std::env::var_os(file.to_uppercase()).map(PathBuf::from);
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(|assets| PathBuf::from(assets).join(&file));
        let program =
            given.or_else(|| assets.filter(|path| path.exists())).unwrap_or_else(|| file.clone().into());
        let helm = Self { program, home: tempfile::tempdir().expect("a directory") };
        let output = helm.command().args(["version", "--short"]).output();
        let output =
            output.unwrap_or_else(|error| panic!("{file}, or variable {}: {error}", file.to_uppercase()));
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(found.starts_with(&format!("v{version}.")), "{}: {found:?}", helm.program.display());
        helm
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("HOME", self.home.path());
        for folder in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{folder}_HOME"), self.home.path().join(folder));
        }
        command
    }

    fn run(&self, installation: &Installation<'_>, arguments: &[&str]) {
        let result = self.try_run(installation, arguments);
        let log = || installation.cluster.server_log();
        assert!(result.is_ok(), "{} {arguments:?}: {result:?}\n{}", self.program.display(), log());
    }

    fn try_run(&self, installation: &Installation<'_>, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.command();
        command.args(arguments).args(["--namespace", &installation.namespace, "--kubeconfig"]);
        let output = command.arg(&installation.cluster.kubeconfig).output().expect("helm");
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(errors.into_owned()) }
    }

    /// `helm install` or `helm upgrade` with the chart and these values.
    fn chart(&self, installation: &Installation<'_>, command: &str, values: &[&str]) {
        let own = own_values(installation);
        let mut arguments = vec![command, "injector", CHART];
        for value in own.iter().map(String::as_str).chain(values.iter().copied()) {
            arguments.extend(["--set", value]);
        }
        self.run(installation, &arguments);
    }
}

fn own_values(installation: &Installation<'_>) -> [String; 3] {
    let revision = match installation.is_default {
        true => "replaceIstiod=true".to_owned(),
        false => format!("revision={}", installation.revision),
    };
    [revision, format!("image={IMAGE}"), format!("initImage={INIT_IMAGE}")]
}

/// The objects that an installation with these flags has.
fn expected(installation: &Installation<'_>, flags: &[&str]) -> Vec<Value> {
    let images = ["--image", IMAGE, "--init-image", INIT_IMAGE];
    manifests(&[installation.own_flags().as_slice(), &images, flags].concat())
}

/// The webhooks are those of the manifests with these flags, complete and with a caBundle, and pods are
/// injected.
fn check_webhooks(installation: &Installation<'_>, flags: &[&str], what: &str) {
    let objects = expected(installation, flags);
    let configuration = objects.iter().find(|one| one["kind"] == "MutatingWebhookConfiguration").expect("it");
    let configured = configuration["webhooks"].as_array().expect("webhooks").clone();
    let hooks = installation.hooks()["webhooks"].as_array().expect("webhooks").clone();
    let of = |hooks: &[Value]| -> Vec<[Value; 3]> {
        let fields = |hook: &Value| ["name", "failurePolicy", "rules"].map(|key| hook[key].clone());
        let mut all: Vec<_> = hooks.iter().map(fields).collect();
        for [_, policy, rules] in &mut all {
            assert_ne!(*rules, Value::Null, "{what}: {hooks:#?}");
            *rules = Value::Null;
            assert_ne!(*policy, Value::Null, "{what}: {hooks:#?}");
        }
        all
    };
    assert_eq!(of(&hooks), of(&configured), "{what}");
    until("every webhook has the caBundle", || {
        let bundles = installation.ca_bundles();
        !bundles.is_empty() && bundles.iter().all(|bundle| !bundle.is_empty() && *bundle == bundles[0])
    });
}

/// Each value on and off, a rollback, and the end of the release.
fn toggle(installation: &Installation<'_>, helm: &Helm, namespace: &str) {
    for (value, flags) in VALUES {
        helm.chart(installation, "upgrade", &[value]);
        check_webhooks(installation, flags, value);
        installation.until_injecting(namespace);
        helm.chart(installation, "upgrade", &[]);
        check_webhooks(installation, &[], &format!("without {value}"));
        installation.until_injecting(namespace);
    }
    helm.chart(installation, "upgrade", &["enableNamespacesByDefault=true"]);
    // To the revision before; Helm keeps ten.
    helm.run(installation, &["rollback", "injector"]);
    check_webhooks(installation, &[], "rolled back");
    installation.until_injecting(namespace);
}

fn uninstall(installation: &Installation<'_>, helm: &Helm) {
    helm.run(installation, &["uninstall", "injector"]);
    let exists = |object: &&Value| match installation.cluster.api.get(&path(object)) {
        Ok(found) => found["metadata"].get("deletionTimestamp").is_none(),
        Err(Rejected { code: 404, .. }) => false,
        Err(rejected) => panic!("{rejected:?}"),
    };
    let objects = expected(installation, &[]);
    let objects = objects.iter().filter(|object| object["kind"] != "Namespace");
    let left: Vec<&str> = objects.filter(exists).map(name).collect();
    // A control plane may read the mesh config of the default revision.
    let kept: &[&str] = if installation.is_default { &["istio"] } else { &[] };
    assert_eq!(left, kept);
}

fn by_one_version(cluster: &Cluster, version: u32) {
    let helm = Helm::new(version);
    let mut installation = Installation::without_objects(cluster);
    let namespace = installation.injected_namespace("shop");
    helm.chart(&installation, "install", &[]);
    let replica = Replica::start(&installation, 1);
    installation.until_injecting(&namespace);
    check_webhooks(&installation, &[], "installed");
    toggle(&installation, &helm, &namespace);
    drop(replica);
    uninstall(&installation, &helm);
}

pub(crate) fn helm_3_installs_changes_and_uninstalls(cluster: &Cluster) {
    by_one_version(cluster, 3);
}

pub(crate) fn helm_4_installs_changes_and_uninstalls(cluster: &Cluster) {
    by_one_version(cluster, 4);
}

pub(crate) fn helm_4_takes_over_a_release_of_helm_3(cluster: &Cluster) {
    let (old, new) = (Helm::new(3), Helm::new(4));
    for server_side in [None, Some("--server-side=true")] {
        let mut installation = Installation::without_objects(cluster);
        let namespace = installation.injected_namespace("shop");
        old.chart(&installation, "install", &["enableNamespacesByDefault=true"]);
        old.chart(&installation, "upgrade", &[]);
        old.chart(&installation, "upgrade", &["enableNamespacesByDefault=true"]);
        let replica = Replica::start(&installation, 1);
        installation.until_injecting(&namespace);
        check_webhooks(&installation, VALUES[0].1, "by Helm 3");
        let own = own_values(&installation);
        let mut arguments = vec!["upgrade", "injector", CHART];
        arguments.extend(own.iter().flat_map(|value| ["--set", value]));
        if let Some(flag) = server_side {
            arguments.extend([flag, "--force-conflicts"]);
        }
        new.run(&installation, &arguments);
        check_webhooks(&installation, &[], "upgraded by Helm 4");
        installation.until_injecting(&namespace);
        new.run(&installation, &["rollback", "injector", "1"]);
        check_webhooks(&installation, VALUES[0].1, "rolled back by Helm 4");
        installation.until_injecting(&namespace);
        drop(replica);
        uninstall(&installation, &new);
    }
}

/// Objects that `kubectl apply` has made, or istiod's chart: Helm refuses them without these flags.
pub(crate) fn helm_takes_over_existing_objects(cluster: &Cluster) {
    let flags: [&[&str]; 2] = [&["--take-ownership"], &["--take-ownership", "--force-conflicts"]];
    for (version, flags) in [3, 4].into_iter().zip(flags) {
        let helm = Helm::new(version);
        let mut installation = Installation::new(cluster, &[]);
        let namespace = installation.injected_namespace("shop");
        let own = own_values(&installation);
        let mut arguments = vec!["install", "injector", CHART];
        arguments.extend(own.iter().flat_map(|value| ["--set", value]));
        let refused = helm.try_run(&installation, &arguments).expect_err("refused");
        assert!(refused.contains("invalid ownership metadata"), "{refused}");
        helm.run(&installation, &[&arguments, flags].concat());
        let replica = Replica::start(&installation, 1);
        installation.until_injecting(&namespace);
        check_webhooks(&installation, &[], "taken over");
        drop(replica);
        uninstall(&installation, &helm);
    }
}

/// As Argo CD and Flux apply: server-side, with a manager of their own, which takes all fields that it names.
pub(crate) fn gitops_controllers_add_and_drop_webhooks(cluster: &Cluster) {
    for manager in ["argocd-controller", "kustomize-controller"] {
        let mut installation = Installation::without_objects(cluster);
        let namespace = installation.injected_namespace("shop");
        let apply = |objects: &[Value]| {
            let list = tempfile::NamedTempFile::new().expect("a file");
            let items: Vec<&Value> = objects.iter().filter(|one| one["kind"] != "Namespace").collect();
            let all = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
            std::fs::write(list.path(), all.to_string()).expect("written");
            let mut kubectl = cluster.kubectl();
            kubectl.args(["apply", "--server-side", "--force-conflicts", "--field-manager", manager, "-f"]);
            let output = kubectl.arg(list.path()).output().expect("kubectl");
            assert!(output.status.success(), "{manager}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let (plain, all) = (expected(&installation, &[]), expected(&installation, VALUES[0].1));
        apply(&plain);
        let replica = Replica::start(&installation, 1);
        installation.until_injecting(&namespace);
        for (objects, flags) in [(&all, VALUES[0].1), (&plain, &[][..]), (&all, VALUES[0].1)] {
            apply(objects);
            check_webhooks(&installation, flags, manager);
        }
        let configuration = |one: &&Value| one["kind"] == "MutatingWebhookConfiguration";
        let whole = all.iter().find(configuration).expect("it");
        let count = whole["webhooks"].as_array().expect("webhooks").len();
        assert!(count > 2 || !installation.is_default, "{count}");
        // One after the other: a caBundle that is wiped again and again is repaired later and later.
        let mut partial = whole.clone();
        for left in (0..count).rev() {
            partial["webhooks"].as_array_mut().expect("webhooks").remove(0);
            apply(std::slice::from_ref(&partial));
            let found = installation.hooks()["webhooks"].as_array().map_or(0, Vec::len);
            assert_eq!(found, left, "{manager}");
        }
        apply(std::slice::from_ref(whole));
        check_webhooks(&installation, VALUES[0].1, manager);
        installation.until_injecting(&namespace);
        drop(replica);
        plain.iter().filter(|one| one["kind"] != "Namespace").for_each(|one| cluster.api.delete(one));
    }
}
