//! `--backend auto`: which iptables variant a run takes, and that it takes the same one the next time.

use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    v4: IptablesNft V4, dual: IptablesNft Dual;
    [
        an_untouched_pod_gets_nft_rules,
        a_second_run_stays_with_the_variant_of_the_first,
        foreign_legacy_rules_select_legacy_backend,
        empty_legacy_tables_are_ignored,
        foreign_nft_rules_select_nft_backend,
    ]
);

/// The log of a run without a backend option.
const CHOICES: [&[&str]; 3] = [&[], &["--backend", "auto"], &["--backend", "iptables"]];

fn an_untouched_pod_gets_nft_rules(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesNft], "{choice:?}");
    }
}

/// Detection must not create what the next detection takes for foreign rules.
fn a_second_run_stays_with_the_variant_of_the_first(fixture: Fixture) {
    for first in [Backend::IptablesNft, Backend::IptablesLegacy] {
        let pod = fixture.pod();
        apply(&pod, &["--backend", first.flag()]);
        for choice in CHOICES {
            apply(&pod, choice);
            assert_eq!(variants_with_our_rules(&pod), [first], "{choice:?}");
        }
    }
}

fn foreign_legacy_rules_select_legacy_backend(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        legacy(&pod, &["-A", "INPUT", "-p", "tcp", "--dport", "9999", "-j", "DROP"]);
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesLegacy], "{choice:?}");
    }
}

/// A mere `iptables-legacy -L` by whomever makes them.
fn empty_legacy_tables_are_ignored(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        for table in ["filter", "nat", "mangle", "raw"] {
            legacy(&pod, &["-n", "-t", table, "-L"]);
        }
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesNft], "{choice:?}");
    }
}

fn foreign_nft_rules_select_nft_backend(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        pod.iptables(Family::V4, "-A INPUT -p tcp --dport 9999 -j DROP");
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesNft], "{choice:?}");
    }
}

fn apply(pod: &Pod, choice: &[&str]) {
    let run = pod.plain_istio_iptables(&["-b", "*", "-i", "*"]);
    choice.iter().fold(run, |run, word| run.arg(word)).run().succeeded();
}

fn legacy(pod: &Pod, args: &[&str]) {
    pod.namespace.run(|| tool("iptables-legacy", &[&["--wait"], args].concat(), ""));
}

/// The variants that hold a jump to one of our chains.
fn variants_with_our_rules(pod: &Pod) -> Vec<Backend> {
    let holds = |backend: &Backend| {
        let save = backend.tool(Family::V4, "-save");
        pod.namespace.run(|| tool(&save, &[], "")).contains("-j ISTIO_OUTPUT")
    };
    [Backend::IptablesNft, Backend::IptablesLegacy].into_iter().filter(holds).collect()
}
