//! The admission port: TCP, TLS, HTTP. What a request means is not known here.
//!
//! `crowd` knows all connections, `pulse` how each is, `connection` lives as long as one of them, `request` answers
//! one request, `body` reads what it carries, `memory` says how much of that there may be.

mod body;
mod connection;
mod crowd;
mod deadline;
mod listen;
mod memory;
mod pulse;
mod request;
mod seldom;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

pub(super) use crowd::Crowd;
pub use listen::bind;
pub(super) use pulse::Pulse;
pub use request::Door;
pub(super) use request::READY_PATH;
pub(super) use seldom::Seldom;
pub use tls::acceptor;

use super::shutdown::{Ending, Stage};

/// How long accepting pauses when the system has nothing left to accept with.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Accepts connections until the end, then waits until the last one has gone. Whoever calls bounds the wait.
pub async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    door: Arc<Door>,
    connections: usize,
    mut ending: Ending,
) {
    let crowd =
        Arc::new(Crowd::new(connections, door.metrics().connections.clone(), door.metrics().evicted.clone()));
    let mut seldom = Seldom::default();
    loop {
        let accepted = tokio::select! {
            () = ending.stopping() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let room = tokio::select! {
                    room = crowd.room() => room,
                    () = ending.stopping() => crowd.squeeze(),
                };
                begin(stream, room, &tls, &door, &ending);
            }
            Err(error) => failed(&error, "admission", &crowd, &mut seldom).await,
        }
    }
    // Nobody is cut off who got through.
    if let Ok(backlog) = listener.into_std() {
        loop {
            match next(&backlog) {
                Ok(stream) => begin(stream, crowd.squeeze(), &tls, &door, &ending),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    failed(&error, "admission", &crowd, &mut seldom).await;
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    crowd.empty().await;
}

/// A connection that the kernel has already; of the last ones the runtime has not heard yet.
fn next(backlog: &std::net::TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = backlog.accept()?;
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

fn begin(stream: TcpStream, room: crowd::Place, tls: &TlsAcceptor, door: &Arc<Door>, ending: &Ending) {
    // Without it small answers wait for more; if it cannot be set, they do.
    let _ = stream.set_nodelay(true);
    door.metrics().accepted.inc();
    tokio::spawn(connection::run(stream, tls.clone(), Arc::clone(door), room, ending.clone()));
}

/// Makes room and pauses, where nothing can be accepted.
pub(super) async fn failed(error: &io::Error, port: &'static str, crowd: &Crowd, seldom: &mut Seldom) {
    // Anything else is about one connection that is gone again.
    if !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)) {
        return;
    }
    if let Some(times) = seldom.happened(Instant::now()) {
        log::warn!(detail = error.to_string().as_str(), port, times; "no connection can be accepted");
    }
    crowd.evict();
    tokio::time::sleep(EXHAUSTED).await;
}

/// Whether the end has begun: answers then tell clients to go elsewhere.
fn draining(ending: &Ending) -> bool {
    ending.stage() >= Stage::Draining
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_found_before_the_runtime_hears_of_them() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // What blocks keeps the runtime from looking.
        let clients = [(); 3].map(|()| std::net::TcpStream::connect(address).unwrap().local_addr().unwrap());
        let backlog = listener.into_std().unwrap();
        for client in clients {
            assert_eq!(next(&backlog).unwrap().peer_addr().unwrap(), client);
        }
        assert_eq!(next(&backlog).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
