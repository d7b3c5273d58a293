//! Any iptables-save text: parsing never panics, and a parsed rule round-trips.
#![no_main]

use istio_iptables::model::{Family, FamilyRules};
use istio_iptables::reconcile::Change;
use istio_iptables::{parse, render};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As the tools' output is read: comments may hold any bytes.
    let text = String::from_utf8_lossy(bytes);
    for family in Family::ALL {
        let observed = parse::iptables_save(family, &text);
        let lines =
            observed.tables.values().flat_map(|table| table.chains.values().chain(table.hooks.values()));
        for statement in lines.flatten().filter_map(|line| line.statement.as_ref()) {
            assert_eq!(parse::statement(family, &statement.to_string()).as_ref(), Some(statement));
        }
        let _ = render::restore(&Change::between(&FamilyRules::none(family), &observed, false));
    }
});
