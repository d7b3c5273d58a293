//! The client of the API server that the injector and the node agent share: connections by kubeconfig or
//! service account, through kubectl's proxies and with a rate limit, requests that end in time, and caches of
//! watched objects.
//!
//! ```no_run
//! # async fn example() -> Result<(), apiclient::ClientError> {
//! // By the kubeconfig or the service account, as kubectl finds them.
//! let cluster = apiclient::connect(None, None).await?;
//! println!("connected to {}", cluster.target);
//! # Ok(())
//! # }
//! ```

mod client;
mod proxy;
mod watch;

pub use client::{
    CONFLICT, ClientError, Connection, RequestFailed, ask, client, connect, connect_with_rate, describe, get,
};
pub use kube::Client;
pub use watch::{Cached, watch, watch_selected};
