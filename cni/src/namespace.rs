//! Work in the pod's network namespace, on a thread that ends with it.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use istio_iptables::kernel::netns::{EnterError, Namespace, NamespaceId};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::deadline::Deadline;
use crate::error::{CniError, Code};

/// Runs `work` in the namespace at `path`, within the deadline. Returns what identifies the namespace, too.
///
/// # Errors
/// Code 4: it is not a network namespace, or that of this process, which is the node's own. Code 11: the
/// deadline passed, or the runtime ended this process. Errors of `work`.
pub fn run<T: Send + 'static>(
    path: &Path,
    deadline: &Deadline,
    work: impl FnOnce(&Namespace) -> Result<T, CniError> + Send + 'static,
) -> Result<(T, NamespaceId), CniError> {
    let namespace = Namespace::open(path).map_err(|error| not_entered(&error))?;
    let id = namespace.id().map_err(|error| internal("the namespace cannot be identified", &error))?;
    let own = NamespaceId::of_thread().map_err(|error| internal("/proc/thread-self/ns/net", &error))?;
    if id == own {
        let problem =
            "CNI_NETNS: the network namespace of this process is not accepted, expected that of a pod";
        return Err(CniError::new(Code::InvalidEnvironment, problem));
    }
    let done = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(|error| internal("eventfd", &error))?;
    let done = Arc::new(done);
    let signal = Arc::clone(&done);
    let inside = thread::Builder::new().name("netns".to_owned()).spawn(move || {
        let result = namespace.enter().map_err(|error| not_entered(&error)).and_then(|()| work(&namespace));
        // Writing 1 to an event that is 0 does not fail.
        let _ = signal.write(1);
        result
    });
    let inside = inside.map_err(|error| internal("cannot start a thread", &error))?;
    deadline
        .wait(&*done)
        .map_err(|interrupted| CniError::new(Code::TryAgainLater, interrupted.to_string()))?;
    let result =
        inside.join().map_err(|_| CniError::new(Code::Internal, "the thread in the namespace panicked"))?;
    Ok((result?, id))
}

fn not_entered(error: &EnterError) -> CniError {
    let code = match error {
        EnterError::Missing(_) | EnterError::NotANamespace(_) => Code::InvalidEnvironment,
        EnterError::NoPermission(_) | EnterError::Other(..) => Code::RulesRefused,
    };
    CniError::new(code, format!("CNI_NETNS: {error}"))
}

fn internal(what: &str, error: &dyn std::fmt::Display) -> CniError {
    CniError::new(Code::Internal, format!("{what}: {error}"))
}
