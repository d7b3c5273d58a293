//! `doctor`: why are pods not injected, or not created?

#[cfg(feature = "cluster")]
use std::path::Path;
use std::time::SystemTime;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::args::Format;
use super::load::called;
use super::{Exit, Failure, Output, saved};
use crate::doctor::{self, Options};
use crate::manifests::Namespace;

/// What is saved for it, and how.
const SAVE: &str = "kubectl get -A -o json mutatingwebhookconfigurations,namespaces,services,endpointslices,deployments,\
                    horizontalpodautoscalers,replicasets,pods,networkpolicies,configmaps,events > cluster.json; kubectl get -n istio-system -o json \
                    secrets > secrets.json";

#[derive(ClapArgs, Clone, Debug)]
#[command(after_help = format!("To save the objects of a cluster that cannot be reached from here: {SAVE}"))]
pub(super) struct DoctorArgs {
    /// Saved objects: file, directory (its .yaml, .yml and .json files) or - for standard input; may be repeated.
    /// Default: the cluster is asked
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// Where the cluster is; default: the pod's service account, or the usual places
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    kubeconfig: Option<String>,
    /// Where the injector runs, when the cluster is asked
    #[arg(
        short,
        long,
        visible_alias = "istioNamespace",
        default_value = "istio-system",
        value_name = "NAME"
    )]
    istio_namespace: Namespace,
    /// Namespaces whose pods are meant to be injected; may be repeated. Default: all that have labels about it
    #[arg(short, long, value_name = "NAME")]
    namespace: Vec<Namespace>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(super) fn run(args: &DoctorArgs) -> Result<Output, Failure> {
    let saved_ones = !args.filename.is_empty();
    let (objects, notes) = if saved_ones { (saved::read(&args.filename)?, Vec::new()) } else { live(args)? };
    let namespaces = args.namespace.iter().map(|name| name.as_str().to_owned()).collect();
    let read = Some(args.istio_namespace.as_str().to_owned()).filter(|_| !saved_ones);
    let options = Options { namespaces, read, now: SystemTime::now() };
    let diagnosis = doctor::examine(&objects, &options);
    if saved_ones && diagnosis.objects == 0 {
        let names: Vec<&str> = args.filename.iter().map(|name| called(name)).collect();
        let problem = format!(
            "{}: there is no Kubernetes object in it; expected JSON or YAML, as this saves it: {SAVE}",
            names.join(", ")
        );
        return Err(Failure::one(Exit::Data, problem));
    }
    let text = match args.output {
        Format::Json => doctor::as_json(&diagnosis),
        Format::Text => doctor::as_text(&diagnosis),
    };
    Ok(Output { text, notes, refused: diagnosis.broken(), target: "-".to_owned() })
}

/// The objects of a cluster, and what could not be read of it.
#[cfg(feature = "cluster")]
fn live(args: &DoctorArgs) -> Result<(Vec<Value>, Vec<String>), Failure> {
    if let Some(name) = &args.kubeconfig {
        crate::files::readable(name)
            .map_err(|error| Failure::one(Exit::NoInput, format!("--kubeconfig {name}: {error}")))?;
    }
    let unavailable = |problem: String| Failure::one(Exit::Unavailable, problem);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unavailable(format!("no thread to ask the cluster with: {error}")))?;
    let (objects, notes) = runtime.block_on(async {
        let client = crate::cluster::client(args.kubeconfig.as_deref().map(Path::new))
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        let (mut objects, mut notes) = crate::cluster::fetch(&client, args.istio_namespace.as_str()).await;
        for namespace in args.namespace.iter().filter(|namespace| **namespace != args.istio_namespace) {
            // Of a namespace that was asked about, its pods count; everything else is known by now.
            let (more, problems) = crate::cluster::fetch(&client, namespace.as_str()).await;
            let own = |object: &Value| {
                object.pointer("/metadata/namespace").and_then(Value::as_str) == Some(namespace.as_str())
            };
            objects.extend(more.into_iter().filter(|object| kind(object) == "Pod" && own(object)));
            notes.extend(problems.into_iter().filter(|problem| problem.starts_with("pods of ")));
        }
        Ok::<_, Failure>((objects, notes))
    })?;
    // Without the configurations nothing can be said: not that they are missing, either.
    const CONFIGURATION: &str = "MutatingWebhookConfiguration";
    let read = |object: &Value| kind(object).trim_end_matches("List") == CONFIGURATION;
    if !notes.is_empty() && !objects.iter().any(read) {
        return Err(Failure::new(Exit::Unavailable, notes));
    }
    Ok((objects, notes.into_iter().map(|note| format!("warning: {note}")).collect()))
}

#[cfg(feature = "cluster")]
fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(not(feature = "cluster"))]
fn live(_: &DoctorArgs) -> Result<(Vec<Value>, Vec<String>), Failure> {
    let problem = format!(
        "--filename is needed: this program was built without a client for clusters. To save the objects: {SAVE}"
    );
    Err(Failure::one(Exit::Usage, problem))
}
