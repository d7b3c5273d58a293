//! The page docs/cni.md lists every key, every platform and every error code.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]

use istio_cni::error::Code;
use istio_cni::install::platform::PLATFORMS;
use istio_cni::netconf::KEYS;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cni.md")).unwrap()
}

#[test]
fn every_key_of_ours_is_documented() {
    let page = page();
    for key in KEYS {
        assert!(page.contains(&format!("\n| `{key}` | ")), "{key}");
    }
}

#[test]
fn every_platform_is_documented() {
    let page = page();
    let rows = || page.lines().filter(|line| line.starts_with("| `"));
    for platform in PLATFORMS {
        let words = platform.names().chain([platform.bin_dir, platform.net_dir]);
        let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
        assert!(rows().any(|row| words.iter().all(|word| row.contains(word))), "{platform}");
    }
}

#[test]
fn every_error_code_is_documented() {
    let page = page();
    let codes: Vec<u16> = Code::ALL.iter().map(|code| *code as u16).collect();
    let errors = page.split("\n## Errors\n").nth(1).unwrap();
    let rows =
        errors.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse::<u16>().ok());
    assert_eq!(rows.collect::<Vec<_>>(), codes);
}
