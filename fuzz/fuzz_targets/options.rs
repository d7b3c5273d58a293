//! Whatever is on the command line or in the config file: options or errors, never a panic.
#![no_main]

use std::ffi::OsString;

use istio_iptables::cli::{self, Outcome};
use istio_iptables::config;
use istio_iptables::facts::Files;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|words: Vec<String>| {
    let document = words.first().cloned().unwrap_or_default();
    let args = std::iter::once("istio-iptables".to_owned()).chain(words).map(OsString::from);
    let parsed = cli::parse(args, [], &mut std::io::empty(), &|_| Ok(document.clone()));
    let raw = match parsed {
        Ok(Outcome::Run(raw)) | Err(cli::Failure { raw, .. }) => raw,
        Ok(Outcome::Print(_)) => return,
    };
    let files = Files { passwd: String::new(), group: String::new(), resolv_conf: Ok(document) };
    let _ = config::resolve(&raw, &files);
});
