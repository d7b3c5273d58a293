//! Moves between backends beside foreign rules that are identical to ours.

use std::{env, fs, process};

use crate::foreign_preserved::{EVERYTHING, FAMILIES};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    to_nft: IptablesNft Dual, to_legacy: IptablesLegacy Dual, to_native: Native Dual;
    [move_beside_an_identical_foreign_rule_succeeds]
);
for_these_fixtures!(from_legacy: IptablesNft Dual; [rules_file_keeps_every_part_of_a_run]);

/// The rule that `-c net1` writes too, in the tables of iptables-nft.
const FOREIGN: &str = "-i net1 -j RETURN";

/// The foreign rules in their order, with their handles.
fn foreign(pod: &Pod) -> Vec<String> {
    let list = |family: Family| {
        let name = if family == Family::V4 { "ip" } else { "ip6" };
        pod.namespace.run(|| tool("nft", &["-a", "list", "chain", name, "mangle", "PREROUTING"], ""))
    };
    let lines = FAMILIES.map(|family| {
        let first = list(family).lines().find(|line| line.contains("net1")).map(str::to_owned);
        first.expect("the foreign rule is live")
    });
    lines.to_vec()
}

/// The rules that are deleted by their handles have none when the run begins: the rest is planned once they
/// have.
fn rules_file_keeps_every_part_of_a_run(fixture: Fixture) {
    let pod = fixture.pod();
    let tproxy = [&EVERYTHING[..], &["-m", "TPROXY"]].concat();
    let old = [&tproxy[..], &["--dual-stack", "--backend", Backend::IptablesLegacy.flag()]].concat();
    pod.plain_istio_iptables(&old).run().succeeded();
    for family in FAMILIES {
        // What our rule looks like during the move.
        let add = "-t mangle -A PREROUTING -i lo -p tcp -m mark --mark 1337 -j CONNMARK --save-mark";
        let name = Backend::IptablesNft.tool(family, "");
        pod.namespace.run(|| tool(&name, &add.split(' ').collect::<Vec<_>>(), ""));
    }
    pod.apply(&[&tproxy[..], &["--dry-run"]].concat()).output_contains("a run deletes by handle");
    let kept = env::temp_dir().join(format!("moved-rules-{}", process::id()));
    let output = pod.apply(&[&tproxy[..], &["--rules-file", &kept.display().to_string()]].concat()).output();
    assert!(output.contains("nft delete rule ip mangle PREROUTING handle"), "{output}");
    for (path, family) in
        [(kept.clone(), "(IPv4, iptables-nft)"), (kept.with_extension("v6"), "(IPv6, iptables-nft)")]
    {
        let written: Vec<String> = output
            .split("Writing following contents to rules file: ")
            .skip(1)
            .filter_map(|text| text.split_once('\n').filter(|(first, _)| first.contains(family)))
            .filter_map(|(_, text)| Some(format!("{}COMMIT\n", text.rsplit_once("COMMIT\n")?.0)))
            .collect();
        assert_eq!(written.len(), 2, "{output}");
        assert_eq!(fs::read_to_string(&path).unwrap(), written.concat());
        fs::remove_file(&path).unwrap();
    }
}

fn move_beside_an_identical_foreign_rule_succeeds(fixture: Fixture) {
    let others = [Backend::IptablesNft, Backend::IptablesLegacy, Backend::Native];
    for from in others.into_iter().filter(|from| *from != fixture.backend) {
        // Only the tables of iptables-nft give rules a handle.
        if from != Backend::IptablesNft && fixture.backend != Backend::IptablesNft {
            continue;
        }
        let pod = fixture.pod();
        let tproxy = [&EVERYTHING[..], &["-m", "TPROXY", "-c", "net1"]].concat();
        let old = [&tproxy[..], &["--dual-stack", "--backend", from.flag()]].concat();
        let add = || {
            for family in FAMILIES {
                let add = format!("-t mangle -A PREROUTING {FOREIGN}");
                let name = Backend::IptablesNft.tool(family, "");
                pod.namespace.run(|| tool(&name, &add.split(' ').collect::<Vec<_>>(), ""));
            }
        };
        if from == Backend::IptablesNft {
            add();
            pod.plain_istio_iptables(&old).run().succeeded();
        } else {
            pod.plain_istio_iptables(&old).run().succeeded();
            add();
        }
        let before = foreign(&pod);
        pod.apply(&tproxy).output_contains("done");
        assert_eq!(foreign(&pod), before, "{from:?}: the foreign rule is the same one");
        let once = pod.state();
        pod.apply(&tproxy).output_contains("already converged");
        pod.apply(&[&tproxy[..], &["--verify"]].concat());
        assert_eq!(pod.state(), once, "{from:?}");
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        for family in FAMILIES {
            let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
            pod.outside().call(inbound).captured(15006, inbound);
            pod.app().call(outbound).captured(15001, outbound);
        }
        pod.apply(&["cleanup"]);
        assert_eq!(foreign(&pod), before, "{from:?}: after clean-up");
        for family in FAMILIES {
            let saved = pod.namespace.run(|| tool(&Backend::IptablesNft.tool(family, "-save"), &[], ""));
            assert_eq!(saved.matches("net1").count(), 1, "{saved}");
            assert!(!saved.contains("ISTIO") && !saved.contains("mark"), "{saved}");
        }
    }
}
