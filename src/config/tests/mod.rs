//! Parsing of options into settings: results, errors and messages.

mod families;
mod istio;
mod refusals;
mod settings;
mod warnings;

use std::ffi::OsString;
use std::io;

use super::*;
use crate::cli::{self, Outcome, RawOptions};
use crate::facts::Files;

/// The options of a command line and of variables (`NAME=value`).
fn raw_of(words: &[&str], variables: &[&str]) -> RawOptions {
    let args = std::iter::once("istio-iptables").chain(words.iter().copied());
    let env = variables.iter().filter_map(|variable| variable.split_once('='));
    let outcome = cli::parse(
        args.map(OsString::from),
        env.map(|(name, value)| (name.into(), value.into())),
        &mut io::empty(),
        &|_| Err(io::ErrorKind::NotFound.into()),
    );
    match outcome {
        Ok(Outcome::Run(raw)) => raw,
        other => panic!("{other:?}"),
    }
}

fn files() -> Files {
    Files {
        passwd: "root:x:0:0::/:\nistio-proxy:x:1234:77::/:\nenvoy:x:555:555::/:\n".to_owned(),
        group: "root:x:0:\nadm:x:4:\nusers:x:100:\n".to_owned(),
        resolv_conf: Ok("nameserver 10.96.0.10\nnameserver fd00::a\n".to_owned()),
    }
}

fn resolved_of(words: &[&str], variables: &[&str]) -> Resolved {
    resolve(&raw_of(words, variables), &files())
        .unwrap_or_else(|errors| panic!("{words:?} {variables:?}: {errors:?}"))
}

fn intent(words: &[&str]) -> Intent {
    resolved_of(words, &[]).intent
}

fn errors_of(words: &[&str], variables: &[&str]) -> Vec<String> {
    match resolve(&raw_of(words, variables), &files()) {
        Ok(resolved) => panic!("{words:?} {variables:?} is accepted: {resolved:?}"),
        Err(errors) => errors.iter().map(ConfigError::to_string).collect(),
    }
}

fn warnings_of(words: &[&str], variables: &[&str]) -> Vec<String> {
    let resolved = resolved_of(words, variables);
    resolved.warnings.iter().map(Warning::to_string).collect()
}
