//! The rule sets that `diff` compares: of options, read from files, or from the kernel.

use std::path::Path;

use crate::apply;
use crate::bundle;
use crate::cli;
use crate::config::{self, BackendChoice, CaptureConfig, DiffQuery, Intent, Output, RunOptions};
use crate::diff::{self, Conclusion, Side};
use crate::exit::Exit;
use crate::explain::Rules;
use crate::finding::Finding;
use crate::kernel::process::Host;
use crate::model::{Family, Network, PerFamily};
use crate::nft;
use crate::parse;
use crate::policy;
use crate::report::Failure;
use crate::text::one_line;

/// What rule sets are made of besides files.
#[derive(Debug)]
pub struct DiffContext {
    /// The rules of the options of this command line.
    pub intent: Intent,
    /// How they are carried out.
    pub run: RunOptions,
    /// The addresses of this namespace.
    pub network: Network,
}

/// Compares two rule sets. Returns the report, and the exit code: nothing but 0 means that they are equal.
///
/// # Errors
/// One of them cannot be read.
pub fn diff(host: &impl Host, query: &DiffQuery, context: &DiffContext) -> Result<(String, Exit), Failure> {
    let [a, b] = &query.sides;
    let sides = [side(host, a, query, context)?, side(host, b, query, context)?];
    let (report, conclusion) = diff::report(&sides, &context.network, query.output);
    let exit = match conclusion {
        Conclusion::Equal => Exit::Done,
        Conclusion::Different | Conclusion::NotProved => Exit::Different,
    };
    Ok((report, exit))
}

/// Compares the rules of the options with the live rules, without foreign rules, which `check` lists.
///
/// # Errors
/// The live rules cannot be read.
pub fn options_and_live(host: &impl Host, context: &DiffContext) -> Result<(String, Conclusion), Failure> {
    let wanted =
        of_options(Side::new("options".to_owned()), context.intent.clone(), context.run.backend, context);
    let live = apply::live::rules(host, context.run.backend)?.live;
    let live = live
        .rules
        .iter()
        .fold(Side::new("live".to_owned()), |side, (family, rules)| side.rules(*family, rules));
    Ok(diff::report(&[wanted, live], &context.network, Output::Text))
}

fn side(host: &impl Host, name: &str, query: &DiffQuery, context: &DiffContext) -> Result<Side, Failure> {
    match name {
        "options" => {
            Ok(of_options(Side::new(name.to_owned()), context.intent.clone(), context.run.backend, context))
        }
        "live" => live(host, context),
        path => of_file(host, path, query, context),
    }
}

fn of_options(side: Side, intent: Intent, backend: BackendChoice, context: &DiffContext) -> Side {
    let (config, _) = intent.decide(&context.network);
    let rules = rules(&config, backend);
    rules.iter().fold(side, |side, (family, rules)| side.rules(*family, rules))
}

/// The rules of a configuration, in the form that the backend gives them.
fn rules(config: &CaptureConfig, backend: BackendChoice) -> PerFamily<Rules> {
    let rules = policy::ruleset(config);
    let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
    if backend != BackendChoice::Nftables {
        return rules.iter().map(|(family, rules)| (*family, Rules::from(rules))).collect();
    }
    let tables = nft::tables(&rules).iter().map(nft::encode).collect();
    let live = nft::LiveTables::new(tables, Vec::new());
    Family::ALL.into_iter().map(|family| (family, Rules::native(&live, family))).collect()
}

fn sentences(found: &[Finding]) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

fn live(host: &impl Host, context: &DiffContext) -> Result<Side, Failure> {
    let live = apply::live::rules(host, context.run.backend)?.live;
    let mut side = Side::new("live".to_owned());
    let mut words = ["istio-iptables", "explain", "--live"].map(str::to_owned).to_vec();
    if let Some(namespace) = &context.run.network_namespace {
        words.extend(["--network-namespace".to_owned(), namespace.path().display().to_string()]);
    }
    side.explain = Some(words);
    let side = live.rules.iter().fold(side, |side, (family, rules)| side.rules(*family, rules));
    let side =
        live.rules.iter().fold(side, |side, (family, rules)| side.besides_of(*family, &rules.marking()));
    let side = live
        .foreign_routes
        .iter()
        .fold(side, |side, (family, found)| side.besides_of(*family, &sentences(found)));
    Ok(side.besides(&live.notices))
}

fn of_file(host: &impl Host, path: &str, query: &DiffQuery, context: &DiffContext) -> Result<Side, Failure> {
    let read = |path: &str| host.read_lossily(Path::new(path));
    let text = read(path).map_err(|error| {
        let hint = "name a file, or one of the words options and live";
        Failure::new(Exit::Usage, format!("{} cannot be read: {error}", one_line(path))).hint(hint)
    })?;
    let side = Side::new(path.to_owned());
    let begin = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    match begin.unwrap_or_default() {
        "" => saved(side, path, &text, &read),
        line if line.starts_with('{') => of_document(side, path, &text, query, context),
        line if line.starts_with("table ") => side
            .listed(&text)
            .map_err(|error| not_read(path, &format!("as output of nft list ruleset: {error}"))),
        line if line.starts_with('*') => saved(side, path, &text, &read),
        line => Err(not_read(path, &format!("it begins with `{}`", one_line(line)))),
    }
}

fn not_read(path: &str, what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{} cannot be read: {what}", one_line(path))).hint(
        "a rule set is a file of options (one JSON object, as for --config), the output of iptables-save, or that of \
         nft list ruleset (without -j)",
    )
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

fn of_document(
    mut side: Side,
    path: &str,
    text: &str,
    query: &DiffQuery,
    context: &DiffContext,
) -> Result<Side, Failure> {
    if text.trim_start_matches(|c: char| c == '{' || c.is_whitespace()).starts_with("\"nftables\"") {
        return Err(not_read(path, "it is JSON of nft"));
    }
    if bundle::is_bundle(text) {
        let what = "it is a bundle, which explain, check and show read with --bundle";
        return Err(not_read(path, what));
    }
    let bad = |messages: Vec<String>| {
        Failure::new(Exit::Usage, format!("bad options in {}", one_line(path))).detail(messages.join("\n"))
    };
    let raw = cli::parse_document(path, text)
        .map_err(|errors| bad(errors.iter().map(ToString::to_string).collect()))?;
    let resolved = config::resolve(&raw, &query.files)
        .map_err(|errors| bad(errors.iter().map(ToString::to_string).collect()))?;
    side.explain = Some(["istio-iptables", "explain", "--config", path].map(str::to_owned).to_vec());
    Ok(of_options(side, resolved.intent, resolved.run.backend, context))
}
