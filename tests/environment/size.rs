//! Long lists. What they cost is measured elsewhere; here they must work.

use std::fmt::Write as _;
use std::fs;

use crate::pod::Pod;

/// Applies, converges, changes and cleans up.
fn apply_twice_and_clean_up(pod: &Pod, options: &[&str], input: Option<&str>) -> String {
    let fresh = pod.rules();
    let run = || {
        let run = pod.istio(options);
        match input {
            Some(text) => run.input(text),
            None => run,
        }
        .good()
    };
    run();
    let rules = pod.rules();
    run().stderr_contains("already converged");
    pod.istio(&["cleanup"]).good();
    assert_eq!(pod.rules(), fresh);
    rules
}

fn list<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn two_hundred_excluded_ports() {
    for variant in ["nft", "legacy"] {
        let ports = list(20_000..20_200);
        let options = ["-b", "*", "-i", "*", "-o", &ports, "-d", &ports, "--force-iptables-binary", variant];
        let rules = apply_twice_and_clean_up(&Pod::new(), &options, None);
        assert_eq!(rules.matches("--dport 20").count(), 600, "{variant}");
    }
}

#[test]
fn forty_nine_owner_groups_fit_and_fifty_are_refused_with_the_reason() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::new();
        let forced = ["-b", "*", "-i", "*", "--force-iptables-binary", variant];
        let before = pod.state();
        pod.istio(&forced)
            .env("ISTIO_OUTBOUND_OWNER_GROUPS", &list(2000..2050))
            .end()
            .exits(64)
            .stderr_contains("ISTIO_OUTBOUND_OWNER_GROUPS")
            .stderr_contains("49");
        assert_eq!(pod.state(), before);
        let with_49 = || pod.istio(&forced).env("ISTIO_OUTBOUND_OWNER_GROUPS", &list(2000..2049));
        with_49().good();
        assert_eq!(pod.rules().matches("! --gid-owner 20").count(), 49);
        with_49().good().stderr_contains("already converged");
    }
}

/// 10,000 ranges and 1,000 ports.
fn document() -> String {
    let mut ranges = String::new();
    for n in 0..10_000 {
        write!(ranges, "\"10.{}.{}.0/24\",", n / 250, n % 250).unwrap();
    }
    format!(
        "{{\"istio-service-exclude-cidr\": [{}], \"istio-local-outbound-ports-exclude\": \"{}\", \
         \"istio-inbound-ports\": \"*\", \"istio-service-cidr\": \"*\"}}",
        ranges.trim_end_matches(','),
        list(20_000..21_000)
    )
}

#[test]
fn ten_thousand_ranges_and_a_thousand_ports_from_a_config_file() {
    let pod = Pod::new();
    let file = pod.path("config.json");
    fs::write(&file, document()).unwrap();
    let rules = apply_twice_and_clean_up(&pod, &["--config", file.to_str().unwrap()], None);
    assert_eq!(rules.matches(".0/24 -j RETURN").count(), 10_000);
    assert_eq!(rules.matches("--dport 20").count(), 2_000);
}

#[test]
fn ten_thousand_ranges_and_a_thousand_ports_from_standard_input() {
    let options = ["--config", "-", "--force-iptables-binary", "legacy"];
    let rules = apply_twice_and_clean_up(&Pod::new(), &options, Some(&document()));
    assert_eq!(rules.matches(".0/24 -j RETURN").count(), 10_000);
}

#[test]
fn a_list_that_is_too_long_for_a_line_of_the_log_is_logged_in_full() {
    let pod = Pod::new();
    let ports = list(20_000..30_000);
    pod.istio(&["-b", &ports, "--log_as_json"]).good().stderr_contains("29999");
}

/// The number of virtual interfaces once made the time grow with its square: 20 s of a processor. The kernel
/// does so with iptables-nft, where rules are deleted.
#[test]
fn twenty_thousand_virtual_interfaces_are_written_changed_and_removed() {
    for backend in ["nftables", "iptables-legacy", "iptables-nft"] {
        let pod = Pod::new();
        let fresh = pod.rules();
        let names: Vec<String> = (0..20_000).map(|n| format!("v{n}")).collect();
        let config = pod.path("config.json");
        fs::write(&config, serde_json::json!({ "kube-virt-interfaces": names }).to_string()).unwrap();
        let run = |options: &[&str]| {
            let config = ["--config", config.to_str().unwrap(), "--backend", backend];
            pod.istio(&[&config, options].concat()).under(&["prlimit", "--cpu=20"]).good()
        };
        run(&["-i", "*"]);
        run(&["-i", "*"]).stderr_contains("already converged");
        if backend == "iptables-nft" {
            continue;
        }
        run(&["-i", "10.0.0.0/8"]).stderr_contains("40013 IPv4 rules in place");
        run(&["--cleanup-only"]);
        assert_eq!(pod.rules(), fresh, "{backend}");
    }
}

#[test]
fn five_thousand_virtual_interfaces_are_changed_and_removed_with_iptables_nft() {
    let pod = Pod::new();
    let fresh = pod.rules();
    let names: Vec<String> = (0..5_000).map(|n| format!("v{n}")).collect();
    let config = pod.path("config.json");
    fs::write(&config, serde_json::json!({ "kube-virt-interfaces": names }).to_string()).unwrap();
    let options = ["--config", config.to_str().unwrap(), "--backend", "iptables-nft"];
    let run = |more: &[&str]| pod.istio(&[&options[..], more].concat()).good();
    run(&["-i", "*"]);
    run(&["-i", "10.0.0.0/8"]);
    assert_eq!(pod.rules().matches("-A PREROUTING -d 10.0.0.0/8 -i v").count(), 5_000);
    run(&["--cleanup-only"]);
    assert_eq!(pod.rules(), fresh);
}
