//! Whatever a network configuration list holds: our entry is added and removed without a change of any other
//! byte.
#![no_main]

use istio_cni::install::splice::{List, Owner, Single};
use libfuzzer_sys::fuzz_target;

const ENTRY: &str = r#"{"type":"istio-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true}}"#;

fuzz_target!(|text: &str| {
    if let Ok(single) = Single::parse(text) {
        if let Ok(list) = single.to_list(ENTRY) {
            assert!(List::parse(&list).expect("a list").has_entry());
        }
    }
    let Ok(list) = List::parse(text) else { return };
    let Some(with) = list.with_entry(ENTRY) else { return };
    let again = List::parse(&with).expect("a list");
    assert_eq!(again.with_entry(ENTRY), None);
    assert_eq!(again.owners().filter(|owner| *owner != Owner::Other).count(), 1);
    if list.owners().all(|owner| owner == Owner::Other) {
        assert_eq!(again.others(), list.others());
        assert_eq!(again.without_entry(false).as_ref(), Ok(&Some(text.to_owned())));
    }
});
