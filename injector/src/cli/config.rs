//! `config` and `lint`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::args::ConfigArgs;
use super::load::{sources, values};
use super::{Environment, Exit, Failure, Output};
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
    let sources = match sources(&args.config) {
        Ok(sources) => sources,
        // What is wrong with a config is the result, whatever it is.
        Err(failure) if failure.exit == Exit::Data => return Ok(refused(&failure.problems)),
        Err(failure) => return Err(failure),
    };
    let problems: Vec<String> = match sources.load_with(&functions, values(&args.config)) {
        Ok(settings) => {
            let names = settings.injector.known_names().join(", ");
            let policy = validate::policy(&settings.injector.rules.policy);
            let mut problems: Vec<String> = policy.into_iter().collect();
            problems.extend(settings.injector.ignored_selectors.iter().cloned());
            let warnings = settings.warnings.clone();
            problems.extend(validate::inject(&Injector::new(settings, Options::default())));
            if problems.is_empty() {
                let found = match warnings.len() {
                    0 => "no problem found".to_owned(),
                    count => format!("no error found, {count} warning{}", if count == 1 { "" } else { "s" }),
                };
                let text = format!("{found}; templates and aliases: {names}\n");
                let notes = warnings.iter().map(|warning| format!("warning: {warning}")).collect();
                return Ok(Output { text, notes, target: "-".to_owned(), ..Output::default() });
            }
            problems
        }
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    Ok(refused(&problems))
}

fn refused(problems: &[String]) -> Output {
    let notes = problems.iter().map(|problem| format!("error: {problem}")).collect();
    Output { notes, refused: true, target: "-".to_owned(), ..Output::default() }
}
