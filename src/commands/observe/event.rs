//! What `observe` reports, as lines of text or JSON, and the summary.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};

use super::observer::Observed;
use crate::config::{ObserveOptions, Output};
use crate::explain::{Judgement, Verdict};
use crate::kernel::conntrack::Entry;
use crate::kernel::terminal;
use crate::report::Failure;
use crate::text::{count, one_line};

/// Most groups of the summary.
const MOST_GROUPS: usize = 1000;

/// Which connections are reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter {
    uncaptured: bool,
    to: Option<IpNetwork>,
    port: Option<u16>,
    /// How many.
    pub(super) count: Option<u64>,
}

impl Filter {
    pub(super) const fn of(options: &ObserveOptions) -> Self {
        let ObserveOptions { uncaptured, to, port, count, lasts: _, output: _ } = *options;
        Self { uncaptured, to, port, count }
    }

    pub(super) fn admits_entry(&self, entry: &Entry) -> bool {
        let to = entry.original.destination;
        self.port.is_none_or(|port| port == to.port()) && self.to.is_none_or(|range| range.contains(to.ip()))
    }

    pub(super) fn admits(&self, connection: &Observed) -> bool {
        !self.uncaptured || (!is_captured(connection.judgement.verdict) && !connection.is_of_proxy)
    }
}

const fn is_captured(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Captured(_) | Verdict::ToProxySocket => true,
        Verdict::Dropped
        | Verdict::LikeItsConnection
        | Verdict::Misrouted
        | Verdict::NoRoute
        | Verdict::NotCaptured
        | Verdict::TakenByForeignRule => false,
    }
}

/// Connections with one verdict, decided by one rule or option.
#[derive(Debug)]
struct Group {
    is_of_proxy: bool,
    verdict: Verdict,
    decided_by: String,
    number: u64,
    /// The first of them, as a line.
    first: String,
    json: Map<String, Value>,
}

/// Standard output.
#[derive(Debug)]
pub(super) struct Printer {
    output: Output,
    /// What is not written yet.
    pending: String,
    number: u64,
    captured: u64,
    of_proxy: u64,
    lost: u64,
    is_incomplete: bool,
    groups: Vec<Group>,
}

impl Printer {
    pub(super) const fn new(output: Output) -> Self {
        Self {
            output,
            pending: String::new(),
            number: 0,
            captured: 0,
            of_proxy: 0,
            lost: 0,
            is_incomplete: false,
            groups: Vec::new(),
        }
    }

    /// Reports that connections are reported from now on.
    pub(super) fn begin(&mut self, rules: &str) -> Result<(), Failure> {
        match self.output {
            Output::Text => {
                log::info!("new connections are reported from now on; rules: {rules}");
                Ok(())
            }
            Output::Json => {
                self.pending += &format!("{}\n", json!({ "event": "observing", "rules": rules }));
                self.flush()
            }
        }
    }

    /// Reports a connection. Returns whether it is the last of this many.
    pub(super) fn connection(&mut self, one: &Observed, most: Option<u64>) -> Result<bool, Failure> {
        self.pending += &match self.output {
            Output::Text => line(one),
            Output::Json => format!("{}\n", as_json(one)),
        };
        self.number += 1;
        self.of_proxy += u64::from(one.is_of_proxy);
        self.captured += u64::from(is_captured(one.judgement.verdict) && !one.is_of_proxy);
        let judgement = &one.judgement;
        let (is_of_proxy, decided_by) = (one.is_of_proxy, judgement.decided_by());
        let is_its = |group: &&mut Group| {
            group.is_of_proxy == is_of_proxy
                && group.verdict == judgement.verdict
                && group.decided_by == decided_by
        };
        if let Some(group) = self.groups.iter_mut().find(is_its) {
            group.number += 1;
        } else if self.groups.len() < MOST_GROUPS {
            let (verdict, first, json) =
                (judgement.verdict, judgement.headline.clone(), judgement.json.clone());
            self.groups.push(Group { is_of_proxy, verdict, decided_by, number: 1, first, json });
        }
        let is_last = most.is_some_and(|most| self.number >= most);
        if is_last {
            self.flush()?;
        }
        Ok(is_last)
    }

    /// Reports lost notices of new connections: their number, if known, and the cause.
    pub(super) fn lost(&mut self, number: Option<u32>, cause: &str) -> Result<(), Failure> {
        self.is_incomplete = true;
        self.lost += u64::from(number.unwrap_or_default());
        match self.output {
            Output::Text => {
                let number = number.map_or_else(|| "some".to_owned(), |number| number.to_string());
                log::warn!("{number} new connections are not reported: {cause}");
                Ok(())
            }
            Output::Json => {
                self.pending +=
                    &format!("{}\n", json!({ "event": "lost", "number": number, "cause": cause }));
                self.flush()
            }
        }
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let text = std::mem::take(&mut self.pending);
        terminal::show(&text, false).map_err(|error| Failure::no_output(&error))
    }

    /// The groups, without the code of a sort.
    fn largest_first(&self) -> Vec<&Group> {
        let mut left: Vec<&Group> = self.groups.iter().collect();
        let mut sorted = Vec::with_capacity(left.len());
        while let Some((at, _)) = left.iter().enumerate().rev().max_by_key(|(_, group)| group.number) {
            sorted.push(left.remove(at));
        }
        sorted
    }

    /// The numbers of each verdict and of what decided.
    pub(super) fn summary(&mut self) -> Result<(), Failure> {
        let groups = self.largest_first();
        let uncaptured = self.number - self.captured - self.of_proxy;
        self.pending = match self.output {
            Output::Json => {
                let group = |Group { is_of_proxy, number, json, .. }: &Group| {
                    let mut json = json.clone();
                    json.insert("of_proxy".to_owned(), (*is_of_proxy).into());
                    json.insert("connections".to_owned(), (*number).into());
                    Value::Object(json)
                };
                let groups: Vec<_> = groups.into_iter().map(group).collect();
                let lost = if self.is_incomplete && self.lost == 0 { Value::Null } else { self.lost.into() };
                let summary = json!({
                    "event": "summary", "connections": self.number, "captured": self.captured,
                    "not_captured": uncaptured, "of_proxy": self.of_proxy, "lost": lost, "by": groups,
                });
                format!("{summary}\n")
            }
            Output::Text => {
                let number = count(usize::try_from(self.number).unwrap_or(usize::MAX), "connection");
                let lost = match (self.is_incomplete, self.lost) {
                    (false, _) => String::new(),
                    (true, 0) => ", some are not reported".to_owned(),
                    (true, lost) => format!(", {lost} are not reported"),
                };
                let (captured, of_proxy) = (self.captured, self.of_proxy);
                let mut text = format!(
                    "\n{number}: {captured} captured, {uncaptured} not captured, {of_proxy} of the proxy{lost}\n"
                );
                for Group { is_of_proxy, decided_by, number, first, .. } in groups {
                    let who = if *is_of_proxy { "the proxy: " } else { "" };
                    text += &format!("{number:>7}  {who}{}\n", one_line(first));
                    if !decided_by.is_empty() {
                        text += &format!("         {}\n", one_line(decided_by));
                    }
                }
                text
            }
        };
        self.flush()
    }
}

fn line(one: &Observed) -> String {
    let Observed { time, entry, judgement, .. } = one;
    let time = humantime::format_rfc3339_millis(*time);
    let (from, to) = (entry.original.source, entry.original.destination);
    let headline = one_line(&judgement.headline);
    let by = by(judgement);
    format!("{time}  {}  {from} > {to}  {}  {headline}{by}\n", entry.transport.name(), who(one))
}

/// The rule and the option that decided over a connection that is not captured.
fn by(judgement: &Judgement) -> String {
    let Judgement { verdict, rule, option, .. } = judgement;
    let rule = rule.iter().map(|rule| format!("; rule: {}", one_line(rule)));
    let option = option.iter().map(|option| format!("; option: {option}"));
    if is_captured(*verdict) { String::new() } else { rule.chain(option).collect() }
}

/// The sender: a process, a user, or what else is known.
fn who(one: &Observed) -> String {
    let proxy = if one.is_of_proxy { "proxy: " } else { "" };
    match &one.owner {
        _ if !one.is_outbound => "from outside".to_owned(),
        None if one.is_of_proxy => "proxy".to_owned(),
        None => "unknown process".to_owned(),
        Some(owner) => match &owner.process {
            Some(process) => {
                format!("{proxy}{} (pid {}, uid {})", one_line(&process.name), process.pid, owner.uid)
            }
            None => format!("{proxy}uid {}", owner.uid),
        },
    }
}

fn as_json(one: &Observed) -> Value {
    let Observed { time, entry, owner, is_outbound, is_of_proxy, judgement } = one;
    let mut object = judgement.json.clone();
    let process = owner.as_ref().and_then(|owner| owner.process.as_ref());
    let process = process.map(
        |process| json!({ "pid": process.pid, "name": process.name, "uid": process.uid, "gid": process.gid }),
    );
    let more = [
        ("event", "connection".into()),
        ("time", humantime::format_rfc3339_millis(*time).to_string().into()),
        ("protocol", entry.transport.name().into()),
        ("from", entry.original.source.to_string().into()),
        ("to", entry.original.destination.to_string().into()),
        ("direction", direction(*is_outbound, entry.original.destination.ip()).into()),
        ("process", process.unwrap_or_default()),
        ("uid", owner.as_ref().map(|owner| owner.uid).into()),
        ("of_proxy", (*is_of_proxy).into()),
        ("explained", judgement.is_explained.into()),
    ];
    object.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(object)
}

const fn direction(is_outbound: bool, to: IpAddr) -> &'static str {
    match is_outbound {
        true if to.is_loopback() => "local",
        true => "outbound",
        false => "inbound",
    }
}
