//! The parts of a page for the second look: notes, rules, and facts about the pod.

use std::collections::{BTreeMap, BTreeSet};

use super::markup::Markup;
use super::{cell, families, table};
use crate::explain::{ChainRule, LiveChain, NEVER_CAPTURED, PodReport, ProxyPort};
use crate::model::InterfaceAddress;

/// What else may decide.
pub(super) fn notes(page: &mut Markup, report: &PodReport) {
    if report.notes.is_empty() {
        return;
    }
    page.leaf("h2", &[], "Notes");
    page.element("ul", &[], |page| {
        for note in &report.notes {
            page.element("li", &[], |page| page.sentence(note));
        }
    });
}

/// Whether packets may meet something in a chain.
pub(super) const fn has_effect(chain: &LiveChain) -> bool {
    chain.drops || !chain.rules.is_empty()
}

/// Every live rule, with its reason and its counters.
pub(super) fn rules(page: &mut Markup, report: &PodReport) {
    // A chain that packets reach from two hooks is listed once.
    let mut listed = BTreeSet::new();
    let is_first = |chain: &&LiveChain| {
        let name = (chain.family, chain.table.clone(), chain.chain.clone());
        has_effect(chain) && listed.insert(name)
    };
    let chains: Vec<&LiveChain> = report.chains.iter().filter(is_first).collect();
    let count: usize = chains.iter().map(|chain| chain.rules.len()).sum();
    if count == 0 {
        return;
    }
    page.element("details", &[], |page| {
        page.element("summary", &[], |page| {
            page.leaf("h2", &[], &format!("Rules and their reasons ({count})"))
        });
        for chain in chains {
            rules_of(page, chain);
        }
    });
    page.line();
}

fn rules_of(page: &mut Markup, chain: &LiveChain) {
    let LiveChain { family, table: of, chain: name, drops, hook, rules } = chain;
    let policy = if *drops { ", policy DROP" } else { "" };
    let unused = if hook.is_none() { ", no rule jumps here" } else { "" };
    let title = format!("{of} {name} ({family}{policy}{unused})");
    page.leaf("h3", &[("class", "code")], &title);
    let titles = [("Rule", ""), ("Packets", "number"), ("Reason", "")];
    table(page, &title, &titles, |page| {
        for rule in rules {
            let ChainRule { words, why, is_cause, counts, more } = rule;
            let foreign = if why.is_none() { "foreign " } else { "" };
            let cause = if *is_cause { "bad " } else { "" };
            let never = if counts.is_some_and(|counts| counts.packets == 0) { "never" } else { "" };
            page.element(
                "tr",
                &[("role", "row"), ("class", [foreign, cause, never].concat().trim())],
                |page| {
                    let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
                    cell(page, "code", |page| page.text(&[words.as_str(), &more].concat()));
                    let packets = counts.map_or_else(|| "?".to_owned(), |counts| counts.packets.to_string());
                    cell(page, "number", |page| page.text(&packets));
                    cell(page, "wide last", |page| match why {
                        Some(why) => page.sentence(why.sentence()),
                        None => page.text("rule of another program"),
                    });
                },
            );
        }
    });
}

/// Listeners, processes, connections and addresses.
pub(super) fn facts(page: &mut Markup, report: &PodReport) {
    page.element("details", &[], |page| {
        page.element("summary", &[], |page| page.leaf("h2", &[], "Facts about the pod"));
        page.element("dl", &[], |page| {
            let mut fact = |name: &str, texts: Vec<String>| {
                for (number, text) in texts.iter().enumerate() {
                    page.leaf("dt", &[], if number == 0 { name } else { "" });
                    page.leaf("dd", &[], text);
                }
            };
            fact("Addresses", addresses(report.addresses.iter()));
            fact("Listeners of the proxy", ports(report));
            let app = report.app_listeners.iter().flatten();
            let app = app.map(|found| format!("TCP {}, uid {}", found.address, found.uid)).collect();
            fact("Other TCP listeners", app);
            let exempt = report.exempt.iter().map(|process| {
                format!("{} {}, uid {}, gid {}", process.pid, process.name, process.uid, process.gid)
            });
            fact("Processes with a uid or gid of the proxy", exempt.collect());
            let older = report.older.iter().map(|connection| {
                format!("{} with {}, uid {}", connection.local, connection.remote, connection.uid)
            });
            fact("Connections older than capture", older.collect());
        });
        page.leaf("p", &[("class", "soft")], NEVER_CAPTURED);
    });
}

/// The addresses of each interface.
pub(super) fn addresses<'a>(addresses: impl Iterator<Item = &'a InterfaceAddress>) -> Vec<String> {
    let mut interfaces: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for own in addresses {
        interfaces.entry(&own.interface).or_default().push(own.address.to_string());
    }
    interfaces.iter().map(|(name, addresses)| format!("{name}: {}", addresses.join(", "))).collect()
}

/// The ports of the proxy, those of both families as one.
fn ports(report: &PodReport) -> Vec<String> {
    let mut ports: Vec<(String, BTreeSet<_>)> = Vec::new();
    for port in &report.proxy_ports {
        let words = port_words(port);
        match ports.iter_mut().find(|(known, _)| *known == words) {
            Some((_, of)) => _ = of.insert(port.family),
            None => ports.push((words, BTreeSet::from([port.family]))),
        }
    }
    ports.iter().map(|(words, of)| format!("{words} ({})", families(of))).collect()
}

/// A port of the proxy with its listener, or what is wrong with it.
pub(super) fn port_words(port: &ProxyPort) -> String {
    let ProxyPort { name, transport, port, listener, problem, .. } = port;
    let listens = listener.map(|found| format!("uid {}", found.uid));
    let state = problem.as_ref().map(ToString::to_string).or(listens).unwrap_or_default();
    format!("{name} {port} {}: {state}", transport.name().to_uppercase())
}
