//! `doctor`: finds out why pods are not injected, or not created.

use std::time::SystemTime;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::args::Format;
use super::color::ColorArgs;
use super::connect::with_cluster;
use super::{Environment, Exit, Failure, Output, saved};
use crate::doctor::{self, Options};
use crate::files;
use crate::manifests::Namespace;
use crate::object;
use crate::path::text;

/// The commands that save the objects.
const SAVE: &str = "kubectl get -A -o json mutatingwebhookconfigurations,namespaces,services,endpointslices,deployments,\
                    horizontalpodautoscalers,replicasets,statefulsets,daemonsets,replicationcontrollers,jobs,pods,networkpolicies,rolebindings,configmaps,events > cluster.json; kubectl get -n istio-system -o json \
                    secrets > secrets.json";

#[derive(ClapArgs, Clone, Debug)]
#[command(after_help = format!("To save the objects of a cluster that cannot be reached from here: {SAVE}"))]
pub(super) struct DoctorArgs {
    /// Saved objects: file, directory (its .yaml, .yml and .json files) or - for standard input; may be
    /// repeated. Default: read from the cluster
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// Kubeconfig; default: the pod's service account, then $KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    kubeconfig: Option<String>,
    /// Context of the kubeconfig; default: its current context
    #[arg(long, value_name = "NAME", conflicts_with = "filename")]
    context: Option<String>,
    /// Namespace of the injector in the cluster
    #[arg(
        short,
        long,
        visible_alias = "istioNamespace",
        default_value = "istio-system",
        value_name = "NAME"
    )]
    istio_namespace: Namespace,
    /// Namespaces whose pods should be injected; may be repeated. Default: all with an injection label
    #[arg(short, long, value_name = "NAME")]
    namespace: Vec<Namespace>,
    /// Read the pods of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["filename", "namespace"])]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    color: ColorArgs,
}

pub(super) fn run(args: &DoctorArgs, environment: &Environment) -> Result<Output, Failure> {
    let from_files = !args.filename.is_empty();
    let (objects, notes) =
        if from_files { (saved::read(&args.filename)?, Vec::new()) } else { read_cluster(args)? };
    let namespaces: Vec<&str> = args.namespace.iter().map(Namespace::as_str).collect();
    known(&objects, &namespaces)?;
    let namespaces = namespaces.into_iter().map(str::to_owned).collect();
    let read = Some(args.istio_namespace.as_str().to_owned()).filter(|_| !from_files);
    let options = Options { namespaces, read, now: SystemTime::now() };
    let diagnosis = doctor::examine(&objects, &options);
    if from_files && diagnosis.objects == 0 {
        let names: Vec<&str> = args.filename.iter().map(|name| files::called(name)).collect();
        let problem =
            format!("{}: no Kubernetes objects: expected JSON or YAML, saved with: {SAVE}", names.join(", "));
        return Err(Failure::one(Exit::Data, problem));
    }
    let text = match args.output {
        Format::Json => doctor::as_json(&diagnosis),
        Format::Text => args.color.paint(doctor::as_text(&diagnosis), environment),
    };
    Ok(Output { text, notes, refused: diagnosis.broken(), target: "-".to_owned(), ..Output::default() })
}

/// The objects of the cluster, and warnings about those that cannot be read.
fn read_cluster(args: &DoctorArgs) -> Result<(Vec<Value>, Vec<String>), Failure> {
    let flags = (args.kubeconfig.as_deref(), args.context.as_deref());
    let (objects, notes) = with_cluster(flags.0, flags.1, async |client, target| {
        let (mut objects, mut notes) = crate::cluster::fetch(&client, args.istio_namespace.as_str()).await;
        let others = args.namespace.iter().filter(|namespace| **namespace != args.istio_namespace);
        let all = args.all_namespaces.then_some(None);
        for namespace in others.map(|namespace| Some(namespace.as_str())).chain(all) {
            let (more, problems) = crate::cluster::fetch_pods(&client, namespace).await;
            let new: Vec<Value> = more.into_iter().filter(|object| !objects.contains(object)).collect();
            objects.extend(new);
            notes.extend(problems);
        }
        Ok::<_, Failure>((
            objects,
            notes.into_iter().map(|note| format!("{target}: {note}")).collect::<Vec<_>>(),
        ))
    })?;
    // Without the configurations there are no findings, not even that they are missing.
    const CONFIGURATION: &str = "MutatingWebhookConfiguration";
    let read = |object: &Value| kind(object).trim_end_matches("List") == CONFIGURATION;
    if !notes.is_empty() && !objects.iter().any(read) {
        return Err(Failure::new(Exit::Unavailable, notes));
    }
    Ok((objects, notes.into_iter().map(|note| format!("warning: {note}")).collect()))
}

/// Checks that the given namespaces exist, if namespaces were read.
pub(super) fn known(objects: &[Value], asked: &[&str]) -> Result<(), Failure> {
    let all = objects
        .iter()
        .flat_map(|object| object::items(object).map_or(std::slice::from_ref(object), Vec::as_slice));
    let all = all.filter(|object| kind(object) == "Namespace");
    let names: Vec<&str> = all.filter_map(|object| object.pointer("/metadata/name")?.as_str()).collect();
    let missing = asked.iter().filter(|asked| !names.is_empty() && !names.contains(asked));
    let problems: Vec<String> = missing
        .map(|missing| {
            format!(
                "--namespace {missing}: there is no such namespace, expected one of: {}",
                names.join(", ")
            )
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Data, problems)) }
}

fn kind(object: &Value) -> &str {
    text(object, "/kind")
}
