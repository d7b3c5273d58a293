//! The overlay for the Prometheus operator selects the injector's Service.

use serde_json::Value;
use sidecar_injector::yaml;

use super::{objects, only, options};

fn overlay() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/overlays/monitoring/more.yaml");
    let text = std::fs::read(path).unwrap();
    yaml::read_documents(&text).unwrap().into_iter().map(|document| document.value).collect()
}

#[test]
fn the_service_monitor_selects_the_service() {
    let (overlay, installed) = (overlay(), objects(&options()));
    let (monitor, service) = (only(&overlay, "ServiceMonitor"), only(&installed, "Service"));
    assert_eq!(monitor["metadata"]["namespace"], service["metadata"]["namespace"]);
    for (key, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&service["metadata"]["labels"][key], value, "{key}");
    }
    let endpoint = &monitor["spec"]["endpoints"][0];
    let mut ports = service["spec"]["ports"].as_array().unwrap().iter();
    assert!(ports.any(|port| port["name"] == endpoint["port"] && port["port"] == 15014));
}

#[test]
fn the_pods_have_scrape_annotations() {
    let installed = objects(&options());
    let template = &only(&installed, "Deployment")["spec"]["template"];
    let annotations = &template["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/scrape"], "true");
    assert_eq!(annotations["prometheus.io/port"], "15014");
    assert_eq!(annotations["prometheus.io/path"], "/metrics");
}

#[test]
fn every_alert_has_a_summary_and_a_severity() {
    let overlay = overlay();
    let groups = only(&overlay, "PrometheusRule")["spec"]["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() >= 7);
    for rule in rules {
        assert!(
            rule["annotations"]["summary"].is_string() && rule["labels"]["severity"].is_string(),
            "{rule}"
        );
        assert!(rule["expr"].as_str().unwrap().contains("sidecar_injector_"), "{rule}");
    }
}
