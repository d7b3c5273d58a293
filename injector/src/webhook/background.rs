//! What runs beside the server: a CA of our own, and everything that is read from a cluster and written to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;

use super::error::ServeError;
use super::live::{Live, Surroundings};
use super::options::{Certificates, NativeSidecars, ServeOptions};
use super::progress::Progress;
use super::shutdown::Ending;
use crate::certs::{Names, Publisher, SelfSigned, Serving};
use crate::notice::{Level, Notice, Say};
use gotemplate::Functions;

#[cfg(feature = "cluster")]
#[path = "background/cluster.rs"]
mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "background/no_cluster.rs"]
mod cluster;

/// What background tasks are given. They end when `ending` says so.
#[derive(Clone, Debug)]
pub struct Tasks {
    /// What was asked for.
    pub options: Arc<ServeOptions>,
    /// Gets config ([`Live::configure`]) and surroundings ([`Live::surround`]).
    pub live: Arc<Live>,
    /// Gets certificates ([`Serving::replace`]).
    pub serving: Arc<Serving>,
    /// What templates may call, for [`Live::configure`].
    pub functions: Arc<Functions>,
    /// Says when to end.
    pub ending: Ending,
}

/// Starts everything that was asked for. Nothing here waits for a cluster: what is not there yet keeps the webhook
/// from being ready, and is tried again.
///
/// # Errors
///
/// Every problem that trying again does not mend.
pub async fn start(tasks: Tasks) -> Result<Progress, Vec<ServeError>> {
    tasks.live.surround(Surroundings {
        native_sidecars: tasks.options.native_sidecars != NativeSidecars::False,
        ..Surroundings::default()
    });
    if let Some(why) = cluster::asked_for(&tasks.options) {
        return cluster::start(tasks, why)
            .await
            .map_err(|errors| errors.into_iter().map(ServeError::Background).collect());
    }
    if let Certificates::SelfSigned { service, namespace, ca_out } = &tasks.options.certificates {
        let names = Names::service(service, namespace).and_loopback();
        let own = SelfSigned::issue(&names, publisher(&tasks, ca_out.as_ref()), SystemTime::now());
        let own = own.await.map_err(|error| vec![ServeError::SelfSigned(error)])?;
        tokio::spawn(own.run(say(), ended(tasks.ending)));
    }
    Ok(Progress::default())
}

fn publisher(tasks: &Tasks, ca_out: Option<&PathBuf>) -> Publisher {
    Publisher::new(Arc::clone(&tasks.serving), ca_out.cloned())
}

/// Notices are log lines.
fn say() -> Say {
    Arc::new(|Notice { level, about, message }| match level {
        Level::Info => log::info!("{about}: {message}"),
        Level::Warn => log::warn!("{about}: {message}"),
    })
}

/// Turns true at the end.
fn ended(mut ending: Ending) -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        ending.stopping().await;
        sender.send_replace(true);
    });
    receiver
}
