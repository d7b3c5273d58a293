//! The rule sets that `diff` compares: of options, from files, from bundles or from the kernel.

use std::path::Path;

use super::bundle::file::{self, Bundle};
use crate::apply;
use crate::cli;
use crate::config::{self, BackendChoice, CaptureConfig, DiffQuery, Intent, Output, RunOptions};
use crate::diff::{self, Conclusion, Side};
use crate::exit::Exit;
use crate::explain::Rules;
use crate::kernel::process::Host;
use crate::kernel::recording;
use crate::model::{Backend, Family, Network, PerFamily, Variant};
use crate::parse;
use crate::policy;
use crate::report::Failure;
use crate::text::one_line;

/// What rule sets are made of besides files.
#[derive(Debug)]
pub(super) struct DiffContext {
    /// The rules of the options of this command line.
    pub intent: Intent,
    /// How they are carried out.
    pub run: RunOptions,
    /// Reads the addresses of this namespace, or of the bundle that is replayed.
    pub network: fn() -> Result<Network, Failure>,
}

/// A rule set, as far as it is known before addresses are.
enum Input {
    Options(Box<Intent>, BackendChoice),
    /// With the addresses of its machine, if that is another one.
    Rules(Option<Network>),
}

/// Compares two rule sets. Returns the report, and the exit code: nothing but 0 means that they are equal.
///
/// # Errors
/// One of them cannot be read.
pub(super) fn diff(
    host: &impl Host,
    query: &DiffQuery,
    context: &DiffContext,
) -> Result<(String, Exit), Failure> {
    let [a, b] = &query.sides;
    let read = [input(host, a, query, context)?, input(host, b, query, context)?];
    let recorded = read.iter().find_map(|(_, input)| match input {
        Input::Rules(network) => network.clone(),
        Input::Options(..) => None,
    });
    // Options are compared with a bundle as if they were given in its pod.
    let network = recorded.map_or_else(context.network, Ok)?;
    let sides = read.map(|(side, input)| match input {
        Input::Options(intent, backend) => of_options(side, *intent, backend, &network),
        Input::Rules(_) => side,
    });
    let (report, conclusion) = diff::report(&sides, &network, query.output);
    let exit = match conclusion {
        Conclusion::Equal => Exit::Done,
        Conclusion::Different | Conclusion::NotProved => Exit::Different,
    };
    Ok((report, exit))
}

/// Compares the rules of the options with the live rules, without tables of other programs, which `check`
/// lists.
///
/// # Errors
/// The live rules cannot be read.
pub(super) fn options_and_live(
    host: &impl Host,
    context: &DiffContext,
) -> Result<(String, Conclusion), Failure> {
    let network = (context.network)()?;
    let wanted =
        of_options(Side::new("options".to_owned()), context.intent.clone(), context.run.backend, &network);
    let live = apply::live_inspection::rules(host, context.run.backend)?.live;
    let live = live.rules.iter().fold(Side::new("live".to_owned()), |side, (family, rules)| {
        side.rules(*family, &rules.without_other_tables())
    });
    Ok(diff::report(&[wanted, live], &network, Output::Text))
}

fn input(
    host: &impl Host,
    name: &str,
    query: &DiffQuery,
    context: &DiffContext,
) -> Result<(Side, Input), Failure> {
    let side = Side::new(name.to_owned());
    match name {
        "options" => Ok((side, Input::Options(Box::new(context.intent.clone()), context.run.backend))),
        "live" => {
            let mut explain = vec!["--live".to_owned()];
            if let Some(namespace) = &context.run.network_namespace {
                explain.extend(["--network-namespace".to_owned(), namespace.path().display().to_string()]);
            }
            Ok((live(host, side, context.run.backend, &explain)?, Input::Rules(None)))
        }
        path => of_file(host, path, query, context),
    }
}

fn of_options(side: Side, intent: Intent, backend: BackendChoice, network: &Network) -> Side {
    let (config, _) = intent.decide(network);
    let rules = rules(&config, backend);
    rules.iter().fold(side, |side, (family, rules)| side.rules(*family, rules))
}

/// The rules of a configuration, in the form that the backend gives them.
fn rules(config: &CaptureConfig, backend: BackendChoice) -> PerFamily<Rules> {
    let rules = policy::ruleset(config);
    let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
    let backend = match backend {
        BackendChoice::Nftables => Backend::Native,
        BackendChoice::Auto
        | BackendChoice::Iptables
        | BackendChoice::IptablesLegacy
        | BackendChoice::IptablesNft => Backend::Iptables(Variant::Nft),
    };
    Rules::in_form_of(backend, &rules)
}

/// The command line of `explain` for a side, without the packet.
fn explain(args: &[String]) -> Vec<String> {
    ["istio-iptables", "explain"].map(str::to_owned).iter().chain(args).cloned().collect()
}

/// The rules in the kernel, or in the bundle that is replayed.
fn live(host: &impl Host, mut side: Side, backend: BackendChoice, args: &[String]) -> Result<Side, Failure> {
    let live = apply::live_inspection::rules(host, backend)?.live;
    side.explain = Some(explain(args));
    let side = live.rules.iter().fold(side, |side, (family, rules)| side.rules(*family, rules));
    let side = live.foreign_routes.iter().fold(side, |side, (family, found)| {
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        side.besides_of(*family, &found)
    });
    Ok(side.besides(&live.unevaluated))
}

fn of_file(
    host: &impl Host,
    path: &str,
    query: &DiffQuery,
    context: &DiffContext,
) -> Result<(Side, Input), Failure> {
    let read = |path: &str| host.read_lossily(Path::new(path));
    let text = read(path).map_err(|error| {
        let hint = "name a file, or one of the words options and live";
        Failure::new(Exit::Usage, format!("{} cannot be read: {error}", one_line(path))).hint(hint)
    })?;
    let side = Side::new(path.to_owned());
    let begin = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    match begin.unwrap_or_default() {
        line if line.starts_with('{') && file::is_bundle(&text) => of_bundle(host, side, text, context),
        line if line.starts_with('{') => of_document(side, &text, query),
        line if line.starts_with("table ") => Err(of_nft(path)),
        line if line.is_empty() || line.starts_with('*') => {
            saved(side, path, &text, &read).map(|side| (side, Input::Rules(None)))
        }
        line => Err(not_read(path, &format!("it begins with `{}`", one_line(line)))),
    }
}

fn not_read(path: &str, what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{} cannot be read: {what}", one_line(path))).hint(
        "a rule set is a file of options (one JSON object, as for --config), the output of iptables-save, or a bundle \
         (`istio-iptables bundle > FILE`)",
    )
}

/// `nft` does not list all that a rule tests.
fn of_nft(path: &str) -> Failure {
    let what = "it is output of nft: a bundle, output of iptables-save or options are accepted";
    Failure::new(Exit::Usage, format!("{} cannot be read: {what}", one_line(path))).hint(
        "write the rules of nftables on that machine with `istio-iptables bundle > FILE`, and name that file",
    )
}

/// The live rules of the machine on which a bundle was made.
fn of_bundle(
    host: &impl Host,
    side: Side,
    text: String,
    context: &DiffContext,
) -> Result<(Side, Input), Failure> {
    let path = side.name.clone();
    let Bundle { options, files, facts } = file::read(&path, Ok(text))?;
    let mut raw = cli::RawOptions::default();
    raw.complete(options);
    let resolved = config::resolve(&raw, &files).map_err(|errors| bad_options(&path, &errors))?;
    recording::replay(facts);
    let args = ["--bundle".to_owned(), path.clone()];
    let read = live(host, side, resolved.run.backend, &args)
        .and_then(|side| Ok((side, Input::Rules(Some((context.network)()?)))));
    let missing = recording::missing();
    let _ = recording::finish();
    missing.map_or(read, |fact| Err(file::lacks(&path, &fact)))
}

fn bad_options<E: ToString>(path: &str, errors: &[E]) -> Failure {
    let messages: Vec<_> = errors.iter().map(E::to_string).collect();
    Failure::new(Exit::Usage, format!("bad options in {}", one_line(path))).detail(messages.join("\n"))
}

fn saved(
    side: Side,
    path: &str,
    text: &str,
    read: &impl Fn(&str) -> std::io::Result<String>,
) -> Result<Side, Failure> {
    let of = |path: &str, text: &str, first: Family| {
        diff::by_family(text, first).map_err(|problem| not_read(path, &one_line(&problem)))
    };
    let mut texts = of(path, text, Family::V4)?;
    let v6 = format!("{path}.v6");
    match read(&v6) {
        Ok(text) => texts.extend(of(&v6, &text, Family::V6)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(not_read(&v6, &error.to_string())),
    }
    if texts.is_empty() {
        texts.insert(Family::V4, String::new());
    }
    Ok(texts.into_iter().fold(side, |side, (family, text)| side.saved(&parse::iptables_save(family, &text))))
}

fn of_document(mut side: Side, text: &str, query: &DiffQuery) -> Result<(Side, Input), Failure> {
    let path = side.name.clone();
    if text.trim_start_matches(|c: char| c == '{' || c.is_whitespace()).starts_with("\"nftables\"") {
        return Err(of_nft(&path));
    }
    let raw = cli::parse_document(&path, text).map_err(|errors| bad_options(&path, &errors))?;
    let resolved = config::resolve(&raw, &query.files).map_err(|errors| bad_options(&path, &errors))?;
    side.explain = Some(explain(&["--config".to_owned(), path]));
    Ok((side, Input::Options(Box::new(resolved.intent), resolved.run.backend)))
}
