//! The pod as a picture: what is drawn for each direction of traffic.

use std::collections::BTreeSet;

use super::facts::{addresses, has_effect, port_words};
use super::lane::{BAD, ChainLine, Lane, Node, Text, Way};
use super::markup::Markup;
use super::{Kind, kinds};
use crate::explain::{ChainRule, LiveChain, PodReport, Row, Side, Verdict};
use crate::model::Port;

/// Most lines of one list in the picture. The tables have all of them.
const MOST: usize = 5;

/// Draws the two directions, and what the arrows are.
pub(super) fn picture(page: &mut Markup, report: &PodReport) {
    page.leaf("h2", &[], "The pod");
    page.element("figure", &[], |page| {
        page.element("div", &[("class", "lanes")], |page| {
            inbound(report).draw(page);
            outbound(report).draw(page);
        });
        page.element("figcaption", &[], |page| {
            for (class, words) in [("good", "captured"), ("past", "not captured"), ("bad", "a problem")] {
                page.element("span", &[], |page| {
                    page.element("svg", &[("viewBox", "0 0 26 10"), ("aria-hidden", "true")], |page| {
                        page.void("path", &[("d", "M1 5L25 5"), ("class", &format!("flow {class}"))]);
                    });
                    page.text(words);
                });
            }
            page.text("Rules of nat count the first packet of each connection.");
        });
    });
    page.line();
}

fn inbound(report: &PodReport) -> Lane {
    let of_pod = report.addresses.iter().filter(|own| own.is_of_pod());
    let source = Node { title: "Clients", lines: plain(addresses(of_pod)) };
    let destination = match &report.app_listeners {
        None => Node { title: "App", lines: plain(vec!["sockets cannot be listed".to_owned()]) },
        Some(found) if found.is_empty() => {
            Node { title: "App", lines: plain(vec!["no TCP listener".to_owned()]) }
        }
        Some(found) => {
            let words = found.iter().map(|found| format!("TCP {}, uid {}", found.address, found.uid));
            Node { title: "App", lines: plain(words.collect()) }
        }
    };
    lane(report, ("inbound", "Inbound"), Side::Outside, &["PREROUTING", "INPUT"], (source, destination))
}

fn outbound(report: &PodReport) -> Lane {
    let exempt = report.exempt.iter().filter(|process| process.is_proxy == Some(false));
    let exempt = exempt.map(|process| {
        let words = format!("{} {}, uid {}: not captured", process.pid, process.name, process.uid);
        Text { words, tone: BAD }
    });
    let source = Node { title: "App", lines: some(exempt.collect()) };
    let destination = Node { title: "Destination", lines: Vec::new() };
    lane(report, ("outbound", "Outbound"), Side::App, &["OUTPUT", "POSTROUTING"], (source, destination))
}

fn lane(
    report: &PodReport,
    (id, title): (&'static str, &'static str),
    sender: Side,
    hooks: &[&'static str],
    (source, destination): (Node, Node),
) -> Lane {
    // Packets for foreign rules, if something is wrong with them, come first.
    let rows = report.probes.iter().chain(&report.traffic).filter(|row| row.sender == sender);
    let rows: Vec<&Row> = rows.collect();
    let kinds = kinds(rows.iter().copied());
    let way = |title, of: WayOf| {
        let here = kinds.iter().filter(|kind| way_of(kind.row.verdict) == of);
        let texts = here.map(|Kind { row, name }| {
            let tone = if row.is_unexpected() { BAD } else { "" };
            // The others have one outcome each.
            let outcome =
                if of == WayOf::Lost { format!("{}: ", row.verdict.outcome()) } else { String::new() };
            Text { words: [&outcome, name.as_str()].concat(), tone }
        });
        Way { title, kinds: some(texts.collect()) }
    };
    let captured = way("captured", WayOf::Captured);
    let direct = way("not captured", WayOf::Direct);
    let lost = way("lost", WayOf::Lost);
    let chains: Vec<ChainLine> = hooks.iter().flat_map(|hook| at_hook(report, hook)).collect();
    let mut description = format!("Traffic of {title}");
    for way in [&captured, &direct, &lost] {
        let kinds: Vec<&str> = way.kinds.iter().map(|kind| kind.words.as_str()).collect();
        if !kinds.is_empty() {
            description += &format!("; {}: {}", way.title, kinds.join(", "));
        }
    }
    for line in &chains {
        if let ChainLine::Foreign { rule: Text { words, .. }, .. } = line {
            description += &format!("; foreign rule: {words}");
        }
    }
    let proxy = proxy(report, &rows);
    Lane { id, title, description, source, chains, lost, captured, direct, proxy, destination }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WayOf {
    Captured,
    Direct,
    Lost,
}

/// The arrow for a verdict.
const fn way_of(verdict: Verdict) -> WayOf {
    match verdict {
        Verdict::Captured(_) | Verdict::ToProxySocket => WayOf::Captured,
        Verdict::LikeItsConnection | Verdict::NotCaptured | Verdict::TakenByForeignRule => WayOf::Direct,
        Verdict::Dropped | Verdict::Misrouted | Verdict::NoRoute => WayOf::Lost,
    }
}

/// The ports of the proxy that take this traffic.
fn proxy(report: &PodReport, rows: &[&Row]) -> Node {
    let ports: Vec<Port> = rows
        .iter()
        .filter_map(|row| if let Verdict::Captured(port) = row.verdict { Some(port) } else { None })
        .collect();
    let mut lines: Vec<Text> = Vec::new();
    for port in report.proxy_ports.iter().filter(|port| ports.contains(&port.port)) {
        let (words, tone) = (port_words(port), if port.problem.is_some() { BAD } else { "" });
        if !lines.iter().any(|known| known.words == words) {
            lines.push(Text { words, tone });
        }
    }
    Node { title: "Proxy", lines: some(lines) }
}

fn plain(words: Vec<String>) -> Vec<Text> {
    some(words.into_iter().map(|words| Text { words, tone: "soft" }).collect())
}

/// As many as there is room for; those with a problem first if there are more.
fn some(mut texts: Vec<Text>) -> Vec<Text> {
    if texts.len() > MOST {
        texts.sort_by_key(|text| text.tone != BAD);
        let more = texts.len() + 1 - MOST;
        texts.truncate(MOST - 1);
        texts.push(Text { words: format!("and {more} more, below"), tone: "soft" });
    }
    texts
}

/// The chains at a hook, those of both families as one.
fn at_hook(report: &PodReport, hook: &'static str) -> Vec<ChainLine> {
    let is_here = |chain: &&LiveChain| chain.hook == Some(hook) && has_effect(chain);
    let mut chains: Vec<Vec<&LiveChain>> = Vec::new();
    for chain in report.chains.iter().filter(is_here) {
        let name = |chain: &LiveChain| (chain.table.clone(), chain.chain.clone());
        let same =
            chains.iter_mut().find(|same| same.first().is_some_and(|known| name(known) == name(chain)));
        match same {
            Some(same) => same.push(chain),
            None => chains.push(vec![chain]),
        }
    }
    let heading = (!chains.is_empty()).then_some(ChainLine::Hook(hook));
    heading.into_iter().chain(chains.iter().flat_map(|same| lines_of(same))).collect()
}

/// The number of packets that rules have counted; empty if a counter cannot be read.
fn matched<'a>(rules: impl Iterator<Item = &'a ChainRule>) -> String {
    let packets: Option<u64> = rules.map(|rule| rule.counts.map(|counts| counts.packets)).sum();
    packets.map_or_else(String::new, |packets| format!("matched {packets}"))
}

/// A chain with its foreign rules, where they stand.
fn lines_of(same: &[&LiveChain]) -> Vec<ChainLine> {
    let Some(first) = same.first() else { return Vec::new() };
    let counts: BTreeSet<usize> = same.iter().map(|chain| chain.rules.len()).collect();
    let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
    let unit = if counts == ["1"] { "rule" } else { "rules" };
    let mut counted = vec![format!("{} {unit}", counts.join("/"))];
    if counts != ["0"] {
        counted.push(matched(same.iter().flat_map(|chain| &chain.rules)));
    }
    counted.push(if first.drops { "policy DROP".to_owned() } else { String::new() });
    counted.retain(|words| !words.is_empty());
    let name = format!("{} {}", first.table, first.chain);
    let mut lines = vec![ChainLine::Chain { name, counted: counted.join(", "), drops: first.drops }];
    let mut foreign: Vec<(Text, Vec<&ChainRule>)> = Vec::new();
    for chain in same {
        let first_of_ours = chain.rules.iter().position(|rule| rule.why.is_some());
        for (number, rule) in chain.rules.iter().enumerate().filter(|(_, rule)| rule.why.is_none()) {
            let place = match first_of_ours {
                None => "",
                Some(ours) if number < ours => "before ours: ",
                Some(_) => "after ours: ",
            };
            let (words, tone) = ([place, &rule.words].concat(), if rule.is_cause { BAD } else { "warn" });
            match foreign.iter_mut().find(|(known, _)| known.words == words && known.tone == tone) {
                Some((_, rules)) => rules.push(rule),
                None => foreign.push((Text { words, tone }, vec![rule])),
            }
        }
    }
    let hidden = foreign.len().saturating_sub(MOST);
    foreign.sort_by_key(|(text, _)| hidden > 0 && text.tone != BAD);
    let shown = foreign.into_iter().take(MOST);
    lines.extend(shown.map(|(rule, rules)| ChainLine::Foreign { rule, counted: matched(rules.into_iter()) }));
    if hidden > 0 {
        let rule = Text { words: format!("and {hidden} more foreign rules, below"), tone: "warn" };
        lines.push(ChainLine::Foreign { rule, counted: String::new() });
    }
    lines
}
