//! `webhook`: options from flags, and the runtime.

use std::io;

use istio_iptables::config::LogOptions;

use super::webhook_args::{CertificateArgs, ClusterArgs, WebhookArgs};
use super::{Environment, Exit, Failure, Output};
use crate::certs::SelfSignedError;
use crate::certs::files::CertFiles;
use crate::inject::Options;
use crate::manifests::Platform;
use crate::webhook::error::ServeError;
use crate::webhook::log_queue::{self, LogQueue};
use crate::webhook::options::{CaBundle, Certificates, ConfigFrom, Limits, ServeOptions};
use crate::webhook::serve::serve;

pub(super) fn run(args: &WebhookArgs, environment: &Environment) -> Result<Output, Failure> {
    let options = options(args, environment)?;
    let no_threads =
        |error: io::Error| Failure::one(Exit::Unavailable, format!("cannot start threads: {error}"));
    let log = LogQueue::to(io::stderr()).map_err(no_threads)?;
    istio_iptables::logging::init_to(options.log, Box::new(log), serde_json::Map::new());
    // Background tasks and the monitoring port; the workers have runtimes of their own. Blocking threads do
    // what may take long: files, name resolution.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .map_err(no_threads)?;
    let result = runtime.block_on(serve(options));
    // What still runs had its time.
    runtime.shutdown_background();
    log_queue::flush();
    result.map(|()| Output { target: "-".to_owned(), ..Output::default() }).map_err(|errors| {
        let exit = errors.first().map_or(Exit::Unavailable, exit);
        Failure::new(exit, errors.iter().map(ToString::to_string).collect())
    })
}

const fn exit(error: &ServeError) -> Exit {
    match error {
        ServeError::Unreadable { .. } => Exit::NoInput,
        ServeError::Config(_) | ServeError::Certificate(_) => Exit::Data,
        ServeError::SelfSigned(SelfSignedError::CaOut { .. }) => Exit::CannotCreate,
        ServeError::Cluster(_)
        | ServeError::Bind { .. }
        | ServeError::Runtime(_)
        | ServeError::SelfSigned(SelfSignedError::Certificate(_)) => Exit::Unavailable,
    }
}

/// Reports all invalid combinations of flags at once.
fn options(args: &WebhookArgs, environment: &Environment) -> Result<ServeOptions, Failure> {
    let mut problems = Vec::new();
    let certificates = certificates(&args.certificates, &mut problems);
    let config = config(args, &mut problems);
    let ca_bundle = ca_bundle(&args.cluster, args.certificates.self_signed, &mut problems);
    check_times(&args.limits, &mut problems);
    let Some(certificates) = certificates.filter(|_| problems.is_empty()) else {
        return Err(Failure::new(Exit::Usage, problems));
    };
    Ok(ServeOptions {
        https: args.https_addr,
        monitoring: args.monitoring_addr,
        certificates,
        config,
        ca_bundle,
        native_sidecars: args.native_sidecars,
        openshift: args.platform == Some(Platform::Openshift),
        injection: Options {
            revision: args.revision.label().to_owned(),
            compliance_policy: environment.get("COMPLIANCE_POLICY").to_owned(),
            init_image: args.init_image.as_ref().map(|image| image.as_str().to_owned()),
            reject_proxy_uid: args.reject_proxy_uid,
            note_fields: true,
        },
        limits: args.limits,
        kubeconfig: args.cluster.kubeconfig.as_ref().map(Into::into),
        log: LogOptions { level: args.log.log_level, format: args.log.log_format },
        environment: environment.variables.clone(),
    })
}

fn certificates(args: &CertificateArgs, problems: &mut Vec<String>) -> Option<Certificates> {
    let CertificateArgs { tls_cert, tls_key, self_signed, service, namespace, ca_out } = args;
    let mut problem = |text: &str| problems.push(text.to_owned());
    if !self_signed {
        let given = [
            ("--service", service.is_some()),
            ("--namespace", namespace.is_some()),
            ("--ca-out", ca_out.is_some()),
        ];
        for (flag, given) in given {
            if given {
                problem(&format!("{flag} is for --self-signed, which is not given"));
            }
        }
    }
    match (tls_cert, tls_key, self_signed) {
        (Some(cert), Some(key), false) => {
            Some(Certificates::Files(CertFiles { cert: cert.clone(), key: key.clone() }))
        }
        (None, None, true) => {
            if let (Some(service), Some(namespace)) = (service, namespace) {
                let ca_out = ca_out.as_ref().map(Into::into);
                let (service, namespace) = (service.as_str().to_owned(), namespace.as_str().to_owned());
                return Some(Certificates::SelfSigned { service, namespace, ca_out });
            }
            problem(
                "--self-signed needs --service and --namespace: the certificate is issued for their name",
            );
            None
        }
        (None, None, false) => {
            problem("no certificate: expected --tls-cert and --tls-key, or --self-signed");
            None
        }
        (Some(_), None, false) => {
            problem("--tls-cert needs --tls-key");
            None
        }
        (None, Some(_), false) => {
            problem("--tls-key needs --tls-cert");
            None
        }
        (_, _, true) => {
            problem("--self-signed issues the certificate: it cannot be used with --tls-cert and --tls-key");
            None
        }
    }
}

fn config(args: &WebhookArgs, problems: &mut Vec<String>) -> ConfigFrom {
    for (kind, file) in args.config.given() {
        let flag = kind.flag();
        if file == "-" {
            problems.push(format!("{flag} -: standard input cannot be watched: expected a file"));
        }
        if args.cluster.watch_configmap.is_some() {
            problems.push(format!("{flag} cannot be used with --watch-configmap: expected one of them"));
        }
    }
    match &args.cluster.watch_configmap {
        Some(name) => ConfigFrom::ConfigMap(name.clone()),
        None => ConfigFrom::Files(args.config.clone()),
    }
}

fn ca_bundle(args: &ClusterArgs, self_signed: bool, problems: &mut Vec<String>) -> CaBundle {
    if !args.webhook_config.is_empty() {
        if args.ca_managed_externally {
            let problem =
                "--webhook-config cannot be used with --ca-managed-externally: expected one of them";
            problems.push(problem.to_owned());
        } else if !self_signed {
            let problem = "--webhook-config is for --self-signed: the CA of --tls-cert is not known here";
            problems.push(problem.to_owned());
        }
    }
    let names = args.webhook_config.iter().map(|name| name.as_str().to_owned());
    if args.ca_managed_externally { CaBundle::External } else { CaBundle::Ours(names.collect()) }
}

fn check_times(limits: &Limits, problems: &mut Vec<String>) {
    let Limits { drain_delay, grace, watch_interval, .. } = limits;
    if drain_delay > grace {
        let longer = format!("--drain-delay {drain_delay:?} is longer than --grace {grace:?}");
        problems.push(format!("{longer}, of which it is a part"));
    }
    if watch_interval.as_millis() < 10 {
        problems.push(format!("--watch-interval {watch_interval:?} is too short: expected 10ms or more"));
    }
}
