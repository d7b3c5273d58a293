//! Rules put in place as native nftables by the library, where the program would make others.

use std::io;

use istio_iptables::model::{FamilyRules, PerFamily};
use istio_iptables::nft;
use nfnetlink::nftables::{Batch, Client};

/// Puts the native form of these rules where the calling thread is.
pub(crate) fn put(rules: &PerFamily<FamilyRules>) {
    let mut batch = Batch::new();
    for table in &nft::tables(rules) {
        batch.replace_table(&nft::encode(table));
    }
    Client::open()
        .and_then(|mut client| client.commit(&batch).map_err(io::Error::other))
        .expect("put native rules");
}
