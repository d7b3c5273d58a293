//! `doctor`: why are pods not injected, or not created?

use std::time::SystemTime;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::args::{Format, InputArgs};
use super::load::called;
use super::rewrite::names;
use super::{Exit, Failure, Output};
use crate::doctor::{self, Options};
use crate::{files, yaml};

/// What is saved for it, and how.
const SAVE: &str = "kubectl get -A -o json mutatingwebhookconfigurations,namespaces,services,endpointslices,deployments,\
                    replicasets,pods,networkpolicies,configmaps,events > cluster.json; kubectl get -n istio-system -o json \
                    secrets > secrets.json";

#[derive(ClapArgs, Clone, Debug)]
#[command(after_help = format!("To save the objects of a cluster: {SAVE}"))]
pub(super) struct DoctorArgs {
    /// Saved objects: file, directory (its .yaml, .yml and .json files) or - for standard input; may be repeated
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// Namespaces whose pods are meant to be injected; may be repeated. Default: all that have labels about it
    #[arg(short, long, value_name = "NAME")]
    namespace: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(super) fn run(args: &DoctorArgs) -> Result<Output, Failure> {
    let (objects, notes) = if args.filename.is_empty() { live()? } else { (saved(args)?, Vec::new()) };
    let options = Options { namespaces: args.namespace.clone(), now: SystemTime::now() };
    let diagnosis = doctor::examine(&objects, &options);
    let text = match args.output {
        Format::Json => doctor::as_json(&diagnosis),
        Format::Text => doctor::as_text(&diagnosis),
    };
    Ok(Output { text, notes, refused: diagnosis.broken(), target: "-".to_owned() })
}

/// The objects of a cluster, and what could not be read of it.
fn live() -> Result<(Vec<Value>, Vec<String>), Failure> {
    Err(Failure::one(
        Exit::Usage,
        format!("--filename is needed: the saved objects of a cluster. To save them: {SAVE}"),
    ))
}

fn saved(args: &DoctorArgs) -> Result<Vec<Value>, Failure> {
    let mut objects = Vec::new();
    for name in names(&InputArgs { filename: args.filename.clone() })? {
        let bytes = files::read(&name)
            .map_err(|error| Failure::one(Exit::NoInput, format!("{}: {error}", called(&name))))?;
        let bad = |error: String| Failure::one(Exit::Data, format!("{}: {error}", called(&name)));
        // JSON is read without the bounds that YAML needs: what is saved of a cluster is large.
        if bytes.first() == Some(&b'{') {
            let value = serde_json::from_slice(&bytes).map_err(|error| {
                bad(format!(
                    "{error} ({} bytes were read, 16 MiB at most: save large clusters in parts)",
                    bytes.len()
                ))
            })?;
            objects.push(value);
        } else {
            let documents = yaml::read_documents(&bytes).map_err(|error| bad(error.to_string()))?;
            objects.extend(documents.into_iter().map(|document| document.value));
        }
    }
    Ok(objects)
}
