//! Config that changes while serving.

use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_VALUES};

use super::load::Load;
use super::server::{Ca, Server, Volume, pair_volume, run_to_end};

/// The built-in config with an annotation of its own, by which its patches are known.
fn marked(mark: &str) -> String {
    let with = format!("injectedAnnotations: {{mark: \"{mark}\"}}");
    let text = BUILTIN_CONFIG.replace("injectedAnnotations: {}", &with);
    assert_ne!(text, BUILTIN_CONFIG);
    text
}

async fn patch(server: &Server) -> String {
    use base64::Engine as _;
    let answer = server.http2().await.inject("which config").await;
    let patch = answer.json()["response"]["patch"].as_str().unwrap_or_default().to_owned();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(patch).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_broken_and_mended_under_load() {
    let files = |config: &str| [("config", config.to_owned()), ("values", BUILTIN_VALUES.to_owned())];
    let mut volume =
        Volume::new(&files(&marked("one")).each_ref().map(|(name, text)| (*name, text.as_str())));
    let swap = |volume: &mut Volume, config: &str| {
        volume.swap(&files(config).each_ref().map(|(name, text)| (*name, text.as_str())));
    };
    let (config, values) = (volume.path("config"), volume.path("values"));
    let mut server = Server::start(&["--inject-config", &config, "--values", &values]);
    let load = Load::on(&server);
    load.go_on(50).await;
    assert!(patch(&server).await.contains("one"));

    let mut errors = 0.0;
    for broken in ["templates: {sidecar: '{{ if }}'}", "a: [", "", "policy: enable\ntemplates: {}"] {
        swap(&mut volume, broken);
        errors += 1.0;
        server.wait_for_metric("sidecar_injector_config_load_errors_total", |count| count == errors).await;
        assert_eq!(server.metric("sidecar_injector_config_stale").await, Some(1.0), "{broken}");
        assert_eq!(server.metric("sidecar_injector_config_generation").await, Some(1.0), "{broken}");
        assert_eq!(server.ask("/readyz").await.0, 200, "{broken}");
        assert!(patch(&server).await.contains("one"), "{broken}");
    }
    let line = server.wait_for_line("config refused");
    assert!(line["detail"].as_str().unwrap().contains(&config), "{line}");

    swap(&mut volume, &marked("two"));
    server.wait_for_metric("sidecar_injector_config_generation", |generation| generation == 2.0).await;
    assert_eq!(server.metric("sidecar_injector_config_stale").await, Some(0.0));
    assert!(patch(&server).await.contains("two"));

    std::fs::remove_file(volume.dir.path().join("config")).unwrap();
    server.wait_for_metric("sidecar_injector_config_stale", |stale| stale == 1.0).await;
    assert!(patch(&server).await.contains("two"));
    std::os::unix::fs::symlink("..data/config", volume.dir.path().join("config")).unwrap();
    server.wait_for_metric("sidecar_injector_config_stale", |stale| stale == 0.0).await;
    assert_eq!(server.metric("sidecar_injector_config_generation").await, Some(2.0));
    load.go_on(50).await;
    load.end().await;
}

#[test]
fn a_config_that_is_broken_from_the_start() {
    let pair = pair_volume(&Ca::new().leaf());
    let volume = Volume::new(&[("config", "templates: {a: '{{ if }}', b: '{{ nope }}'}"), ("values", "[]")]);
    let (config, values) = (volume.path("config"), volume.path("values"));
    let (code, said) =
        run_to_end(&pair, &["--inject-config", &config, "--values", &values, "--tls-key", &config]);
    assert_eq!(code, Some(65), "{said}");
    let problems: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    for (file, what) in [
        (&config, "template a"),
        (&config, "template b"),
        (&values, "map of values"),
        (&config, "private key"),
    ] {
        let told = problems.iter().any(|line| line.contains(file.as_str()) && line.contains(what));
        assert!(told, "{file} {what}: {said}");
    }
    assert!(!said.contains("listening"), "{said}");
    let (code, said) =
        run_to_end(&pair, &["--inject-config", "/nowhere/config", "--mesh-config", "/nowhere/mesh"]);
    assert_eq!(code, Some(66), "{said}");
    for problem in ["--inject-config /nowhere/config: No such file", "--mesh-config /nowhere/mesh: No such"] {
        assert!(said.contains(&format!("error: {problem}")), "{said}");
    }
}
