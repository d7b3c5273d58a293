//! Kernels that keep no protocol number of policy rules (before 4.17), and those that do.

use super::*;

const TPROXY: Tproxy = Tproxy { mark: Mark(1337), table: 133 };

fn desired(families: &[Family]) -> Desired {
    Desired { passthrough: false, tproxy: families.iter().map(|family| (*family, TPROXY)).collect() }
}

fn istio(families: &[Family]) -> Evidence {
    let marks = families.iter().map(|family| (*family, BTreeSet::from([TPROXY.mark]))).collect();
    Evidence { istio: marks, passthrough: false }
}

/// What a kernel reports once the steps are done. One that keeps no tag reports rules without it, and takes
/// no copy of a rule with the same priority.
fn after(steps: &Steps, observed: &Observed, keeps_tags: bool) -> Observed {
    let mut observed = observed.clone();
    let tag = if keeps_tags { ROUTE_PROTOCOL } else { 0 };
    for step in steps.before.iter().chain(&steps.after) {
        match *step {
            Step::AddRule(family, Tproxy { mark, table }) => {
                let rule = MarkRule { family, mark: mark.0, table, priority: RULE_PRIORITY, protocol: tag };
                if keeps_tags || !observed.rules.contains(&rule) {
                    observed.rules.push(rule);
                }
            }
            Step::RemoveRule(gone) => {
                let same = |rule: &MarkRule| MarkRule { protocol: gone.protocol, ..*rule } == gone;
                let tagged = |rule: &MarkRule| !keeps_tags || rule.protocol == gone.protocol;
                let place = observed.rules.iter().position(|rule| same(rule) && tagged(rule));
                observed.rules.remove(place.unwrap_or_else(|| panic!("{step}: {observed:?}")));
            }
            Step::AddRoute(family, table) => observed.routes.push(route(family, table, ROUTE_PROTOCOL)),
            Step::AdoptRoute(family, table) => {
                observed.routes.retain(|route| (route.family, route.table) != (family, table));
                observed.routes.push(route(family, table, ROUTE_PROTOCOL));
            }
            Step::RemoveRoute(family, table) => {
                observed.routes.retain(|route| {
                    (route.family, route.table, route.protocol) != (family, table, ROUTE_PROTOCOL)
                });
            }
            Step::AddAddress | Step::AdoptAddress | Step::RemoveAddress => panic!("{step}"),
        }
    }
    observed
}

const fn route(family: Family, table: u32, protocol: u8) -> Route {
    Route { family, table, protocol, local_default: true }
}

/// Whether marked packets of each family find the route.
fn routed(observed: &Observed) -> Vec<Family> {
    let rule = |family| observed.rules.iter().any(|rule| tproxy_of(rule) == (family, TPROXY));
    let route =
        |family| observed.routes.iter().any(|route| (route.family, route.table) == (family, TPROXY.table));
    Family::ALL.into_iter().filter(|family| rule(*family) && route(*family)).collect()
}

/// Before the first run: nothing, or a route that another program put into the table.
fn beginnings() -> [Observed; 2] {
    let foreign = Family::ALL.map(|family| route(family, TPROXY.table, 3)).to_vec();
    [Observed::default(), Observed { routes: foreign, ..Observed::default() }]
}

#[test]
fn second_run_keeps_the_policy_rule_with_and_without_a_record() {
    let desired = desired(&Family::ALL);
    for keeps_tags in [true, false] {
        for beginning in beginnings() {
            let first = after(&plan(&desired, &beginning, &Evidence::default()), &beginning, keeps_tags);
            // Without a record, live rules with the mark may be Istio's.
            for evidence in [Evidence::default(), istio(&Family::ALL)] {
                let second = after(&plan(&desired, &first, &evidence), &first, keeps_tags);
                assert_eq!(routed(&second), Family::ALL, "tags: {keeps_tags}, {evidence:?}, {beginning:?}");
                assert_eq!(second.rules, first.rules, "tags: {keeps_tags}, {evidence:?}, {beginning:?}");
            }
        }
    }
}

#[test]
fn rules_of_istio_are_adopted_and_go_with_the_mode() {
    let untagged = |family| MarkRule { family, mark: 1337, table: 133, priority: 32765, protocol: 0 };
    let beginning = Observed {
        rules: Family::ALL.map(untagged).to_vec(),
        routes: Family::ALL.map(|family| route(family, 133, 3)).to_vec(),
        ..Observed::default()
    };
    for keeps_tags in [true, false] {
        let wanted = desired(&Family::ALL);
        let first = after(&plan(&wanted, &beginning, &istio(&Family::ALL)), &beginning, keeps_tags);
        assert_eq!(routed(&first), Family::ALL);
        assert!(first.rules.iter().all(|rule| rule.priority == RULE_PRIORITY), "{:?}", first.rules);
        assert_eq!(plan(&wanted, &first, &istio(&Family::ALL)), Steps::default(), "tags: {keeps_tags}");
        let nothing = after(&plan(&Desired::default(), &first, &Evidence::default()), &first, keeps_tags);
        assert_eq!((nothing.rules, nothing.routes), (Vec::new(), Vec::new()), "tags: {keeps_tags}");
        // In one run from Istio's rules to none.
        let gone = plan(&Desired::default(), &beginning, &istio(&Family::ALL));
        let gone = after(&gone, &beginning, keeps_tags);
        assert_eq!((gone.rules, gone.routes), (Vec::new(), Vec::new()), "tags: {keeps_tags}");
    }
}
