//! Policy rules and routes that keep packets with the mark of TPROXY from the proxy.

use ipnetwork::IpNetwork;

use crate::config::Tproxy;
use crate::finding::{Finding, Problem, Subject};
use crate::model::{
    DEFAULT_TABLE, Family, Fib, FibRoute, MAIN_TABLE, Mark, PolicyAction, PolicyRule, ROUTE_PROTOCOL,
    RULE_PRIORITY, RouteKind,
};
use crate::text::one_line;

const MAIN: PolicyAction = PolicyAction::Table(MAIN_TABLE);
const DEFAULT: PolicyAction = PolicyAction::Table(DEFAULT_TABLE);

/// The policy rules and routes of `fib`, with those of TPROXY, as a run adds them.
#[must_use]
pub fn with_tproxy(fib: &Fib, Tproxy { mark, table, .. }: Tproxy) -> Fib {
    let mut fib = fib.clone();
    let rule = PolicyRule { mark: Some((mark.0, u32::MAX)), ..PolicyRule::lookup(RULE_PRIORITY, table) };
    // The kernel adds it behind those of the same priority.
    let at = fib.rules.partition_point(|rule| rule.priority <= RULE_PRIORITY);
    fib.rules.insert(at, rule);
    fib.routes.push(FibRoute {
        table,
        destination: None,
        kind: RouteKind::Local,
        interface: Some("lo".to_owned()),
        gateway: None,
        source: None,
        scope: 0,
        metric: 0,
        has_other_tests: false,
        is_dead: false,
        origin: ROUTE_PROTOCOL,
    });
    fib
}

/// Foreign policy rules that may decide over packets with this mark before one delivers them to this machine,
/// foreign routes in the table of that one, or that there is none.
#[must_use]
pub fn find_preceding_policy_rules(family: Family, fib: &Fib, mark: Mark) -> Vec<Finding> {
    let mut found = Vec::new();
    for rule in &fib.rules {
        if !may_match(rule, mark) {
            continue;
        }
        // Those of a namespace without others.
        if rule.mark.is_none() && is_for_all(rule) && [MAIN, DEFAULT].contains(&rule.action) {
            break;
        }
        let routes = || fib.routes.iter().filter(|route| rule.action == PolicyAction::Table(route.table));
        let is_final = is_for_all(rule) && routes().any(FibRoute::is_local_default);
        let leads_away = |route: &&FibRoute| {
            if !rule.is_negated && !overlap(rule.destination, route.destination) {
                return false;
            }
            let suppressed = rule.suppress_prefix.is_some_and(|length| u32::from(route.prefix()) <= length);
            match route.kind {
                RouteKind::Local | RouteKind::Other => false,
                // Behind ours there is no rule that delivers it.
                RouteKind::Throw => is_final,
                RouteKind::Unicast => !suppressed,
                RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => true,
            }
        };
        let away = match rule.action {
            PolicyAction::Table(_) => routes().find(leads_away).map(|route| format!("take `{route}`")),
            PolicyAction::Goto(priority) => Some(format!("go on with the rules from {priority} on")),
            PolicyAction::Reject(kind) => Some(format!("are dropped ({})", kind.name())),
            PolicyAction::Vrf => Some("are looked up in the table of their interface's VRF".to_owned()),
            PolicyAction::Unknown(_) => Some("may go elsewhere".to_owned()),
            PolicyAction::Nop => None,
        };
        if let Some(away) = away {
            let (cause, advice) = sentence(family, rule, mark, &away, is_final);
            let about = [Subject::PolicyRule(rule.clone())];
            let finding = Finding::new(Problem::PolicyRouting, cause).advice(advice).family(family);
            // The route is foreign, the rule is not.
            found.push(if is_final { finding.subject(ROUTES) } else { finding }.about(about));
        }
        if is_final {
            return found;
        }
    }
    let sentence = format!(
        "no policy rule and route delivers packets with mark {mark} to this machine ({family}): the app's replies to \
         connections that the proxy makes from the client's address leave the pod"
    );
    let finding = Finding::new(Problem::PolicyRouting, sentence).advice("; run istio-iptables again");
    found.push(finding.subject("`istio-iptables` with the pod's options adds them"));
    found
}

fn sentence(family: Family, rule: &PolicyRule, mark: Mark, away: &str, is_ours: bool) -> (String, String) {
    let rule = rule.to_string();
    let rule = one_line(&rule);
    if is_ours {
        let cause = format!(
            "a foreign route takes precedence over ours ({family}): policy rule `{rule}`: packets with mark {mark} for it {away} and do \
             not reach the proxy"
        );
        return (cause, "; delete it, if that is not intended".to_owned());
    }
    let cause = format!(
        "a foreign policy rule decides before ours ({family}): `{rule}`: packets with mark {mark} that it matches {away} and do \
         not reach the proxy"
    );
    (cause, format!("; delete it or give it a priority above {RULE_PRIORITY}, if that is not intended"))
}

/// The fix of a foreign route.
const ROUTES: &str = "`ip route show table all` lists the routes: delete the foreign one";

/// Whether a rule may match packets with this mark. Sockets of the pod are not bound to interfaces.
fn may_match(rule: &PolicyRule, mark: Mark) -> bool {
    let is_marked = rule.mark.is_none_or(|(expected, mask)| (expected ^ mark.0) & mask == 0);
    let others = PolicyRule { mark: None, ..rule.clone() };
    if rule.is_negated {
        return !is_marked || !is_for_all(&PolicyRule { is_negated: false, ..others });
    }
    // TPROXY takes TCP only.
    is_marked && rule.out_interface.is_none() && rule.protocol.is_none_or(|number| number == 6)
}

/// Whether ranges have an address in common.
fn overlap(one: Option<IpNetwork>, other: Option<IpNetwork>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one.contains(other.network()) || other.contains(one.network()))
}

/// Whether a rule tests nothing but the mark.
fn is_for_all(rule: &PolicyRule) -> bool {
    let plain = PolicyRule {
        mark: rule.mark,
        action: rule.action,
        origin: rule.origin,
        suppress_prefix: None,
        ..PolicyRule::lookup(rule.priority, 0)
    };
    *rule == plain
}
