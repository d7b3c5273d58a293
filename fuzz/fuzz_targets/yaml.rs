//! Whatever a file holds: its documents, byte for byte, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidecar_injector::yaml;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(documents) = yaml::read_documents(bytes) {
        let whole: String =
            documents.iter().flat_map(|document| [document.separator.as_str(), document.body.as_str()]).collect();
        assert_eq!(whole.as_bytes(), bytes);
    }
});
