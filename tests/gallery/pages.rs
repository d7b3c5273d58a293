//! Pages generated from the rules and their reasons.

use istio_iptables::connections;
use istio_iptables::model::{Family, FamilyRules, Hook, Rule, Table, TableRules, Why};

use super::scenario::{Made, Scenario};

/// A rule with its place.
pub(crate) struct Placed<'a> {
    pub(crate) table: Table,
    pub(crate) chain: &'static str,
    pub(crate) rule: &'a Rule,
    /// Whether it is inserted before the existing rules of a shared chain.
    head: bool,
}

impl Placed<'_> {
    /// The line of the rules file.
    fn line(&self) -> String {
        let option = if self.head { "-I" } else { "-A" };
        format!("{option} {} {}", self.chain, self.rule.statement)
    }
}

/// All rules of a table, chain by chain, in the order in which a packet sees them.
fn placed(table: Table, rules: &TableRules) -> Vec<(&'static str, Vec<Placed<'_>>)> {
    let place = |chain, head| move |rule| Placed { table, chain, rule, head };
    let hooks = Hook::ALL.into_iter().filter_map(|hook| {
        let hooked = rules.hooks.get(&hook)?;
        let head = hooked.head.iter().map(place(hook.name(), true));
        let tail = hooked.tail.iter().map(place(hook.name(), false));
        Some((hook.name(), head.chain(tail).collect()))
    });
    let chains = rules
        .chains
        .iter()
        .map(|(chain, rules)| (chain.name(), rules.iter().map(place(chain.name(), false)).collect()));
    hooks.chain(chains).collect()
}

fn all(rules: &FamilyRules) -> impl Iterator<Item = Placed<'_>> {
    rules.tables.iter().flat_map(|(table, rules)| placed(*table, rules)).flat_map(|(_, rules)| rules)
}

/// `why.md` of a scenario.
pub(crate) fn why(scenario: &Scenario, made: &Made) -> String {
    let Scenario { name, title, purpose, .. } = scenario;
    let mut text = format!(
        "# {name}: {title}\n\n{purpose}\n\n```sh\n{}\n```\n\nLog output:\n\n```text\n{}\n```\n",
        scenario.command(),
        made.log.join("\n")
    );
    if let Some(commands) = made.commands() {
        text += &format!(
            "\nBesides rules, the program does over netlink what these commands of iproute2 do:\n\n```sh\n{commands}```\n"
        );
    }
    for (family, rules) in &made.rules {
        for (table, rules) in &rules.tables {
            text += &format!("\n## {family}, table {}\n", table.name());
            for (chain, rules) in placed(*table, rules) {
                text += &chain_section(chain, &rules);
            }
        }
    }
    text
}

fn chain_section(chain: &str, rules: &[Placed<'_>]) -> String {
    let mut text = format!("\n### {chain}\n\n");
    if rules.is_empty() {
        return text + "Empty.\n";
    }
    text += "| | rule | reason |\n|--|--|--|\n";
    for (number, Placed { rule, .. }) in rules.iter().enumerate() {
        let (slug, sentence) = (rule.why.slug(), rule.why.sentence());
        text += &format!(
            "| {} | `{}` | [{slug}](../../docs/rules.md#{slug}): {sentence} |\n",
            number + 1,
            rule.statement
        );
    }
    text
}

/// The table of scenarios in `rules/README.md`.
pub(crate) fn table(scenarios: &[(Scenario, Made)]) -> String {
    let mut text = "| scenario | shows | rules |\n|--|--|--|\n".to_owned();
    for (Scenario { name, title, .. }, made) in scenarios {
        let counts: Vec<String> =
            made.rules.values().map(|rules| format!("{} {}", rules.count(), rules.family)).collect();
        text += &format!("| [{name}]({name}/why.md) | {title} | {} |\n", counts.join(", "));
    }
    text
}

/// `docs/rules.md`.
///
/// # Panics
/// When a reason occurs in no scenario.
pub(crate) fn reasons(scenarios: &[(Scenario, Made)]) -> String {
    let mut text = "# Why each rule exists\n\n\
        Every rule that the program makes carries a reason: a short name that stays the same, and a sentence. These are all\n\
        of them, each with a rule that has it and the scenario of [the gallery](../rules/README.md) the rule is taken from, or\n\
        the moment at which it is live.\n\n\
        This page is made from the code by `make gallery` (`UPDATE_GALLERY=1 cargo test --test gallery`); a test fails when\n\
        it is out of date or when a reason occurs in no scenario.\n"
        .to_owned();
    for why in Why::ALL {
        let mut sentence = why.sentence().to_owned();
        sentence[..1].make_ascii_uppercase();
        let (line, place) = if let Some((scenario, family, example)) = example(scenarios, *why) {
            let place = format!("in [{scenario}](../rules/{scenario}/why.md)");
            (example.line(), format!("{family}, table {}, {place}", example.table.name()))
        } else {
            let plain = scenarios.iter().find(|(scenario, _)| scenario.name == "plain-sidecar");
            plain.and_then(|(_, plain)| temporary(plain, *why)).unwrap_or_else(|| {
                panic!("no scenario of rules/ has a rule with the reason {:?}", why.slug())
            })
        };
        text += &format!("\n## {}\n\n{sentence}.\n\n```text\n{line}\n```\n\n{place}.\n", why.slug());
    }
    text
}

/// A rule with this reason that is no part of any final rule set, and when it is live.
fn temporary(plain: &Made, why: Why) -> Option<(String, String)> {
    let rules = plain.rules.values().next()?;
    let moments = [
        (connections::exempting(rules), "while a pod with open connections is captured for the first time"),
        (
            connections::keep_translation(rules.family),
            "after a family lost its rules, or after clean-up with `--keep-connections`, until a run finds no connection that \
             needs it",
        ),
    ];
    moments.iter().find_map(|(rules, moment)| {
        let placed = all(rules).find(|placed| placed.rule.why == why)?;
        let place = format!("Each family, table {}, {moment}", placed.table.name());
        Some((placed.line(), place))
    })
}

/// A rule with this reason: out of the plain sidecar if that has one, else out of the first scenario that does.
fn example(scenarios: &[(Scenario, Made)], why: Why) -> Option<(&str, Family, Placed<'_>)> {
    let plain = scenarios.iter().filter(|(scenario, _)| scenario.name == "plain-sidecar");
    plain.chain(scenarios).find_map(|(scenario, made)| {
        made.rules.iter().find_map(|(family, rules)| {
            let placed = all(rules).find(|placed| placed.rule.why == why)?;
            Some((scenario.name.as_str(), *family, placed))
        })
    })
}
