//! Native nftables in the lab: the rules that the program's own code makes of the options, over netlink, in place of those
//! that the program has just put in by iptables-nft. Routes, policy rules and addresses stay as the program made them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use istio_iptables::cli::{self, Outcome};
use istio_iptables::facts::Files;
use istio_iptables::kernel::rtnetlink;
use istio_iptables::model::{Family as ModelFamily, FamilyRules};
use istio_iptables::{config, nft, policy};
use nfnetlink::nftables::{Batch, Client, Family};

/// Puts native rules in place of those of iptables-nft, in one transaction, where the calling thread is.
pub(crate) fn replace_iptables_nft(args: &[String], env: &BTreeMap<String, String>) {
    let mut batch = Batch::new();
    for table in &tables(args, env) {
        batch.replace_table(&nft::encode(table));
    }
    let mut client = Client::open().expect("the kernel has nf_tables");
    for table in client.tables().expect("tables can be listed") {
        if table.family != Family::Inet {
            batch.delete_table(&table);
        }
    }
    client.commit(&batch).unwrap_or_else(|error| panic!("{error}"));
    let left = client.tables().expect("tables can be listed");
    assert!(
        left.iter().all(|table| table.family == Family::Inet),
        "nothing of iptables-nft is left: {left:?}"
    );
}

/// Puts the native form of these rules where the calling thread is.
pub(crate) fn put(rules: &BTreeMap<ModelFamily, FamilyRules>) {
    let mut batch = Batch::new();
    for table in &nft::tables(rules) {
        batch.replace_table(&nft::encode(table));
    }
    Client::open()
        .and_then(|mut client| client.commit(&batch).map_err(io::Error::other))
        .expect("put native rules");
}

/// The tables for these options in this pod.
fn tables(args: &[String], env: &BTreeMap<String, String>) -> Vec<nft::NativeTable> {
    let words = ["istio-iptables"].into_iter().chain(args.iter().map(String::as_str)).map(OsString::from);
    let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let no_file = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let parsed = cli::parse(words, env, &mut io::empty(), &no_file);
    let Ok(Outcome::Run(raw)) = parsed else { panic!("{args:?}: {parsed:?}") };
    let files = Files {
        resolv_conf: fs::read_to_string("/etc/resolv.conf").map_err(|error| error.to_string()),
        passwd: fs::read_to_string("/etc/passwd").expect("read /etc/passwd"),
        group: fs::read_to_string("/etc/group").expect("read /etc/group"),
    };
    let resolved = config::resolve(&raw, &files).unwrap_or_else(|errors| panic!("{args:?}: {errors:?}"));
    let (config, _) = resolved.intent.decide(&rtnetlink::network().expect("the pod's addresses can be read"));
    let rules = policy::ruleset(&config);
    nft::tables(&config.families.iter().map(|family| (family, rules.resolve(family))).collect())
}
