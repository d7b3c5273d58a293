//! `config` and `lint`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::args::ConfigArgs;
use super::load::{sources, values};
use super::{Environment, Failure, Output};
use crate::config::{BUILTIN_CONFIG, BUILTIN_MESH, BUILTIN_VALUES};
use crate::inject::validate;
use crate::inject::{Injector, Options, functions};
use crate::yaml;

#[derive(Args, Clone, Debug)]
pub(super) struct PrintArgs {
    /// What to print; default: everything, as ConfigMaps
    #[arg(value_enum)]
    pub(super) which: Option<Which>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Which {
    Config,
    Values,
    Mesh,
}

#[derive(Args, Clone, Debug)]
pub(super) struct LintArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

pub(super) fn print(args: &PrintArgs) -> Output {
    let text = match args.which {
        Some(Which::Config) => BUILTIN_CONFIG.to_owned(),
        Some(Which::Mesh) => BUILTIN_MESH.to_owned(),
        Some(Which::Values) => BUILTIN_VALUES.to_owned(),
        None => {
            let map = |name: &str, data: serde_json::Value| {
                yaml::write(&json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "istio-system"}, "data": data,
                }))
            };
            let config =
                map("istio-sidecar-injector", json!({"config": BUILTIN_CONFIG, "values": BUILTIN_VALUES}));
            let mesh = map("istio", json!({"mesh": BUILTIN_MESH}));
            format!("{config}---\n{mesh}")
        }
    };
    Output { text, target: "-".to_owned(), ..Output::default() }
}

pub(super) fn lint(args: &LintArgs, environment: &Environment) -> Result<Output, Failure> {
    let variables = environment.clone();
    let functions = functions(move |name| Some(variables.get(name).to_owned()));
    let problems: Vec<String> = match sources(&args.config)?.load_with(&functions, values(&args.config)) {
        Ok(settings) => {
            let names = settings.injector.known_names().join(", ");
            let notes = settings.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
            let policy = validate::policy(&settings.injector.rules.policy);
            let mut problems: Vec<String> = policy.into_iter().collect();
            problems.extend(validate::inject(&Injector::new(settings, Options::default())));
            if problems.is_empty() {
                let text = format!("no problem found; templates and aliases: {names}\n");
                return Ok(Output { text, notes, target: "-".to_owned(), ..Output::default() });
            }
            problems
        }
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    let notes = problems.iter().map(|problem| format!("error: {problem}")).collect();
    Ok(Output { notes, refused: true, target: "-".to_owned(), ..Output::default() })
}
