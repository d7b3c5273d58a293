//! Whatever a runtime hands to the plugin (`CNI_ARGS`, standard input, the pod's annotations): a decision or
//! an error of one line, never a panic; and options that are stored are read as they were.
#![no_main]

use istio_cni::capture::CaptureOptions;
use istio_cni::decide::{Decision, Refusal, decide};
use istio_cni::environment::{self, AttachmentId, Request};
use istio_cni::error::{CniError, LONGEST_MESSAGE};
use istio_cni::netconf::NetConf;
use istio_cni::pod::Pod;
use istio_cni::state::State;
use libfuzzer_sys::fuzz_target;

/// Annotations that capture depends on: the fuzzer chooses values.
const KEYS: [&str; 14] = [
    "inject.istio.io/templates",
    "istio-iptables/capture-options",
    "kubernetes.io/config.source",
    "proxy.istio.io/config",
    "sidecar.istio.io/inject",
    "sidecar.istio.io/interceptionMode",
    "sidecar.istio.io/status",
    "traffic.sidecar.istio.io/excludeInboundPorts",
    "traffic.sidecar.istio.io/excludeInterfaces",
    "traffic.sidecar.istio.io/excludeOutboundIPRanges",
    "traffic.sidecar.istio.io/excludeOutboundPorts",
    "traffic.sidecar.istio.io/includeInboundPorts",
    "traffic.sidecar.istio.io/includeOutboundIPRanges",
    "traffic.sidecar.istio.io/kubevirtInterfaces",
];

fuzz_target!(|input: (&str, String, Vec<(u8, String)>)| {
    let (conf, args, annotations) = input;
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c"),
        ("CNI_NETNS", "/n"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", args.as_str()),
    ];
    let request = environment::request(variables.map(|(name, value)| (name.into(), value.into())));
    let pod = match request {
        Ok(Request::Add(attachment)) => attachment.pod,
        Ok(_) => unreachable!("the command is ADD"),
        Err(error) => return check(&error),
    };
    let mut pods = vec![Pod {
        annotations: annotations
            .into_iter()
            .map(|(key, value)| (KEYS[usize::from(key) % KEYS.len()].to_owned(), value))
            .collect(),
        ..Pod::default()
    }];
    let mut defaults = istio_cni::netconf::Defaults::default();
    let mut backend = None;
    match NetConf::parse(conf.as_bytes()) {
        Err(error) => check(&error),
        Ok(conf) => {
            let _ = (conf.log_level(), conf.unknown_keys().count(), conf.wants_annotations());
            check_all([
                conf.version().err(),
                conf.name().err(),
                conf.prev_result().err(),
                conf.standalone().err(),
            ]);
            check_all([conf.run_dir().err(), conf.deadline().err(), conf.valid_attachments().err()]);
            check_all(pod.iter().map(|pod| conf.excludes(pod).err()));
            match conf.settings() {
                Ok(settings) => (defaults, backend) = (settings.defaults, settings.backend),
                Err(error) => check(&error),
            }
            match conf.pod_annotations() {
                Ok(annotations) => {
                    pods.extend(annotations.map(|annotations| Pod { annotations, ..Pod::default() }));
                }
                Err(error) => check(&error),
            }
        }
    }
    for pod in &pods {
        match decide(pod, &defaults) {
            Decision::Capture(options) => {
                let _ = options.resolve(backend.as_ref());
                let id = AttachmentId::new("c", "eth0").expect("valid names");
                let state = State::new(String::new(), &id, String::new(), String::new(), 0);
                let state = state.with_options(options.values());
                let read = state.options().expect("names of options");
                assert_eq!(&read, options.values());
                assert_eq!(
                    CaptureOptions::of_values(read).resolve(None).is_ok(),
                    options.resolve(None).is_ok()
                );
            }
            Decision::NotCaptured(reason) => assert!(!reason.to_string().is_empty()),
            Decision::Refuse(Refusal::BadAnnotation(problem) | Refusal::Unknown(problem)) => {
                check(&CniError::new(istio_cni::error::Code::InvalidConfig, problem));
            }
        }
    }
});

fn check_all(errors: impl IntoIterator<Item = Option<CniError>>) {
    errors.into_iter().flatten().for_each(|error| check(&error));
}

fn check(error: &CniError) {
    assert!(!error.msg.is_empty() && !error.msg.contains('\n'), "{error:?}");
    assert!(error.msg.chars().count() <= LONGEST_MESSAGE, "{error:?}");
}
