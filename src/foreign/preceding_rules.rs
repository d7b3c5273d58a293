//! A foreign rule, or policy, that decides before ours or may do so, and what is said about it.

use std::fmt;

use super::{AcceptedPorts, DEEPEST, shown};
use crate::finding::{Finding, Problem, RuleId, Subject};
use crate::live_rules::{Field, FieldMatch, LiveRule};
use crate::model::{Family, Hook, Table, Variant};
use crate::parse::UNREADABLE;

/// Most targets of one chain that are listed.
const MOST: usize = 4;

/// What decides, in a chain of iptables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A rule of this chain.
    Rule(&'static str, Box<LiveRule>),
    /// The policy DROP of this chain.
    Policy(&'static str),
}

impl Found {
    pub(super) fn rule(chain: &'static str, rule: &LiveRule) -> Self {
        Self::Rule(chain, Box::new(rule.clone()))
    }

    fn rule_id(&self, table: &str) -> Option<RuleId> {
        let Self::Rule(chain, rule) = self else { return None };
        Some(RuleId::of(table, chain, rule))
    }

    const fn chain(&self) -> &'static str {
        match self {
            Self::Rule(chain, _) | Self::Policy(chain) => chain,
        }
    }

    /// Whether it is a rule without tests.
    fn is_for_all(&self) -> bool {
        matches!(self, Self::Rule(_, rule) if rule.is_for_all())
    }

    fn has_test(&self, wanted: impl Fn(&FieldMatch) -> bool) -> bool {
        matches!(self, Self::Rule(_, rule) if rule.tests().iter().any(wanted))
    }

    pub(super) fn is_for_tcp(&self) -> bool {
        self.has_test(|test| {
            test.field == Field::Protocol && test.holds_for_any(&[6]) && !test.holds_for_any(&[17])
        })
    }

    pub(super) fn tests_source_type(&self) -> bool {
        self.has_test(|test| matches!(test.field, Field::SourceType(_)))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(chain, rule) => f.write_str(&shown(chain, &rule.words())),
            Self::Policy(chain) => write!(f, "-P {chain} DROP"),
        }
    }
}

/// The targets to which a rule hands packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Targets {
    Name(String),
    /// CT with a zone.
    Zone(String),
    /// The targets of the rules of a chain.
    Chain(String, Vec<Self>),
    /// A chain from which no packet comes back (`-g`), and the targets of its rules.
    Goto(String, Vec<Self>),
    /// A chain beyond the depth limit.
    TooDeep(String),
}

impl Targets {
    pub(super) fn of(name: &str) -> Self {
        Self::Name(name.to_owned())
    }

    /// Whether this holds for one of the targets.
    pub(super) fn any(&self, holds: &dyn Fn(&Self) -> bool) -> bool {
        let inner: &[Self] = match self {
            Self::Chain(_, inner) | Self::Goto(_, inner) => inner,
            Self::Name(_) | Self::Zone(_) | Self::TooDeep(_) => &[],
        };
        holds(self) || inner.iter().any(|targets| targets.any(holds))
    }

    /// Whether it leads to other rules.
    const fn is_chain(&self) -> bool {
        matches!(self, Self::Chain(..) | Self::Goto(..))
    }

    fn sets_zone(&self) -> bool {
        self.any(&|targets| matches!(targets, Self::Zone(_)))
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) | Self::Goto(name, _) => f.write_str(name),
            Self::Zone(name) => write!(f, "{name} --zone"),
            Self::TooDeep(name) => write!(f, "{name} (chains nested more than {DEEPEST} deep)"),
            Self::Chain(name, inner) => {
                let shown: Vec<String> = inner.iter().take(MOST).map(ToString::to_string).collect();
                let more = inner.len() - shown.len();
                let more = if more > 0 { format!(", {more} more") } else { String::new() };
                write!(f, "{name} ({}{more})", shown.join(", "))
            }
        }
    }
}

/// A foreign rule, or policy, that decides before our rules or may do so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrecedingRule {
    pub(super) family: Family,
    pub(super) variant: Variant,
    pub(super) table: &'static str,
    pub(super) found: Found,
    pub(super) targets: Targets,
    /// Whether it is of another variant than ours: which one packets meet first is open.
    pub(super) of_other_variant: bool,
    /// Where it is.
    pub(super) place: Placement,
    /// Whether it may translate DNS queries over UDP that have a conntrack zone.
    pub(super) translates_dns: bool,
    /// Whether it sends what arrives to another port or address.
    pub(super) publishes: bool,
    /// Whether it drops packets by the type of their source.
    pub(super) drops_sources: bool,
    /// Whether TPROXY captures what it exempts from connection tracking.
    pub(super) is_by_tproxy: bool,
}

/// A translated response has another address or port than those by which our rules know responses, so it is
/// looked up in another zone than its query.
pub(super) const DNS_IN_ZONES: &str = "; DNS queries over UDP that it translates get no response while DNS is captured (--redirect-dns): let it \
                            translate none, or capture no DNS";

/// TPROXY needs no connection tracking to capture, and has no other way to know an open connection.
pub(super) const UNTRACKED: &str = "packets that it exempts from connection tracking belong to no connection: TPROXY captures new connections of them, \
                         and open ones end when it comes into force";

/// What a conntrack zone of another program means.
pub(super) const IN_A_ZONE: &str = "redirected connections in this conntrack zone reach the proxy without their original destination, which the \
                         kernel looks up in the default zone, and get no reply if one direction only has it; DNS queries over UDP of \
                         the pod and of the proxy are not told apart in it";

/// What the proxy hands on leaves by lo, and meets no rule of what arrives.
pub(super) const PUBLISHED: &str = "; exclude its ports from capture (-d PORT), if that is intended, or delete it: after ours it gets no captured \
                         connection";

/// The proxy replies to captured programs of the pod from the server's address.
pub(super) const REPLIES_ON_LO: &str = "; the proxy's replies to programs of the pod arrive on lo with the address of the server: insert a rule \
                             before it that accepts packets arriving on lo, if it drops them";

impl PrecedingRule {
    /// Whether it is in a shared chain of the variant that holds our rules, where `explain` follows it.
    #[must_use]
    pub fn is_beside_ours(&self) -> bool {
        let of_hook = |hook: &Hook| self.found.chain() == hook.name();
        let is_shared =
            Table::ALL.iter().any(|table| table.name() == self.table) && Hook::ALL.iter().any(of_hook);
        is_shared && !self.of_other_variant
    }
}

impl PrecedingRule {
    /// The rule and its family, if it is one of nat before ours. Of the other tables every packet meets the
    /// rules, those of open connections and of the proxy among them, which may have any address and port.
    #[must_use]
    pub fn nat_rule(&self) -> Option<(Family, RuleId)> {
        let is_before = self.is_beside_ours() && self.place == Placement::Before;
        let rule = self.found.rule_id(self.table);
        Some((self.family, rule.filter(|_| is_before && self.table == Table::Nat.name())?))
    }
}

impl From<&PrecedingRule> for Finding {
    fn from(first: &PrecedingRule) -> Self {
        let PrecedingRule { variant, table, found, of_other_variant, .. } = first;
        let table = if *of_other_variant { format!("{variant} {table}") } else { (*table).to_owned() };
        let finding =
            Self::new(Problem::ForeignRule, first.cause()).advice(first.advice()).family(first.family);
        match found {
            Found::Policy(chain) => {
                let command = match &first.place {
                    Placement::Later(ports) => first.accepting(chain, ports),
                    Placement::Before | Placement::Beside => {
                        format!("`{} -t {} -P {chain} ACCEPT`", first.tool(), first.table)
                    }
                };
                finding.subject(command).about([Subject::Chain { table, chain: (*chain).to_owned() }])
            }
            Found::Rule(..) => {
                let finding = finding.about(found.rule_id(&table).map(Subject::Rule));
                match (&first.place, &first.targets) {
                    // Without the rule that leads there, or the one for all packets, what is behind it drops
                    // the packets as well.
                    (Placement::Later(ports), targets) if found.is_for_all() || targets.is_chain() => {
                        finding.subject(first.accepting(found.chain(), ports))
                    }
                    _ => finding,
                }
            }
        }
    }
}

impl PrecedingRule {
    const fn tool(&self) -> &'static str {
        match (self.family, self.variant) {
            (Family::V4, Variant::Nft) => "iptables",
            (Family::V6, Variant::Nft) => "ip6tables",
            (Family::V4, Variant::Legacy) => "iptables-legacy",
            (Family::V6, Variant::Legacy) => "ip6tables-legacy",
        }
    }

    /// The rule that accepts what goes to the proxy: a firewall drops the rest on purpose.
    fn accepting(&self, chain: &str, ports: &AcceptedPorts) -> String {
        let (tool, table) = (self.tool(), self.table);
        match &ports.listed {
            Some(ports) => {
                format!("`{tool} -t {table} -I {chain} -p tcp -m multiport --dports {ports} -j ACCEPT`")
            }
            None => {
                format!(
                    "`{tool} -t {table} -I {chain} -p tcp --dport PORT -j ACCEPT` for each port of the proxy"
                )
            }
        }
    }
}

impl PrecedingRule {
    fn cause(&self) -> String {
        let Self { family, variant, table, found: text, targets: target, of_other_variant, place, .. } = self;
        if let (Found::Policy(_), Placement::Later(_)) = (text, place) {
            return format!(
                "a foreign chain policy drops packets that our rules capture ({family}, {variant}): {table} `{text}`: those that match no \
                 rule do not reach the proxy"
            );
        }
        if let (Found::Policy(_), Placement::Before) = (text, place) {
            return format!(
                "a foreign chain policy drops packets before our rules ({family}, {variant}): {table} `{text}`: packets that match no rule \
                 there are dropped, those that our rules would capture, too"
            );
        }
        if let Found::Policy(_) = text {
            return format!(
                "a foreign chain policy drops packets that our rules do not capture ({family}, {variant}): {table} `{text}`: packets that \
                 match no rule are dropped, including the proxy's"
            );
        }
        if let Placement::Later(_) = place {
            return format!(
                "a foreign rule applies to packets that our rules capture ({family}, {variant}): {table} `{text}`: packets that it \
                 hands to {target} do not reach the proxy"
            );
        }
        let decides = if *of_other_variant { "may decide" } else { "decides" };
        let is_unknown = target.any(&|targets| match targets {
            Targets::Name(name) => name == UNREADABLE,
            Targets::TooDeep(_) => true,
            Targets::Zone(_) | Targets::Chain(..) | Targets::Goto(..) => false,
        });
        let are = if is_unknown { "may not be" } else { "are not" };
        // Not everything that enters a chain reaches the rule that decides.
        let those = if matches!(target, Targets::Chain(..)) && !is_unknown {
            " if the rules there match them"
        } else {
            ""
        };
        let then = if target.sets_zone() {
            IN_A_ZONE.to_owned()
        } else if self.is_by_tproxy {
            UNTRACKED.to_owned()
        } else {
            format!("packets that it hands to {target} {are} captured{those}")
        };
        format!("a foreign rule {decides} before ours ({family}, {variant}): {table} `{text}`: {then}")
    }

    fn advice(&self) -> String {
        let mend = match (&self.found, &self.place) {
            (Found::Policy(_), Placement::Later(ports)) => {
                return format!("; accept {} in the chain, if that is not intended", ports.words);
            }
            (_, Placement::Later(ports)) => {
                return format!("; accept {} before it, if that is not intended", ports.words);
            }
            (Found::Policy(_), _) => "set it to ACCEPT",
            (_, Placement::Before) if self.publishes && !self.drops_sources => return PUBLISHED.to_owned(),
            (_, Placement::Before) => "move it after our rule or delete it",
            (_, Placement::Beside) => "delete it",
        };
        let is_policy = matches!(self.found, Found::Policy(_));
        let dns = if self.translates_dns && !is_policy { DNS_IN_ZONES } else { "" };
        let replies = if self.drops_sources && !is_policy { REPLIES_ON_LO } else { "" };
        format!("; {mend}, if that is not intended{replies}{dns}")
    }
}

impl fmt::Display for PrecedingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.cause(), self.advice())
    }
}

/// Where foreign rules are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Before our jump in the same chain; a policy: in a table that packets meet before they are captured.
    Before,
    /// Behind it, or in tables that packets meet besides ours.
    Beside,
    /// On the way to the proxy, which has these ports.
    Later(AcceptedPorts),
}
