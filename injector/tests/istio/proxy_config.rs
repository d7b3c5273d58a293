//! What Istio accepts in a proxy config and in a mesh config, and how it passes a proxy config on.

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment};
use sidecar_injector::config::{ConfigError, Source, Sources};
use sidecar_injector::inject::{Injector, Options, functions};

use crate::builtin::{deployment, inject, injector, with};

/// Proxy configs that Istio refuses, and the field that is at fault.
const REFUSED: &[(&str, &str)] = &[
    ("configPath: ''", "configPath"),
    ("binaryPath: ''", "binaryPath"),
    ("serviceCluster: ''", "serviceCluster"),
    ("statusPort: 0", "statusPort"),
    ("proxyAdminPort: 65536", "proxyAdminPort"),
    ("proxyAdminPort: '1.0'", "proxyAdminPort"),
    ("discoveryAddress: ''", "discoveryAddress"),
    ("discoveryAddress: istiod", "discoveryAddress"),
    ("discoveryAddress: a_b:1", "discoveryAddress"),
    ("discoveryAddress: 'a.5:80'", "discoveryAddress"),
    ("discoveryAddress: '::1:80'", "discoveryAddress"),
    ("drainDuration: 0s", "drainDuration"),
    ("drainDuration: 500ms", "drainDuration"),
    ("drainDuration: 1500ms", "drainDuration"),
    ("drainDuration: -1s", "drainDuration"),
    ("drainDuration: 5", "drainDuration"),
    ("tracing: {zipkin: {address: zipkin}}", "tracing.zipkin"),
    ("tracing: {datadog: {}}", "tracing.datadog"),
    ("tracing: {lightstep: {address: 'a:1'}}", "tracing.lightstep"),
    ("tracing: {tlsSettings: {mode: MUTUAL, clientCertificate: /a}}", "tracing.tlsSettings"),
    ("tracing: {tlsSettings: {mode: SIMPLE, credentialName: a, caCertificates: /a}}", "tracing.tlsSettings"),
    (
        "tracing: {tlsSettings: {mode: SIMPLE, insecureSkipVerify: true, credentialName: a}}",
        "tracing.tlsSettings",
    ),
    ("tracing: {tlsSettings: {mode: strict}}", "tracing.tlsSettings.mode"),
    ("tracingServiceName: canonical", "tracingServiceName"),
    ("interceptionMode: redirect", "interceptionMode"),
    ("interceptionMode: '1'", "interceptionMode"),
    ("controlPlaneAuthPolicy: INHERIT", "controlPlaneAuthPolicy"),
    ("gatewayTopology: {forwardClientCertDetails: ALL}", "gatewayTopology.forwardClientCertDetails"),
    ("gatewayTopology: {numTrustedProxies: -1}", "gatewayTopology.numTrustedProxies"),
    ("statsdUdpAddress: a", "statsdUdpAddress"),
    ("envoyMetricsServiceAddress: a", "envoyMetricsServiceAddress"),
    ("envoyMetricsService: {address: a}", "envoyMetricsService.address"),
    ("envoyAccessLogService: {address: 'a:0'}", "envoyAccessLogService.address"),
    ("privateKeyProvider: {}", "privateKeyProvider"),
    ("privateKeyProvider: {cryptomb: {}}", "privateKeyProvider.cryptomb"),
    ("privateKeyProvider: {qat: {pollDelay: 0s}}", "privateKeyProvider.qat"),
    ("connectionSettings: {httpIdleTimeout: -1s}", "connectionSettings.httpIdleTimeout"),
    ("connectionSettings: {httpMaxConcurrentStreams: 0}", "connectionSettings.httpMaxConcurrentStreams"),
    (
        "connectionSettings: {http2InitialStreamWindowSize: 5}",
        "connectionSettings.http2InitialStreamWindowSize",
    ),
    ("readinessProbe: {httpGet: {port: x}}", "readinessProbe.httpGet.port"),
    ("image: {imageType: 5}", "image.imageType"),
    ("proxyHeaders: {server: {disabled: 'true'}}", "proxyHeaders.server.disabled"),
    ("holdApplicationUntilProxyStarts: 'true'", "holdApplicationUntilProxyStarts"),
];

/// Mesh configs that Istio refuses, beside those whose proxy config it refuses.
const REFUSED_MESHES: &[(&str, &str)] = &[
    ("proxyListenPort: 0", "proxyListenPort"),
    ("connectTimeout: 0s", "connectTimeout"),
    ("connectTimeout: 61m", "connectTimeout"),
    ("connectTimeout: 1us", "connectTimeout"),
    ("protocolDetectionTimeout: 1us", "protocolDetectionTimeout"),
    ("trustDomain: ''", "trustDomain"),
    ("trustDomain: a_b", "trustDomain"),
    ("trustDomain: 5", "trustDomain"),
    ("trustDomainAliases: [a, b_c]", "trustDomainAliases"),
    ("serviceSettings: [{hosts: ['a b']}]", "serviceSettings"),
    ("meshMTLS: {ecdhCurves: [P-256]}", "meshMTLS.ecdhCurves"),
    ("h2UpgradePolicy: MAYBE", "h2UpgradePolicy"),
    ("enableTracing: 'true'", "enableTracing"),
];

/// Proxy configs, and what the proxy gets of them: fields at their defaults are left out.
const PASSED_ON: &[(&str, &str)] = &[
    ("drainDuration: 1h30m", r#"{"drainDuration":"5400s"}"#),
    ("terminationDrainDuration: 1500ms", r#"{"terminationDrainDuration":"1.500s"}"#),
    ("sds: {enabled: true, k8sSaJwtPath: /a}", r#"{"sds":{"enabled":true,"k8sSaJwtPath":"/a"}}"#),
    ("availability_zone: a", r#"{"availabilityZone":"a"}"#),
    ("discoveryRefreshDelay: .5s", r#"{"discoveryRefreshDelay":"0.500s"}"#),
    ("interceptionMode: 2", r#"{"interceptionMode":"NONE"}"#),
    (
        "gatewayTopology: {forwardClientCertDetails: 9}",
        r#"{"gatewayTopology":{"forwardClientCertDetails":9}}"#,
    ),
    ("tracingServiceName: 0", r#"{"tracingServiceName":"APP_LABEL_AND_NAMESPACE"}"#),
    (
        "tracing: {zipkin: {address: 'a:1'}, datadog: {address: '$(HOST_IP):8126'}}",
        r#"{"tracing":{"datadog":{"address":"$(HOST_IP):8126"}}}"#,
    ),
    (
        "tracing: {tlsSettings: {mode: 1}, stackdriver: {maxNumberOfAttributes: 5}}",
        r#"{"tracing":{"stackdriver":{"maxNumberOfAttributes":"5"},"tlsSettings":{"mode":"SIMPLE"}}}"#,
    ),
    (
        "tracing: {openCensusAgent: {context: [4, W3C_TRACE_CONTEXT]}}",
        r#"{"tracing":{"openCensusAgent":{"context":["B3","W3C_TRACE_CONTEXT"]}}}"#,
    ),
    ("proxyMetadata: {A: null, B: x}", r#"{"proxyMetadata":{"A":"","B":"x"}}"#),
    (
        "gatewayTopology: {numTrustedProxies: '2', forwardClientCertDetails: 1}",
        r#"{"gatewayTopology":{"numTrustedProxies":2,"forwardClientCertDetails":"SANITIZE"}}"#,
    ),
    (
        "privateKeyProvider: {cryptomb: {pollDelay: 10ms}}",
        r#"{"privateKeyProvider":{"cryptomb":{"pollDelay":"0.010s"}}}"#,
    ),
    ("extraStatTags: [a, null]", r#"{"extraStatTags":["a",""]}"#),
];

fn with_mesh(mesh: &str) -> Result<Injector, Vec<String>> {
    let mesh = Some(Source { name: "mesh.yaml".to_owned(), text: mesh.to_owned() });
    let settings = Sources { mesh, ..Sources::default() }.load(&functions(|_| None));
    let texts = |problems: Vec<ConfigError>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    Ok(Injector::new(settings.map_err(texts)?, Options::default()))
}

#[test]
fn a_proxy_config_that_istio_refuses_is_refused() {
    for (config, field) in REFUSED {
        let pod = with(&deployment(), &json!({"proxy.istio.io/config": config}));
        let error = inject(&injector(), &pod).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("annotation proxy.istio.io/config: {field}: ")), "{config}: {error}");
        assert!(error.contains("is not accepted, expected "), "{config}: {error}");
        let errors = with_mesh(&format!("defaultConfig: {{{config}}}")).unwrap_err();
        assert!(
            errors[0].starts_with(&format!("mesh.yaml: defaultConfig.{field}: ")),
            "{config}: {errors:?}"
        );
    }
}

#[test]
fn a_mesh_config_that_istio_refuses_is_refused() {
    for (mesh, field) in REFUSED_MESHES {
        let errors = with_mesh(mesh).unwrap_err();
        assert!(errors[0].starts_with(&format!("mesh.yaml: {field}: ")), "{mesh}: {errors:?}");
    }
}

#[test]
fn all_problems_of_a_config_are_reported_at_once() {
    let mesh = "{trustDomain: a_b, proxyListenPort: 0, defaultConfig: {statusPort: 0, discoveryAddress: a}}";
    assert_eq!(with_mesh(mesh).unwrap_err().len(), 4);
    let config = json!({"proxy.istio.io/config": "{statusPort: 0, discoveryAddress: a}"});
    let error = inject(&injector(), &with(&deployment(), &config)).unwrap_err().to_string();
    assert!(error.contains("statusPort: 0") && error.contains("discoveryAddress: \"a\""), "{error}");
}

#[test]
fn lint_refuses_what_istio_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mesh.yaml");
    std::fs::write(&file, "defaultConfig: {tracing: {zipkin: {address: zipkin}}}").unwrap();
    let arguments = ["sidecar-injector", "lint", "--mesh-config", file.to_str().unwrap()];
    let output = cli::run(arguments.map(Into::into), &Environment::default()).unwrap();
    assert!(
        output.refused && output.notes[0].contains("defaultConfig.tracing.zipkin: "),
        "{:?}",
        output.notes
    );
}

#[test]
fn a_proxy_config_is_passed_on_as_istio_writes_it() {
    for (config, expected) in PASSED_ON {
        let pod = with(&deployment(), &json!({"proxy.istio.io/config": config}));
        let found = proxy_config(&inject(&injector(), &pod).unwrap().pod);
        assert_eq!(found, serde_json::from_str::<Value>(expected).unwrap(), "{config}");
    }
}

#[test]
fn only_some_headers_of_the_mesh_stay_beside_those_of_a_pod() {
    let mesh =
        "defaultConfig: {proxyHeaders: {server: {value: x}, setCurrentClientCertDetails: {dns: true}}}";
    let pod =
        with(&deployment(), &json!({"proxy.istio.io/config": "proxyHeaders: {requestId: {disabled: true}}"}));
    let found = proxy_config(&inject(&with_mesh(mesh).unwrap(), &pod).unwrap().pod);
    assert_eq!(found, json!({"proxyHeaders": {"server": {"value": "x"}, "requestId": {"disabled": true}}}));
}

/// The variable from which the agent reads it.
pub(crate) fn proxy_config(pod: &Value) -> Value {
    let containers = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().unwrap());
    let proxy = containers.into_iter().flatten().find(|item| item["name"] == "istio-proxy").unwrap();
    let variables = proxy["env"].as_array().unwrap();
    let text =
        variables.iter().find(|variable| variable["name"] == "PROXY_CONFIG").unwrap()["value"].as_str();
    serde_json::from_str(text.unwrap()).unwrap()
}
